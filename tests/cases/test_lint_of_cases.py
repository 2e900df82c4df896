"""Public cases about gres.conf and slurm.conf: each pair of files through the whole lint, and GRES as values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mpsfleet.slurm import cli, gres
from mpsfleet.slurm.commands import Caller, Scontrol
from mpsfleet.slurm.lint import gres_conf, judge_node, slurm_conf, told

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from tests.cases.conftest import Row

REST = """\
SelectType={select}
PrologFlags=Alloc
SelectTypeParameters=CR_Core,LL_SHARED_GRES
Prolog=/usr/lib/mpsfleet/hooks/prolog.sh
Epilog=/usr/lib/mpsfleet/hooks/epilog.sh
TaskProlog=/usr/lib/mpsfleet/hooks/task_prolog.sh
HealthCheckProgram=/usr/lib/mpsfleet/hooks/health_check.sh
PartitionName=all Nodes=ALL ExclusiveUser=YES
"""
NAMES = ("gpu", "mps", "shard", "bandwidth")
TYPES = st.one_of(st.none(), st.sampled_from(["a100", "nvidia_a100_80gb_pcie", "1g.10gb", "v100-sxm2"]))


def linted(row: Row, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Lint the files of a row: its nodes first, then GresTypes, then a sound rest."""
    types = row.get("types", "gpu,mps")
    kinds = f"GresTypes={types}\n" if types else ""
    conf = f"{row['slurm']}\n# the cluster\n{kinds}{REST.format(select=row.get('select', 'select/cons_tres'))}"
    files = {"slurm.conf": conf, "gres.conf": f"{row['gres']}\n", "more.conf": row.get("more", "")}
    words = ["lint", "--json", "--slurm-conf", str(folder / "slurm.conf")]
    if "minors" in row:
        gpus = [{"minor": minor, "name": "NVIDIA A100", "instance": "node"} for minor in row["minors"]]
        files["gpus.json"] = json.dumps({"schema": 1, "gpus": gpus})
        words += ["--node", "n1", "--gpus-json", str(folder / "gpus.json")]
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    cli.main(words, Scontrol((), caller=Caller(0, 0, {})))
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_files_are_judged(lint: Row, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = linted(lint, tmp_path, capsys)["findings"]
    places = [f"{each['file'].rpartition('/')[2]}:{each['line'] or 0} {each['code']}" for each in found]
    assert sorted(places) == sorted(lint["finds"])
    assert lint.get("says", "") in " ".join(each["message"] + each["remedy"] for each in found)


def test_shares_are_spread_over_the_gpus(shares: Row) -> None:
    conf = slurm_conf.parse("/s/slurm.conf", f"NodeName=n1 {shares['slurm']}\n", lambda _: None)
    lines = gres_conf.parse("/s/gres.conf", f"{shares['gres']}\n", lambda _: None)
    assert (conf.findings, lines.findings) == ((), ())
    assert told.tell(conf, lines, "n1")[0].per_file(shares["name"]) == shares["per_file"]


def test_entries_of_gres_add_up(gres: Row) -> None:
    entries = parsed(gres["text"])
    assert (counted(entries, gres["name"]), len(entries)) == (gres["count"], gres["entries"])


def test_a_gpu_that_is_taken_as_a_whole_has_no_share_left(used: Row) -> None:
    (entry,) = (each for each in parsed(used["text"]) if each.name == used["name"])
    assert entry.shares is not None
    assert sum(each.total - each.used for each in entry.shares if each.used is not None) == used["free"]


parsed, counted = gres.parse, gres.count_of
ENTRIES = st.lists(st.tuples(st.sampled_from(NAMES), TYPES, st.integers(0, 5000)), max_size=6)


@settings(max_examples=80, deadline=None)
@given(ENTRIES, st.booleans())
def test_counts_of_all_types_add_up(entries: list[tuple[str, str | None, int]], comma: bool) -> None:  # noqa: FBT001  # drawn
    text = ",".join(f"{name}:{kind}:{count}" if kind else f"{name}:{count}" for name, kind, count in entries)
    values = parsed(f"{text}," if comma and text else text)
    assert [(each.name, each.type, each.count) for each in values] == entries
    assert all(counted(values, name) == sum(each[2] for each in entries if each[0] == name) for name in NAMES)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 8), st.integers(0, 900), st.sampled_from(["File", "Files", "MultipleFiles"]), st.booleans())
def test_shares_never_exceed_their_count(gpus: int, count: int, key: str, named: bool) -> None:  # noqa: FBT001  # drawn
    files = ",".join(f"/dev/nvidia{each}" for each in range(gpus)) or "/dev/null"
    conf = slurm_conf.parse("/s", f"NodeName=n1 Gres=gpu:{gpus},mps:{count}\n", lambda _: None)
    text = f"Name=gpu {key}={files}\nName=mps Count={count}{f' {key}={files}' if named else ''}\n"
    (node,) = told.tell(conf, gres_conf.parse("/g", text, lambda _: None), "n1")
    assert sum(node.per_file("mps").values()) <= count
    assert list(judge_node.judge(node)) == list(judge_node.judge(node))
