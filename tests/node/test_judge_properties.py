"""What holds of every judgement: busy and slow are not dead, not asked is not healthy, a forged line is a hint at most."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from build import DESIRED, OBSERVED, PID, changed, gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gpu import ROW0, ROW1
from test_judge import CASES as NODE_CASES
from test_judge_host import CASES as HOST_CASES
from test_judge_servers import CASES as SERVER_CASES
from test_judge_servers import facts as serving
from test_judge_servers import server
from test_kernel_log import FORGED

from mpsfleet.codes import BY_NAME, SEVERITIES
from mpsfleet.node import judge as room
from mpsfleet.node.host.children import Answer
from mpsfleet.node.host_facts import Cause, Holder, HostState, InstanceState, Unit
from mpsfleet.node.judge import judge
from mpsfleet.node.kernel_facts import Event, KernelLog
from mpsfleet.node.model import Facts, Gpus, Silence, Unreadable
from mpsfleet.node.probe import gpu as nvidia_smi
from mpsfleet.node.probe import kernel_log, mps
from mpsfleet.slurm import verdict
from mpsfleet.slurm.reports import Finding as Told
from mpsfleet.slurm.reports import Report as Sent

PACKAGE = Path(room.__file__).parent.parent
NO = Unreadable("no answer")
UNIT = Unit("nvidia-mps.service", main_pid=PID)
READ: tuple[Facts, ...] = (
    *(changed(**changes) for _, changes, _, _ in NODE_CASES),
    *(facts for _, facts, _, _ in HOST_CASES),
    *(facts for _, facts, _, _ in SERVER_CASES),
)
FACTS = st.sampled_from(READ)


def drains(facts: Facts) -> bool:
    """Tell whether a report of this judgement would have the controller drain the node."""
    return drained(*judge(facts, DESIRED).findings)


def drained(*findings: Any) -> bool:
    told = tuple(Told(e.code, e.severity, e.subject, e.message, e.origin, e.evidence, e.remedy) for e in findings)
    return verdict.draining_finding(Sent("n1", "critical", "0", told)) is not None


# Busy is not dead, and slow is not dead.
BUSY = st.sampled_from(
    [
        Answer(1, "", "Cannot send command to MPS control daemon process\n"),
        Answer(1, "Cannot send command to MPS control daemon process\n", ""),
        *(Answer(rc, out, "") for rc in (0, 1) for out in ("", "\n", "  ")),
    ]
)


@given(BUSY, st.integers(0, 3))
def test_a_busy_daemon_is_not_known_and_never_called_dead(answer: Answer, devices: int) -> None:
    report = judge(changed(said=mps.understand(answer, 2.0, mps.About(devices))), DESIRED)

    assert [(each.code, each.severity) for each in report.findings] == [("daemon-busy", "unknown")]


SILENT = st.builds(
    lambda state, held, cause: changed(
        said=mps.understand(Answer(None, "", ""), 2.0)._replace(daemon_state=state, held=held),  # type: ignore[call-arg]
        state=InstanceState(UNIT, cause=cause),
        host=HostState((UNIT,), ()),
    ),
    st.sampled_from(["S", "R", "", "I"]),
    st.booleans(),
    st.none()
    | st.builds(
        Cause,
        st.integers(0, 4),
        st.integers(-1, 65_536),
        st.booleans(),
        st.none() | st.builds(Holder, st.integers(0, 9999), st.integers(-1, 3000), st.text(max_size=15), st.just("")),
    ),
)


@given(SILENT)
def test_a_silent_daemon_whose_silence_a_user_can_bring_about_drains_nothing(facts: Facts) -> None:
    (found,) = judge(facts, DESIRED).findings

    assert found.code == "daemon-wedged"
    assert found.origin in ("user", "either")
    assert not drains(facts)


@given(st.integers(0, len(ROW0 + ROW1)), st.sampled_from(["S", "R", ""]))
def test_an_nvidia_smi_that_is_slow_is_not_known_whatever_it_told_before(cut: int, state: str) -> None:
    gpus = nvidia_smi.understand(Answer(None, (ROW0 + ROW1)[:cut], "", state=state), 4.0)
    report = judge(changed(gpus=gpus), DESIRED)

    assert [(each.code, each.severity) for each in report.findings] == [("nvidia-smi-slow", "unknown")]


# What could not be asked is neither healthy nor a reason to drain.
UNASKED: dict[str, dict[str, Any]] = {
    "the processes": {"daemons": NO},
    "what users meet": {"user": NO},
    "the daemon": {"said": Silence("garbled", "x")},
    "another process namespace": {"control": OBSERVED.control._replace(pid=0)},
    "the record of GPUs": {"cards": NO},
    "the kernel log": {"kernel": NO},
    "the kernel log's end": {"kernel": KernelLog((), 1, "b", complete=False)},
    "nvidia-smi, which is slow": {"gpus": Gpus((), "timeout", "did not answer", state="S")},
    "nvidia-smi, which is not there": {"gpus": Gpus((), "missing")},
    "nvidia-smi, which fails": {"gpus": Gpus((), "failed", "x", 12)},
    "a field of nvidia-smi's": {"gpus": Gpus((gpu(0), gpu(1)._replace(ecc="[Some word]")), "ok")},
    "the units": {"host": HostState(units=NO, drifts=())},
    "the files": {"host": HostState(units=(UNIT,), drifts=NO)},
    "the daemon's environment": {"state": InstanceState(UNIT, NO), "host": HostState((UNIT,), ())},
    "which job a client belongs to": {"servers": serving(steps=NO).servers},
    "which processes compute": {"servers": serving(uses=NO).servers},
    "which jobs share GPUs": {"servers": serving(server(), records=NO).servers},
}


@given(st.lists(st.sampled_from(sorted(UNASKED)), min_size=1, unique=True))
def test_what_could_not_be_asked_is_never_healthy_and_drains_nothing(names: list[str]) -> None:
    facts = changed(**{field: value for each in names for field, value in UNASKED[each].items()})

    assert judge(facts, DESIRED).verdict != "ok"
    assert not drains(facts)


# A forged line is a hint at most, whatever else is so on the node.
EVENTS = st.builds(
    Event,
    st.sampled_from(["", "0000:3b:00", "0000:c1:00"]),
    st.sampled_from([0, 48, 79, 95, 119]),
    st.integers(0, 9),
    st.none() | st.integers(1, 9999),
    st.text(max_size=30),
    st.just(1),
)
WELL = [each for each in READ if not any(found.code.startswith("gpu-") for found in judge(each, DESIRED).findings)]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(WELL), st.lists(EVENTS, min_size=1, max_size=4))
def test_lines_in_the_kernel_log_alone_add_hints_and_nothing_else(facts: Facts, events: list[Event]) -> None:
    facts = facts._replace(kernel=None)
    before = judge(facts, DESIRED)
    log = KernelLog(tuple(events), 9, "boot", complete=True)
    after = judge(facts._replace(kernel=log), DESIRED)

    added = [each for each in after.findings if each not in before.findings]
    assert [each for each in before.findings if each not in after.findings] == []
    if facts.gpus.outcome == "ok" or facts.gpus.state != "D":
        assert {(each.code, each.severity) for each in added} <= {("gpu-xid-logged", "warn")}
    assert drains(facts._replace(kernel=log)) == drains(facts)


@given(st.lists(st.sampled_from(list(FORGED.values())), max_size=6), st.binary(max_size=40))
def test_what_begins_no_record_of_the_kernels_is_no_event(records: list[bytes], tail: bytes) -> None:
    assert [event for each in records if (event := kernel_log.parse(each + tail)) is not None] == []


def test_no_log_file_of_mps_is_read_by_an_audit() -> None:
    """Anybody can write lines into both, so they are evidence for a person and for no judge."""
    texts = [path.read_text(encoding="utf-8") for name in ("probe", "judge") for path in (PACKAGE / name).rglob("*.py")]

    assert len(texts) > 20
    assert [each for each in texts if "control.log" in each or "server.log" in each] == []


# One judge that fails does not silence the others.
@pytest.mark.parametrize("place", range(len(room._JUDGES)), ids=[name for name, _ in room._JUDGES])
def test_the_other_judges_are_heard_where_one_fails(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    judges = room._JUDGES
    name = judges[place][0]

    def broken(*_: object) -> tuple[()]:
        raise RuntimeError("\x1b[2Jboom\n")

    whole = [judge(each, DESIRED) for each in READ]
    own = [judges[place][1](each, DESIRED) for each in READ]
    monkeypatch.setattr(room, "_JUDGES", (*judges[:place], (name, broken), *judges[place + 1 :]))
    for facts, report, lost in zip(READ, whole, own):
        left = judge(facts, DESIRED)
        (failed,) = [each for each in left.findings if each.subject == name and each.code == "probe-failed"]
        assert (failed.severity, failed.message.isprintable()) == ("unknown", True)
        assert sorted(set(report.findings) - set(lost)) == sorted(set(left.findings) - set(lost) - {failed})
        assert left.verdict != "ok"


# Where a finding comes from decides whether it may drain.
@pytest.mark.parametrize("origin", ["user", "either"])
def test_no_code_drains_whose_finding_is_not_the_nodes(origin: str) -> None:
    for code in BY_NAME:
        for severity in SEVERITIES:
            assert not drained(Told(code, severity, "gpu0", "x", origin, (), ""))


@pytest.mark.parametrize("code", sorted(BY_NAME))
def test_a_code_drains_where_its_row_says_so_and_the_node_is_the_cause(code: str) -> None:
    row = BY_NAME[code]

    assert drained(Told(code, "critical", "gpu0", "x", "node", (), "")) is row.drain
    assert not row.drain or (row.severity == "critical" and row.origin != "user")


@settings(max_examples=200, deadline=None)
@given(FACTS)
def test_a_judge_never_raises_a_users_code_to_the_nodes(facts: Facts) -> None:
    for each in judge(facts, DESIRED).findings:
        assert each.severity == BY_NAME[each.code].severity
        assert each.origin in ("node", "user", "either")
        assert BY_NAME[each.code].origin != "user" or each.origin == "user"
