"""The lint of slurm.conf and gres.conf by cases: every rule broken once, and sound files left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from mpsfleet.slurm.lint import rules

if TYPE_CHECKING:
    from tests.slurm.conftest import Lint

SOUND_FILES = Path(__file__).with_name("cases") / "lint"
CONF = (SOUND_FILES / "slurm.conf").read_text(encoding="utf-8")
GRES = (SOUND_FILES / "gres.conf").read_text(encoding="utf-8")
MPS = "Name=mps Count=100 File=/dev/nvidia0"
SHARD = CONF.replace("mps", "shard").replace("/shardfleet/", "/mpsfleet/").replace("shard:100", "shard:8")
IN_TMP = "/tmp/nvidia-mps"  # noqa: S108  compared, never opened
CAPS = "/dev/nvidia0,/dev/nvidia-caps/nvidia-cap84"
A100, H100 = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"


class Case(NamedTuple):
    """One breakage: each pair of `conf` and `gres` is a text and what stands in its place."""

    codes: str  # expected, with the line of the first: "gres-types:2", others after a space
    conf: tuple[tuple[str, str], ...] = ()
    gres: tuple[tuple[str, str], ...] = ()
    gpus: str | None = None
    pipe_directory: str = "/run/nvidia-mps/node"
    has_gres_conf: bool = True


def gpus(*cards: tuple[int, str, str]) -> str:
    """Give a record of GPUs: minor, name, instance each."""
    return json.dumps({"schema": 1, "gpus": [{"minor": one, "name": name, "instance": by} for one, name, by in cards]})


def gres_of(words: str) -> tuple[tuple[str, str], ...]:
    """Give the change of the node's Gres."""
    return (("gpu:a100:2,mps:100", words),)


TWO = gpus((0, A100, "0"), (1, A100, ""))
CASES = (
    Case("include-missing:12", conf=(("ExclusiveUser=YES\n", "ExclusiveUser=YES\nInclude other.conf\n"),)),
    Case("include-cycle:1", gres=((GRES, f"include gres.conf\n{GRES}"),)),
    Case("unreadable:1", gres=((GRES, f"INCLUDE secret\n{GRES}"),)),
    Case("line-not-understood:2", gres=((" File=/dev/nvidia1", " File"),)),
    Case("line-not-understood:5", conf=(("PrologFlags=Alloc", "PrologFlags=Alloc TaskPlugin=task/none"),)),
    Case("line-not-understood:11", conf=(("Nodes=n1", "Nodes=n[1-"),)),
    Case("key-unknown:3 shared-count-low mps-percent", gres=(("Count", "Cuont"),)),
    Case("key-unknown:3", gres=((MPS, "Name=mps NodeName=n1 Count=100 File=/dev/nvidia0"),)),
    Case("key-repeated:10", conf=(("NodeName=", "HealthCheckProgram=/opt/mpsfleet\nNodeName="),)),
    Case("key-repeated:3", gres=((MPS, "Name=mps Count=50 Count=100 File=/dev/nvidia0"),)),
    Case("gres-not-understood:10", conf=gres_of("gpu:a100:x"), gres=((GRES, ""),)),
    Case("list-comma:10", conf=(("NodeName=n1", "NodeName=n1,"),)),
    Case("gres-name-case:3", gres=(("=mps", "=MPS"),)),
    Case("autodetect-unknown:1", gres=((GRES, f"AutoDetect=nvlm\n{GRES}"),)),
    Case("gres-conf-for-all:1", conf=(("PartitionName", "NodeName=nonesuch\nPartitionName"),)),
    Case("gres-types:2", conf=(("=gpu,mps", "=gpu,MPS"),)),
    Case("gres-comma:10", conf=gres_of("gpu:a100:2,mps:100,")),
    Case("count-invalid:3 shared-count-low mps-percent", gres=((MPS, "Name=mps Count=-1 File=/dev/nvidia0"),)),
    Case(
        "count-not-files:1 gpu-count-high",
        gres=(("Name=gpu Type=a100 File=/dev/nvidia0", "Name=gpu Type=a100 Count=2 File=/dev/nvidia0"),),
    ),
    Case("cpus-key:1", gres=(("File=/dev/nvidia0\n", "File=/dev/nvidia0 CPUs=0-3\n"),)),
    Case("gres-types:2", conf=(("GresTypes=gpu,mps", "GresTypes=gpu # ,mps"),)),
    Case("gres-types:None", conf=(("GresTypes=gpu,mps\n", ""),)),
    Case("gres-types-both:2", conf=(("GresTypes=gpu,mps", "GresTypes=gpu,shard,mps"),)),
    Case("select-type:3", conf=(("cons_tres", "cons_res"),)),
    Case("select-type-unset:None", conf=(("SelectType=select/cons_tres\n", ""),)),
    Case("node-repeated:11", conf=(("PartitionName", "NodeName=n1 CPUs=4\nPartitionName"),)),
    Case("gpu-count-low:10", conf=gres_of("gpu:a100:3,mps:100")),
    Case("gpu-count-high:10", conf=gres_of("gpu:a100:1,mps:100")),
    Case("gpu-type:10", conf=gres_of("gpu:v100:2,mps:100")),
    Case("gpu-without-file:10", conf=gres_of("gpu:a100:2"), gres=((GRES, ""),)),
    Case("gpu-repeated:2 gpu-without-file", conf=gres_of("gpu:2"), gres=((GRES, "Name=gpu\nName=gpu\n"),)),
    Case("gpu-repeated:3", conf=gres_of("gpu:2"), gres=((GRES, "AutoDetect=nvml\nName=gpu\nName=gpu\n"),)),
    Case("shared-without-gpu:10 gpu-count-high", conf=gres_of("mps:100")),
    Case("shared-without-gpu:10 gpu-without-file", gres=((GRES, ""),)),
    Case("shared-file-without-gpu:3", gres=((MPS, "Name=mps Count=100 File=/dev/nvidia7"),)),
    Case("shared-files-mixed:4 shared-count-high", gres=((MPS, f"{MPS}\nName=mps Count=100"),)),
    Case(
        "shared-files-mixed:4 shared-count-high mps-several-gpus",
        conf=gres_of("gpu:a100:2,mps:200"),
        gres=((MPS, "Name=mps Count=200\nName=mps Count=200"),),
    ),
    Case("shared-count-low:10", conf=gres_of("gpu:a100:2,mps:200")),
    Case("shared-count-high:10", gres=((MPS, MPS.replace("100", "200")),)),
    Case("shared-not-in-slurm-conf:3", conf=gres_of("gpu:a100:2")),
    Case("shared-type:3", conf=gres_of("gpu:a100:2,mps:a100:100")),
    Case("count-uneven:10", conf=gres_of("gpu:a100:2,mps:201"), gres=((MPS, ""),)),
    Case("mps-percent:3", conf=gres_of("gpu:a100:2,mps:50"), gres=((MPS, MPS.replace("100", "50")),)),
    Case("mps-percent:3 mps-several-gpus", gres=((MPS, "Name=mps Count=100 # 100% = 48 SM"),)),
    Case("mps-several-gpus:10", conf=gres_of("gpu:a100:2,mps:200"), gres=((MPS, ""),)),
    Case(
        "mps-and-shard:10 shard-fills-first gres-types-both",
        conf=(("=gpu,mps", "=gpu,mps,shard"), *gres_of("gpu:a100:2,mps:100,shard:4")),
        gres=((MPS, f"{MPS}\nName=shard Count=4 File=/dev/nvidia0"),),
    ),
    Case("device-repeated:2", gres=(("File=/dev/nvidia1", "File=/dev/nvidia0"),)),
    Case("gpu-not-on-node:2 gpu-not-in-gres-conf", gpus=gpus((0, A100, "0"), (6, A100, "")), gres=()),
    Case("gpu-not-in-gres-conf:1", gpus=gpus((0, A100, "0"), (1, A100, ""), (2, A100, ""))),
    Case("gpu-other-model:2", gpus=gpus((0, A100, "0"), (1, H100, ""))),
    Case("shared-without-daemon:3", gpus=gpus((0, A100, ""), (1, A100, ""))),
    Case("prolog-missing:None", conf=(("Prolog=/usr/lib/mpsfleet/hooks/prolog.sh\n", ""),)),
    Case("epilog-missing:None", conf=(("Epilog=/usr/lib/mpsfleet/hooks/epilog.sh\n", ""),)),
    Case("task-prolog-missing:None", conf=(("TaskProlog=/usr/lib/mpsfleet/hooks/task_prolog.sh\n", ""),)),
    Case("health-check-missing:None", conf=(("HealthCheckProgram=/usr/lib/mpsfleet/hooks/health_check.sh\n", ""),)),
    Case("hook-other:7", conf=(("Epilog=/usr/lib/mpsfleet/hooks/epilog.sh", "Epilog=/etc/slurm/epilog"),)),
    Case("prolog-flags:5", conf=(("PrologFlags=Alloc", "PrologFlags=Serial"),)),
    Case("several-users:11", conf=((" ExclusiveUser=YES", ""),)),
    Case(
        "private-tmp:1",
        conf=(("ClusterName=lab", "JobContainerType=job_container/tmpfs"),),
        pipe_directory=IN_TMP,
    ),
    Case("gres-conf-missing:None", gres=((GRES, ""),), has_gres_conf=False),
    Case("shard-fills-first:4", conf=((CONF, SHARD),), gres=((MPS, "Name=shard Count=8 File=/dev/nvidia0"),)),
)
SOUND = (
    ("the base", Case("")),
    ("MPS spread by slurm.conf alone", Case("", conf=gres_of("gpu:a100:2"), gres=((MPS, ""),))),
    (
        "every key in another case",
        Case("", gres=((GRES, GRES.replace("Name", "NAME").replace("File", "file").replace("Count", "COUNT")),)),
    ),
    ("files as a list", Case("", gres=(("0\nName=gpu Type=a100 File=/dev/nvidia1", "[0-1]"),))),
    (
        "lines for other nodes",
        Case(
            "",
            gres=(
                (
                    GRES,
                    f"NodeName=n[7-9] Name=gpu File=/dev/nvidia[0-7]\nNodeName=n0,n1 {MPS}\n{GRES.replace(MPS, '')}",
                ),
            ),
        ),
    ),
    ("a continued line", Case("", conf=(("CPUs=64 Gres", "CPUs=64 \\\n   Gres"),))),
    ("a continued line with spaces after the backslash", Case("", conf=(("CPUs=64 Gres", "CPUs=64 \\ \t\n   Gres"),))),
    ("a comment with a backslash at its end", Case("", conf=(("NodeName=n1", "# nodes \\\nNodeName=n1"),))),
    ("an escaped comment sign", Case("", conf=(("hooks/prolog.sh", "hooks/a\\#b"),))),
    (
        "quotes and spaces around the equals sign",
        Case("", conf=(("Prolog=/usr/lib/mpsfleet/hooks/prolog.sh", 'Prolog = "/usr/lib/mpsfleet/a b"'),)),
    ),
    (
        "Gres from a DEFAULT line",
        Case(
            "",
            conf=(
                ("NodeName=n1 CPUs=64 Gres", "NodeName=DEFAULT CPUs=1\nNodeName=DEFAULT Gres"),
                ("PartitionName", "NodeName=n1\nPartitionName"),
            ),
        ),
    ),
    (
        "a partition's DEFAULT",
        Case(
            "",
            conf=(
                (
                    "PartitionName=gpu Nodes=n1 ExclusiveUser=YES",
                    "PartitionName=DEFAULT ExclusiveUser=YES\nPartitionName=gpu Nodes=ALL",
                ),
            ),
        ),
    ),
    ("GPUs found by NVML", Case("", gres=((GRES, f"AutoDetect=nvml\n{MPS}"),))),
    (
        "AutoDetect off for this node",
        Case(
            "",
            gres=(
                (GRES, f"AutoDetect=nvml\nNodeName=n1 AutoDetect=off Name=gpu Type=a100 File=/dev/nvidia[0-1]\n{MPS}"),
            ),
        ),
    ),
    (
        "devices of a test pool",
        Case(
            "",
            gres=((GRES, "Name=gpu Type=a100 File=/dev/null[0-1]\nName=mps Count=100 File=/dev/null0\n"),),
            gpus=gpus(),
        ),
    ),
    (
        "MIG devices of several files",
        Case(
            "",
            conf=gres_of("gpu:a100:2"),
            gres=(
                (
                    GRES,
                    "Name=gpu Type=a100 MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap84\nName=gpu Type=a100 File=/dev/nvidia1\n",
                ),
            ),
        ),
    ),
    (
        "shards of a MIG device of several files",
        Case(
            "",
            conf=(
                ("=gpu,mps", "=gpu,shard"),
                ("CR_Core_Memory", "CR_Core_Memory,LL_SHARED_GRES"),
                *gres_of("gpu:1,shard:15"),
            ),
            gres=((GRES, f"Name=gpu  MultipleFiles={CAPS}\nName=shard Count=15   MultipleFiles={CAPS}\n"),),
        ),
    ),
    ("several entries of one name", Case("", conf=gres_of("gpu:a100:1,gpu:a100:1,mps:100"))),
    ("the hardware agrees", Case("", gpus=TWO)),
    (
        "a type that is no part of any model's name",
        Case("", conf=gres_of("gpu:big:2,mps:100"), gres=((GRES, GRES.replace("a100", "big")),), gpus=TWO),
    ),
    ("minor numbers are not known", Case("", gpus=gpus((-1, A100, ""), (-1, A100, "")))),
    ("a pipe directory in /tmp without a /tmp per job", Case("", pipe_directory=IN_TMP)),
    (
        "a node without GPUs",
        Case(
            "",
            conf=(("PartitionName", "NodeName=n2 CPUs=4\nPartitionName"),),
            gres=((GRES, f"NodeName=n1 {GRES.strip()}".replace("\n", "\nNodeName=n1 ")),),
        ),
    ),
)


def changed(text: str, pairs: tuple[tuple[str, str], ...]) -> str:
    for before, after in pairs:
        assert before in text, before
        text = text.replace(before, after, 1)
    return text


def found(case: Case, lint: Lint) -> dict[str, Any]:
    """Lint a case and give its JSON."""
    folder = lint.folder
    (folder / "slurm.conf").write_text(changed(CONF, case.conf), encoding="utf-8")
    (folder / "gres.conf").write_text(changed(GRES, case.gres), encoding="utf-8")
    if not case.has_gres_conf:
        (folder / "gres.conf").unlink()
    (folder / "secret").mkdir()  # a directory cannot be read as a file, by root either
    words = ["--slurm-conf", str(folder / "slurm.conf"), "--pipe-directory", case.pipe_directory, "--json"]
    if case.gpus is not None:
        (folder / "gpus.json").write_text(case.gpus, encoding="utf-8")
        words += ["--node", "n1", "--gpus-json", str(folder / "gpus.json")]
    status, out, err = lint.run(*words)
    answer: dict[str, Any] = json.loads(out)
    assert (err, status) == ("", {"ok": 0, "warn": 1, "critical": 2, "unknown": 3}[answer["verdict"]])
    return answer


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.codes))
def test_a_mistake_is_found_at_its_line(case: Case, lint: Lint) -> None:
    answer = found(case, lint)
    first, *others = case.codes.split()
    code, line = first.split(":")
    assert {each["code"] for each in answer["findings"]} == {code, *others}
    assert str(next(each for each in answer["findings"] if each["code"] == code)["line"]) == line


@pytest.mark.parametrize(("what", "case"), SOUND, ids=[what for what, _ in SOUND])
def test_sound_files_are_left_alone(what: str, case: Case, lint: Lint) -> None:
    assert (what, found(case, lint)["findings"]) == (what, [])


def test_every_rule_has_a_case() -> None:
    assert {word.split(":")[0] for case in CASES for word in case.codes.split()} == set(rules.BY_CODE)
