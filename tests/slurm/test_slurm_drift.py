"""Drift: each kind is found where it is, a sound cluster has none, and nothing is concluded from what is not told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsfleet import codes
from mpsfleet.slurm import cli, drift_fleet, drift_lines, gres, states, tres, verdict
from mpsfleet.slurm.commands import Caller
from mpsfleet.slurm.drift_kinds import BY_WORD, KINDS
from mpsfleet.slurm.nodes import Node, NodeTable, Problem, Reason
from mpsfleet.slurm.presence import Gpu, Instance, Presence
from mpsfleet.slurm.reports import Finding, Garbage, HostReport, Report
from mpsfleet.slurm.verdict import SlurmView

if TYPE_CHECKING:
    from tests.slurm.conftest import FakeSlurm

    from mpsfleet.slurm.drift_fleet import Compared

A100, T4 = "nvidia_a100-sxm4-40gb", "tesla_t4"
MPS, SHARD, PLAIN = "gpu:a100:4,mps:a100:400", "gpu:a100:4,shard:a100:16", "gpu:a100:4"
IDLE_MPS = "gpu:a100:0(IDX:N/A),mps:a100:0(0/100,0/100,0/100,0/100)"
SHARES = "gpu:a100:0(IDX:N/A),shard:a100:4(1/4,1/4,1/4,1/4)"
BUSY = "gpu:a100:0(IDX:N/A),mps:a100:50(50/100,0/100,0/100,0/100)"
BUSY_22 = "gpu:a100:0(IDX:N/A),mps:a100:1(IDX:0)"


def one(*, serves: bool | None = True, count: int = 4, found: int | None = -1, jobs: int = 0) -> Presence:
    """Give a node with one daemon for all of its GPUs; unless told, nvidia-smi shows them all."""
    gpus = tuple(Gpu(minor, A100, "node", jobs) for minor in range(count))
    return Presence((Instance("node", serves),), gpus, count if found == -1 else found, jobs)


def each(serve: str, jobs: tuple[int, ...] = (0, 0, 0, 0)) -> Presence:
    """Give a node of GPUs with a daemon each: "+" serves, "-" does not, "?" is not certain."""
    is_there = {"+": True, "-": False, "?": None}
    instances = tuple(Instance(str(index), is_there[sign]) for index, sign in enumerate(serve))
    gpus = tuple(Gpu(index, A100, str(index), jobs[index]) for index in range(len(serve)))
    return Presence(instances, gpus, len(serve), sum(jobs))


CPU_NODE = Presence((), (), 0, 0)
LEFT_ALONE = Presence((), tuple(Gpu(minor, A100, "", 0) for minor in range(4)), 4, 0)
MIXED = Presence(
    (Instance("0", serves=True), Instance("1", serves=True)),
    (Gpu(2, A100, "0", 0), Gpu(3, A100, "1", 0), Gpu(0, T4, "", 0), Gpu(1, T4, "", 0)),
    4,
    0,
)
MIG = Presence(
    (Instance("1", serves=True),), (Gpu(0, A100, "", 0), Gpu(1, A100, "1", 0)), None, 0
)  # Slurm counts the parts


def slurm(
    name: str, has: str = MPS, used: str | None = None, state: str = "IDLE", reason: str = "", **more: Any
) -> Node:
    told = Reason(reason, "slurm", None) if reason else None
    parsed = None if used is None else gres.parse(used)
    return Node(name, states.parse(state), reason=told, gres=gres.parse(has), gres_used_parsed=parsed, **more)


def reported(name: str, told: Presence | None, *findings: Finding, node: str | None = None) -> HostReport:
    worst = max((found.severity for found in findings), key=codes.SEVERITIES.index, default="ok")
    return HostReport(name, node or name, Report(node or name, worst, "0.1.0", findings, told))


def finding(code: str, severity: str = "warn") -> Finding:
    return Finding(code, severity, "node", f"it is {code}", "either", (), "")


def compare(*pairs: tuple[Node, HostReport | None], problems: tuple[Problem, ...] = ()) -> Compared:
    table = NodeTable(tuple(node for node, _ in pairs), problems)
    return drift_fleet.compare(table, tuple(report for _, report in pairs if report is not None))


def alone(told: Presence | None, has: str = MPS, used: str | None = None, state: str = "IDLE", **more: Any) -> Compared:
    """Compare one node, beside a sound one with gres/mps."""
    beside = (slurm("n9"), reported("n9", one()))
    return compare((slurm("n1", has, used, state, **more), reported("n1", told)), beside)


def kinds(found: Compared) -> list[tuple[str, str, int | None]]:
    return [(case.kind, case.severity, case.gpu) for case in found.drifts]


SOUND = {
    "one daemon, gres/mps": [(MPS, IDLE_MPS, one())] * 4,
    "one daemon, gres/mps, as 22.05 tells it": [(MPS, "gpu:a100:0(IDX:N/A),mps:a100:0(IDX:N/A)", one())] * 2,
    "a daemon each, gres/shard": [(SHARD, "gpu:a100:0,shard:a100:9(4/4,4/4,1/4,0/4)", each("++++"))] * 2,
    "no sharing GRES at all": [(PLAIN, "gpu:a100:1(IDX:0)", each("++++"))] * 2,
    "gres/shard without any MPS": [(SHARD, None, LEFT_ALONE), (PLAIN, None, LEFT_ALONE)],
    "GPU nodes without MPS and CPU nodes beside MPS": [(MPS, None, one()), (PLAIN, None, LEFT_ALONE), ("", None, CPU_NODE)],
    "two models, one under MPS": [("gpu:a100:2,gpu:t4:2,mps:a100:200", "mps:a100:0(0/100,0/100)", MIXED)],
    "mps on one GPU of four": [("gpu:a100:4,mps:100", "mps:100(50/100)", one())],
    "mps in another count": [("gpu:a100:4,mps:a100:120", "mps:a100:0(0/30,0/30,0/30,0/30)", one())],
    "a type of the site's own": [("gpu:fast:2,gpu:big:2,mps:400", None, one())],
    "no type at all": [("gpu:4,mps:400", None, one())],
    "a GPU left out of Slurm": [("gpu:a100:1,mps:a100:100", None, Presence((Instance("0", serves=True),), (Gpu(0, A100, "0", 0), Gpu(1, T4, "", 0)), 2, 0))],
    "MIG parts": [("gpu:a100:1,gpu:1g.5gb:7,mps:a100:100", None, MIG)],
    "GPUs that could not be asked": [(MPS, None, one(found=None))],
    "GPUs that could not be asked and are not recorded": [(MPS, BUSY, one(count=0, found=None))],
    "a daemon of which it is not certain": [(MPS, "mps:a100:100(100/100,0/100,0/100,0/100)", one(serves=None))],
    "a daemon of four of which it is not certain": [(MPS, "mps:a100:100(100/100,0/100,0/100,0/100)", each("+?++"))],
}  # fmt: skip


@pytest.mark.parametrize("rows", SOUND.values(), ids=SOUND.keys())
def test_a_sound_cluster_does_not_drift(rows: list[tuple[str, str | None, Presence]]) -> None:
    pairs = [(slurm(f"n{n}", has, used), reported(f"n{n}", told)) for n, (has, used, told) in enumerate(rows)]

    found = compare(*pairs)

    assert (found.verdict, found.drifts, found.problems) == ("ok", (), ())
    assert drift_lines.lines(found) == [f"{len(rows)} compared: no drift; verdict ok."]


NOT_RUNNING, BESIDE = ("mps-not-running", "critical"), ("allocated-without-daemon", "critical")
FOUND: dict[str, tuple[dict[str, Any], list[tuple[str, str, int | None]]]] = {
    "no daemon": ({"told": one(serves=False)}, [(*NOT_RUNNING, None)]),
    "no daemon, gres/shard": ({"told": one(serves=False), "has": SHARD}, [(*NOT_RUNNING, None)]),
    "no daemon on one GPU": ({"told": each("++-+")}, [(*NOT_RUNNING, 2)]),
    "no daemon on a drained node": (
        {"told": one(serves=False), "state": "IDLE+DRAIN"}, [("mps-not-running", "info", None)]
    ),
    "no daemon set up": ({"told": LEFT_ALONE}, [("mps-not-running", "warn", None)]),
    "jobs of 22.05": ({"told": one(serves=False), "used": BUSY_22}, [(*NOT_RUNNING, None), (*BESIDE, None)]),
    "jobs of 24.11": ({"told": one(serves=False), "used": BUSY}, [(*NOT_RUNNING, None), (*BESIDE, None)]),
    "jobs by TRES": (
        {"told": one(serves=False), "allocated": (tres.Tres("mps", None, 50),)},
        [(*NOT_RUNNING, None), (*BESIDE, None)],
    ),
    "jobs on a node that is draining": (
        {"told": one(serves=False), "used": BUSY, "state": "MIXED+DRAIN"},
        [(*BESIDE, None), ("mps-not-running", "info", None)],
    ),
    "a job on the GPU without daemon": (
        {"told": each("+-++", jobs=(0, 1, 0, 0)), "used": BUSY},
        [(*NOT_RUNNING, 1), (*BESIDE, 1)],
    ),
    "a job on another GPU": ({"told": each("+-++", jobs=(1, 0, 0, 0)), "used": BUSY}, [(*NOT_RUNNING, 1)]),
    "a job on a GPU that Slurm may have given whole": (
        {"told": each("+-++", jobs=(1, 1, 0, 0)), "used": "gpu:a100:1(IDX:1),mps:a100:50(50/100,-/100,0/100,0/100)"},
        [(*NOT_RUNNING, 1)],
    ),
    "jobs on more GPUs than daemons serve": (
        {"told": each("+-++"), "used": SHARES, "has": SHARD}, [(*NOT_RUNNING, 1), (*BESIDE, None)]
    ),
    "no gres/mps": ({"told": one(), "has": PLAIN}, [("mps-not-registered", "warn", None)]),
    "no gres/mps, and no report": ({"told": None, "has": PLAIN}, [("mps-not-registered", "warn", None)]),
    "no GRES": ({"told": one(), "has": ""}, [("gpu-count", "warn", None)]),
    "a GPU less": ({"told": one(found=3)}, [("gpu-count", "warn", None)]),
    "a GPU less, nothing recorded": ({"told": one(count=3), "used": IDLE_MPS}, [("gpu-count", "warn", None)]),
    "no GPU": ({"told": one(found=0)}, [("gpu-count", "warn", None)]),
    "GPUs under MPS that Slurm does not have": ({"told": one(), "has": "gpu:a100:2,mps:a100:200"}, [("gpu-count", "warn", None)]),
    "another model": ({"told": one(), "has": "gpu:h100:4,mps:400"}, [("gpu-type", "warn", None)]),
    "two models mixed up": ({"told": MIXED, "has": "gpu:a100:3,gpu:t4:1,mps:a100:200"}, [("gpu-type", "warn", None)]),
    "shares of GPUs that are left alone": (
        {"told": MIXED, "has": "gpu:a100:2,gpu:t4:2,mps:a100:200,mps:t4:200", "used": "mps:a100:0(0/100,0/100),mps:t4:0(0/100,0/100)"},
        [("mps-count", "warn", None)],
    ),
    "an invalid registration": (
        {"told": one(), "has": "gpu:a100:3,mps:a100:300", "state": "IDLE+DRAIN+INVALID_REG", "reason": "gres/gpu count reported lower than configured (3 < 4)"},
        [("invalid-registration", "warn", None)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given_as", "expected"), FOUND.values(), ids=FOUND.keys())
def test_each_kind_is_found(given_as: dict[str, Any], expected: list[tuple[str, str, int | None]]) -> None:
    found = alone(**given_as)

    assert kinds(found) == expected
    worst = max((severity for _, severity, _ in expected if severity != "info"), default="ok", key=rank)
    assert found.verdict == (worst if given_as["told"] is not None else "unknown")
    assert {case.node for case in found.drifts} == {"n1"}
    assert all(case.sentence.endswith(".") and case.mend.endswith(".") for case in found.drifts)


def rank(severity: str) -> int:
    return ["ok", "warn", "unknown", "critical"].index(severity)


@pytest.mark.parametrize(
    "state", ["IDLE+POWERED_DOWN+CLOUD", "idle~", "MAINT", "IDLE+MAINTENANCE", "DOWN+REBOOT_ISSUED", "FUTURE"]
)
def test_what_is_out_of_reach_on_purpose_does_not_drift(state: str) -> None:
    down = slurm("n1", "", None, state, "gres/gpu count reported lower than configured (0 < 4)")
    for report in (reported("n1", one(serves=False, found=0)), HostReport("n1", "n1", None, "unreachable"), None):
        found = compare((down, report), (slurm("n9"), reported("n9", one())))
        assert (found.verdict, found.drifts, found.problems) == ("ok", (), ())


@pytest.mark.parametrize(
    "given_host",
    [
        HostReport("n1", "n1", None, "unreachable: timed out"),
        HostReport("n1", "n1", None),
        HostReport("n1", "n1", Garbage("it is not sound JSON")),
        reported("n1", one(serves=False), node="n2")._replace(node="n1"),
        reported("n1", None),
        reported("n1", one(serves=False))._replace(error="it died"),
    ],
)
def test_from_what_is_not_told_nothing_is_concluded(given_host: HostReport) -> None:
    found = compare((slurm("n1", used=BUSY), given_host))

    assert (found.verdict, found.drifts) == ("unknown", ())
    assert [problem.host for problem in found.problems] == ["n1"]
    assert "1 not known; verdict unknown" in drift_lines.lines(found)[-1]


def test_names_that_are_not_slurms_are_told() -> None:
    hosts = (
        reported("gpu-a", one()),
        HostReport("gpu-b", None, None),
        HostReport("gpu-c", "n[1-4]", None),
        reported("x", one(), node="n3"),
        reported("y", one(), node="n3"),
        reported("twice", one(), node="n1"),
        reported("twice", one(), node="n2"),
    )
    table = NodeTable(tuple(slurm(f"n{n}", hostname=f"gpu-{n}") for n in range(1, 4)), ())

    found = drift_fleet.compare(table, hosts)

    assert [(case.kind, case.host) for case in found.drifts] == [
        ("unknown-node", "gpu-a"),
        ("unknown-node", "gpu-b"),
        ("unknown-node", "gpu-c"),
        ("name-claimed-twice", "x"),
        ("name-claimed-twice", "y"),
    ]
    assert {problem.host for problem in found.problems} == {"twice"}
    assert found.verdict == "unknown"


def test_a_node_that_no_host_is_is_told_and_counts_for_nothing() -> None:
    found = compare((slurm("n1"), reported("n1", one())), (slurm("n2"), None), (slurm("n3", PLAIN), None))

    assert [(case.kind, case.severity, case.node) for case in found.drifts] == [("not-audited", "info", "n2")]
    assert found.verdict == "ok"


def test_a_process_without_a_job_is_told_in_the_drift_and_once_in_the_verdict() -> None:
    report = reported("n1", one(), finding("client-without-job"))

    found = compare((slurm("n1"), report))

    assert kinds(found) == [("process-without-job", "warn", None)]
    [host] = verdict.judge((report,), SlurmView("lab", NodeTable((slurm("n1"),), ())), "root").hosts
    assert [notice.sentence for notice in host.notices] == ["it is client-without-job [client-without-job]."]


def test_where_mps_was_stopped_on_purpose_the_mend_is_to_end_that() -> None:
    [case] = compare((slurm("n1"), reported("n1", one(serves=False), finding("quiesced")))).drifts
    assert (case.kind, "mpsfleet node unquiesce" in case.mend) == ("mps-not-running", True)


@pytest.mark.parametrize(
    ("reason", "told", "words"),
    [
        ("gres/mps count reported lower than configured (0 < 8)", one(), "Its slurmd counts 0 of gres/mps"),
        (
            "gres/gpu count reported lower than configured (3 < 4)",
            one(),
            "correct the gpu lines of the node's gres.conf",
        ),
        ("gres/gpu count too low (3 < 4)", one(found=3), "bring the others back, or set gpu to 3 in slurm.conf"),
        ("gres/gpu count too low (3 < 4)", None, "Its slurmd counts 3 of gres/gpu"),
        ("Low RealMemory", one(), "Make slurm.conf, gres.conf and the node's GPUs agree; restart its slurmd."),
    ],
)
def test_an_invalid_registration_says_which_count_and_which_side(
    reason: str, told: Presence | None, words: str
) -> None:
    node = slurm("n1", state="IDLE+DRAIN+INVALID_REG", reason=reason)
    found = compare((node, reported("n1", told)))

    [case] = found.drifts
    assert (case.kind, f"({reason})" in case.sentence, words in case.mend) == ("invalid-registration", True, True)
    assert "reset" not in case.mend
    without = drift_fleet.compare(NodeTable((node,), ()), None)
    assert [each.kind for each in without.drifts] == ["invalid-registration"]


def test_a_reason_of_ours_that_slurm_left_on_the_node_is_not_given_as_the_cause() -> None:
    node = slurm("n1", "gpu:a100:4,mps:a100:200", state="IDLE+DRAIN+INVALID_REG", reason="mpsfleet: reset")

    [case] = compare((node, reported("n1", one()))).drifts

    assert "(slurmctld's log says which; the reason is one of before)" in case.sentence
    assert case.mend.startswith("It registered gpu:a100:4,mps:a100:200. ")


def test_without_reports_slurm_alone_is_looked_at() -> None:
    table = NodeTable((slurm("n1"), slurm("n2", PLAIN), slurm("n3", "")), ())
    assert drift_fleet.compare(table, None) == drift_fleet.Compared("ok", (), (), 3)


def test_only_the_wanted_nodes_are_told() -> None:
    hosts = (
        reported("a", one(serves=False), node="n1"),
        reported("b", one(serves=False), node="n2"),
        HostReport("c", "n3", None, "unreachable"),
    )
    table = NodeTable((slurm("n1"), slurm("n2"), slurm("n3")), ())

    by_node, by_host = (drift_fleet.compare(table, hosts, {name}) for name in ("n1", "a"))
    missing = drift_fleet.compare(table, hosts, {"n8"})

    assert by_node == by_host
    assert ([case.node for case in by_node.drifts], by_node.problems, by_node.looked_at) == (["n1"], (), 1)
    assert [problem.host for problem in missing.problems] == ["n8"]


def test_equal_cases_are_one_line_with_the_command_for_all_of_them() -> None:
    pairs = [(slurm(f"n{n}"), reported(f"gpu{n}.site", one(serves=False), node=f"n{n}")) for n in (1, 2, 3)]

    told = drift_lines.lines(compare(*pairs))

    assert told[0].startswith("n[1-3]: critical: Slurm sends jobs for gres/mps to the node, and its control daemon")
    assert "`ansible-playbook mpsfleet.mps.reset_mps --limit gpu1.site,gpu2.site,gpu3.site`" in told[0]
    assert told[1] == "3 compared: drift on 3; verdict critical."


def test_the_verdict_is_never_better_than_the_drift() -> None:
    for given_as, _ in FOUND.values():
        state = {key: value for key, value in given_as.items() if key != "told"}
        used = state.pop("used", None)
        node = slurm("n1", state.pop("has", MPS), used, state.pop("state", "IDLE"), **state)
        hosts = (reported("n1", given_as["told"]), reported("n9", one()))
        table = NodeTable((node, slurm("n9")), ())
        judged = verdict.judge(hosts, SlurmView("lab", table), "root").verdict
        compared = drift_fleet.compare(table, hosts)
        worst = max((case.severity for case in compared.drifts if case.severity != "info"), key=rank, default="ok")
        assert rank(judged) >= rank(worst), given_as


def test_every_kind_is_found_somewhere() -> None:
    produced = {case[0] for _, expected in FOUND.values() for case in expected}
    elsewhere = {"process-without-job", "unknown-node", "name-claimed-twice", "not-audited"}
    assert produced | elsewhere == set(BY_WORD) == {kind.word for kind in KINDS}


SERVES = st.sampled_from([True, False, None])
PRESENCES = st.none() | st.builds(
    one, serves=SERVES, count=st.integers(0, 4), found=st.none() | st.integers(0, 5), jobs=st.integers(0, 2)
) | st.builds(
    each, st.text("+-?", min_size=1, max_size=4)
)  # fmt: skip
NODES = st.builds(
    slurm,
    st.sampled_from([f"n{number}" for number in range(4)]),
    st.sampled_from([MPS, SHARD, PLAIN, "", "gpu:h100:2,gpu:t4:1,mps:1", "mps:100"]),
    st.sampled_from([None, BUSY, BUSY_22, SHARES, IDLE_MPS]),
    st.sampled_from(["IDLE", "MIXED", "IDLE+DRAIN", "DOWN*", "idle~", "IDLE+INVALID_REG", "MAINT", "WHAT"]),
    st.sampled_from(["", "gres/mps count too low (0 < 8)", "x" * 400, "\x1b[2J"]),
)
HOSTS = st.builds(reported, st.sampled_from(["n0", "n1", "n2", "n7", "\x1b\n\u202e"]), PRESENCES) | st.builds(
    HostReport, st.sampled_from(["n1", "n3"]), st.none() | st.sampled_from(["n1", "n3", "ALL"]), st.none(), st.just("x")
)


@given(st.lists(NODES, max_size=5, unique_by=lambda node: node.name), st.lists(HOSTS, max_size=5), st.randoms())
def test_the_order_changes_nothing_and_every_line_is_printable(
    nodes: list[Node], hosts: list[HostReport], luck: Any
) -> None:
    found = drift_fleet.compare(NodeTable(tuple(nodes), ()), tuple(hosts))
    luck.shuffle(hosts)
    luck.shuffle(nodes)

    assert drift_fleet.compare(NodeTable(tuple(nodes), ()), tuple(hosts)) == found
    assert all(line.isprintable() for line in drift_lines.lines(found))
    assert json.dumps(drift_lines.as_json(found)).isprintable()
    assert {case.kind for case in found.drifts} <= set(BY_WORD)


def run(shell: FakeSlurm, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = cli.main(["drift", *words], shell.door(2, Caller(0, 0, {})))
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return status, said.out, said.err


def file_of(folder: Path, *hosts: tuple[str, bool]) -> str:
    told = [
        {"instances": [["node", serves]], "gpus": [[0, A100, "node", 0]] * 4, "found": 4, "jobs": 0}
        for _, serves in hosts
    ]
    body = [
        {
            "host": name,
            "node": name,
            "error": None,
            "report": {"schema": 1, "verdict": "ok", "node": name, "program": "0.1.0", "findings": [], "mps": mps},
        }
        for (name, _), mps in zip(hosts, told)
    ]
    (folder / "reports.json").write_text(json.dumps({"schema": 1, "hosts": body}), encoding="utf-8")
    return str(folder / "reports.json")


@pytest.mark.parametrize("version", ["slurm-wlm 22.05.8", "slurm-wlm 24.11.5"])
def test_the_verb_asks_once_and_says_what_it_found(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], tmp_path: Path, version: str
) -> None:
    slurm.write(version=version)
    slurm.add("n1", "MIXED", gres_used=BUSY_22)
    slurm.add("n2")
    reports = file_of(tmp_path, ("n1", False), ("n2", True))

    status, out, err = run(slurm, capsys, "--reports", reports, "--json")

    answer = json.loads(out)
    assert (status, err, answer["verdict"]) == (2, "", "critical")
    assert [(case["kind"], case["nodes"], case["gpu"]) for case in answer["drifts"]] == [
        ("mps-not-running", ["n1"], None),
        ("allocated-without-daemon", ["n1"], None),
    ]
    assert len(slurm.calls()) == 1
    assert run(slurm, capsys, "--reports", reports, "n2")[:2] == (0, "1 compared: no drift; verdict ok.\n")


def test_hosts_of_another_cluster_are_a_problem_and_not_compared(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    slurm.add("n1")
    path = Path(file_of(tmp_path, ("n1", True), ("n1", False)))
    frame = json.loads(path.read_text(encoding="utf-8"))
    for host, cluster in zip(frame["hosts"], ("lab", "other")):
        host.update(host=f"{cluster}-n1", cluster=cluster)
    path.write_text(json.dumps(frame), encoding="utf-8")

    status, out, _ = run(slurm, capsys, "--reports", str(path), "--json")

    answer = json.loads(out)
    assert (status, answer["drifts"]) == (3, [])
    assert answer["problems"] == ["other-n1: The inventory has it in cluster other."]


def test_a_slurm_that_cannot_be_asked_is_3(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    slurm.add("n1")
    assert run(slurm, capsys, "--cluster", "prod")[0] == 3
    slurm.write(mode="refused")
    status, out, err = run(slurm, capsys, "--json")
    assert (status, json.loads(out)["drifts"], "slurmctld could not be asked" in err) == (3, [], True)


def test_reports_that_are_none_are_3(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    slurm.add("n1")
    (tmp_path / "reports.json").write_text("{}", encoding="utf-8")
    status, out, err = run(slurm, capsys, "--reports", str(tmp_path / "reports.json"))
    assert (status, out, "nothing was read" in err) == (3, "", True)
