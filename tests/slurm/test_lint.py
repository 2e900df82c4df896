"""The lint of slurm.conf and gres.conf: every rule by a case, sound files without a word, and no input that breaks it."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpsfleet.slurm import cli, hostlist
from mpsfleet.slurm.commands import Caller, Scontrol
from mpsfleet.slurm.lint import (
    findings,
    gres_conf,
    judge_cluster,
    judge_gpus,
    judge_node,
    render,
    slurm_conf,
    told,
    wanted,
)
from mpsfleet.slurm.lint.settings import logical_lines

if TYPE_CHECKING:
    from tests.slurm.conftest import Lint

ROOT = Caller(0, 0, {})
SOUND_FILES = Path(__file__).with_name("cases") / "lint"
CONF = (SOUND_FILES / "slurm.conf").read_text(encoding="utf-8")
GRES = (SOUND_FILES / "gres.conf").read_text(encoding="utf-8")
SUDO = Caller(0, 0, {"SUDO_UID": "1000"})


def test_a_person_reads_place_sentence_nodes_and_remedy(lint: Lint) -> None:
    conf = lint.folder / "slurm.conf"
    conf.write_text(CONF.replace("=n1", "=n[1-4]").replace("gpu,mps", "gpu"), encoding="utf-8")
    status, out, _ = lint.run("--slurm-conf", str(conf))
    remedy = "Add the name to GresTypes, on the nodes first."
    assert status == 2
    assert out.splitlines() == [
        f"{conf}:2: critical: GresTypes is gpu, and nodes have Gres=mps (n[1-4]). {remedy} [gres-types]",
        "4 node(s): 1 critical; verdict critical.",
    ]


def test_a_line_for_each_node_makes_one_finding(lint: Lint) -> None:
    conf = lint.folder / "slurm.conf"
    nodes = "".join(f"NodeName=n{number} Gres=gpu:a100:3,mps:100\n" for number in range(1, 5))
    conf.write_text(CONF.replace("NodeName=n1 CPUs=64 Gres=gpu:a100:2,mps:100\n", nodes), encoding="utf-8")
    (found,) = json.loads(lint.run("--slurm-conf", str(conf), "--json")[1])["findings"]
    assert (found["code"], found["line"], found["nodes"]) == ("gpu-count-low", 10, "n[1-4]")


def test_one_node_is_judged_alone(lint: Lint) -> None:
    conf = lint.folder / "slurm.conf"
    conf.write_text(CONF + "NodeName=n2 Gres=gpu:8\n", encoding="utf-8")
    assert lint.run("--slurm-conf", str(conf))[0] == 2
    assert lint.run("--slurm-conf", str(conf), "--node", "n1")[0] == 0


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("--slurm-conf", "/nowhere/slurm.conf"), 3, "There is no file /nowhere/slurm.conf"),
        (("--gres-conf", "/nowhere"), 3, "There is no file /nowhere"),
        (("--node", "n9"), 3, "has no node n9"),
        (("--gpus-json", "/nowhere", "--node", "n1"), 3, "There is no file /nowhere"),
        (("--want", "mpss"), 64, "invalid choice"),
        (("--shares", "0"), 64, "is not a number from 1"),
        (("--shared", "n1"), 64, "is not a number from 1"),
        (("--shared", "1:n["), 64, "is not a list of names"),
        (("--slurm-conf", ""), 64, "an empty name is no file"),
        (("--grse-conf", "x"), 64, "did you mean --gres-conf?"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(words: tuple[str, ...], status: int, sentence: str, lint: Lint) -> None:
    given = () if "--slurm-conf" in words else ("--slurm-conf", str(lint.folder / "slurm.conf"))
    got, _, err = lint.run(*given, *words)
    assert (got, err.count("\n")) == (status, 1)
    assert sentence in err


def test_a_record_of_gpus_needs_one_node(lint: Lint) -> None:
    (lint.folder / "slurm.conf").write_text(CONF + "NodeName=n2\n", encoding="utf-8")
    status, _, err = lint.run("--slurm-conf", str(lint.folder / "slurm.conf"), "--gpus-json", "-")
    assert (status, "--node" in err) == (64, True)


@pytest.mark.parametrize(
    "words", [("--slurm-conf", "/etc/shadow"), ("--gres-conf", "/etc/shadow"), ("--gpus-json", "/etc/shadow")]
)
def test_under_sudo_no_path_is_taken(words: tuple[str, ...], lint: Lint) -> None:
    status, out, err = lint.run(*words, caller=SUDO)
    assert (status, out) == (64, "")
    assert err.startswith("mpsfleet: Under sudo, ")


def test_a_line_that_is_not_understood_is_never_quoted(lint: Lint) -> None:
    shadow = lint.folder / "shadow"
    shadow.write_text("root:$y$secret:1:0\nalice:!:2\n", encoding="utf-8")
    status, out, err = lint.run("--slurm-conf", str(shadow), "--gres-conf", str(shadow))
    assert (status, err) == (2, "")
    assert "secret" not in out


def test_files_lie_under_the_root(lint: Lint) -> None:
    folder = lint.folder / "image" / "etc" / "slurm"
    folder.mkdir(parents=True)
    (folder / "slurm.conf").write_text(CONF, encoding="utf-8")
    (folder / "gres.conf").write_text("Include /etc/slurm/more.conf\n", encoding="utf-8")
    (folder / "more.conf").write_text(GRES, encoding="utf-8")
    root = str(lint.folder / "image")
    assert lint.run(root=root, caller=SUDO)[:2] == (0, "1 node(s): no findings; verdict ok.\n")
    gpus = {"schema": 1, "gpus": [{"minor": 0, "name": "NVIDIA A100", "instance": "0"}]}
    (folder / "gpus.json").write_text(json.dumps(gpus), encoding="utf-8")
    status, out, _ = lint.run("--node", "n1", "--gpus-json", "/etc/slurm/gpus.json", root=root)
    assert (status, "the node has no /dev/nvidia1" in out) == (2, True)


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("mps", []),
        (
            "shard",
            [
                ("GresTypes=gpu,mps", "GresTypes=gpu,shard"),
                ("NodeName=n1 CPUs=64 Gres=gpu:a100:2,mps:100", "NodeName=n1 CPUs=64 Gres=gpu:a100:2,shard:8"),
            ],
        ),
        ("none", [("NodeName=n1 CPUs=64 Gres=gpu:a100:2,mps:100", "NodeName=n1 CPUs=64 Gres=gpu:a100:2")]),
    ],
)
def test_the_lines_for_a_way_of_sharing_are_shown(way: str, expected: list[tuple[str, str]], lint: Lint) -> None:
    out = lint.run("--slurm-conf", str(lint.folder / "slurm.conf"), "--want", way, "--json")[1]
    assert [(each["before"], each["after"]) for each in json.loads(out)["changes"]] == expected


def test_a_bare_slurm_conf_gets_every_line_that_mps_needs(lint: Lint) -> None:
    conf = lint.folder / "slurm.conf"
    conf.write_text("Epilog=/site/epilog\nNodeName=n1 State=UNKNOWN\nPartitionName=p Nodes=ALL\n", encoding="utf-8")
    (lint.folder / "gres.conf").write_text("Name=gpu Type=a100 File=/dev/nvidia[0-3]\n", encoding="utf-8")
    out = lint.run("--slurm-conf", str(conf), "--node", "n1", "--want", "shard", "--shares", "8", "--json")[1]
    assert [each["after"] for each in json.loads(out)["changes"]] == [
        "GresTypes=gpu,shard",
        "SelectType=select/cons_tres",
        "Prolog=/usr/lib/mpsfleet/hooks/prolog.sh",
        "TaskProlog=/usr/lib/mpsfleet/hooks/task_prolog.sh",
        "PrologFlags=Alloc",
        "NodeName=n1 State=UNKNOWN Gres=gpu:a100:4,shard:32",
        "PartitionName=p Nodes=ALL ExclusiveUser=YES",
    ]


def test_a_node_may_share_some_of_its_gpus(lint: Lint) -> None:
    conf = lint.folder / "slurm.conf"
    conf.write_text("NodeName=n[1-2] Gres=gpu:4\nNodeName=n3 Gres=gpu:4\n", encoding="utf-8")
    (lint.folder / "gres.conf").unlink()
    words = ("--slurm-conf", str(conf), "--want", "mps", "--shared", "1:n[1-2]", "--json")
    lines = [each["after"] for each in json.loads(lint.run(*words)[1])["changes"] if "Gres" in each["before"]]
    assert lines == ["NodeName=n[1-2] Gres=gpu:4,mps:100", "NodeName=n3 Gres=gpu:4,mps:400"]


def test_the_lines_shown_leave_nothing_to_change(lint: Lint) -> None:
    conf = lint.folder / "slurm.conf"
    conf.write_text("NodeName=n1 Gres=gpu:a100:2\nPartitionName=p Nodes=n1\n", encoding="utf-8")
    for way in ("mps", "shard", "mps", "none", "shard"):
        words = ("--slurm-conf", str(conf), "--want", way, "--json")
        for change in json.loads(lint.run(*words)[1])["changes"]:
            text = conf.read_text(encoding="utf-8")
            before = f"{change['before']}\n" if change["before"] else ""
            conf.write_text(text.replace(before, f"{change['after']}\n", 1), encoding="utf-8")
        assert json.loads(lint.run(*words)[1])["changes"] == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-3,7]", "n1 n2 n3 n7"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("a,b-[2]x", "a b-2x"),
        ("r[0-1]n[1-2]", "r0n1 r0n2 r1n1 r1n2"),
        ("", ""),
    ],
)
def test_a_host_list_names_its_hosts(text: str, names: str) -> None:
    assert " ".join(hostlist.expand(text)) == names


@pytest.mark.parametrize("text", ["n[", "n[]", "n[3-1]", "n[1-", "n]1", "n[1-99999]", "n[0-999][0-999]", "n[a]", "n1,"])
def test_what_is_no_host_list_is_an_error(text: str) -> None:
    with pytest.raises(hostlist.HostlistError):
        hostlist.expand(text)


@given(st.lists(st.from_regex(r"[a-z]{1,3}[0-9]{0,3}", fullmatch=True), unique=True, max_size=20))
def test_a_compact_list_expands_to_the_same_hosts(hosts: list[str]) -> None:
    assert sorted(hostlist.expand(hostlist.compact(hosts))) == sorted(hosts)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\\\nb\nc", [(1, "ab"), (3, "c")]),
        ("a # x\\\nb", [(1, "a "), (2, "b")]),
        ("a \\\n# x \\\nb", [(1, "a "), (3, "b")]),
        ("a\\#b # c", [(1, "a#b ")]),
        ("a\\\\", [(1, "a\\")]),
        ("a\\", [(1, "a")]),
    ],
)
def test_lines_are_joined_and_cut_as_slurm_does(text: str, lines: list[tuple[int, str]]) -> None:
    assert list(logical_lines(text)) == lines


WORDS = st.sampled_from(
    ["NodeName", "=", " ", "\n", "n[1-2]", "Name", "gpu", "mps", "shard", "File", "/dev/nvidia[0-1]", "Count", "-1", "0",
     "DEFAULT", "Gres", "gpu:2,mps:0", "Type", "PartitionName", "Nodes", "ALL", "Include", "x", "\\", "#", '"', ",", "\0",
     "GresTypes", "AutoDetect", "nvml", "MultipleFiles", "[", "\x85", "\u2028", "Gres=gpu:1,mps:3", "NodeName=n1 "]
)  # fmt: skip
TEXTS = st.one_of(st.text(), st.lists(WORDS, max_size=60).map("".join))


@settings(max_examples=200, deadline=None)
@given(TEXTS, TEXTS, TEXTS)
def test_no_text_breaks_the_parsers_and_judges(conf: str, gres: str, included: str) -> None:
    values = slurm_conf.parse("/s/slurm.conf", conf, lambda _: included)
    others = gres_conf.parse("/s/gres.conf", gres, lambda _: included)
    nodes = told.tell(values, others, None)
    made = [*values.findings, *others.findings, *judge_cluster.judge(values, nodes, judge_cluster.Site())]
    for each in nodes:
        made += [*judge_node.judge(each), *judge_gpus.judge(each, (told.Gpu(0, "NVIDIA A100", is_under_mps=True),))]
    ordered = findings.ordered(made)
    changes = wanted.changes(values, nodes, wanted.Want("mps", 100, {"n1": 1}))
    shown = [
        *render.lines(nodes, ordered, changes),
        json.dumps(render.as_json(values, others, nodes, ordered, changes)),
    ]
    assert all(line.isprintable() for line in shown)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(), TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_no_record_of_gpus_breaks_it(content: bytes) -> None:
    with contextlib.suppress(told.RecordError):
        assert isinstance(told.gpus_of(content.decode("utf-8", "replace")), tuple)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=4000))
def test_no_file_breaks_the_verb(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "slurm.conf"
        path.write_bytes(content)
        (Path(folder) / "gres.conf").write_bytes(content[::-1])
        assert cli.main(["lint", "--slurm-conf", str(path), "--want", "mps"], Scontrol((), caller=ROOT)) in (0, 1, 2, 3)
