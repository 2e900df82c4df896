"""Public cases about nvidia-smi: its answers as values, and what is found on a node where it answers so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import build

from mpsfleet.codes import BY_NAME
from mpsfleet.node import gpu_facts
from mpsfleet.node.desired import Desired
from mpsfleet.node.host.children import Answer
from mpsfleet.node.judge import judge
from mpsfleet.node.model import Gpu, Unreadable
from mpsfleet.node.probe import gpu, uses

if TYPE_CHECKING:
    from tests.cases.conftest import Row

DRIVER = "535.261.03"
BUSES = ("00000000:3B:00.0", "00000000:86:00.0", "00000000:AF:00.0")
LIMIT_S = 4.0


def status_of(row: Row) -> int | None:
    """Return the exit status; "none" is one that did not come in time, for which TOML has no word."""
    return None if row.get("rc") == "none" else row.get("rc", 0)


def line(number: int, cells: Row, columns: int) -> str:
    """Return a row of a sound GPU with what the case says of it."""
    sound = build.gpu(number)._replace(bus_id=BUSES[number], ecc="0", recovery="None")
    if "all" in cells:
        everywhere: Any = dict.fromkeys(Gpu._fields[2:], cells["all"])
        sound = sound._replace(**everywhere)
    changed: Any = {name: text for name, text in cells.items() if name != "all"}
    return ", ".join(sound._replace(**changed)[:columns]) + "\n"


def answer_of(row: Row) -> Answer:
    columns = row.get("columns", len(gpu.fields(row.get("driver", DRIVER))))
    rows = "".join(line(number, cells, columns) for number, cells in enumerate(row.get("gpus", ())))
    out = f"{row.get('before', '')}{rows}{row.get('after', '')}"
    return Answer(status_of(row), out, row.get("err", ""), state=row.get("state", ""))


def test_an_answer_is_read_and_judged_as_the_case_says(smi: Row) -> None:
    shown = smi.get("gpus", ())
    read = gpu.understand(answer_of(smi), LIMIT_S, smi.get("driver", DRIVER))
    report = judge(build.changed(gpus=read), Desired(gpus_expected=smi.get("expected", len(shown))))
    uuids = {each.uuid: "UUID" for each in read.gpus}

    assert (read.outcome, len(read.gpus)) == (smi.get("outcome", "ok"), len(shown))
    found = sorted([each.code, uuids.get(each.subject, each.subject)] for each in report.findings)
    assert found == sorted(smi["finds"])
    assert smi.get("says", "") in " ".join(each.message for each in report.findings)
    drains = any(BY_NAME[each.code].drain and each.origin == "node" for each in report.findings)
    assert drains is smi.get("drains", False)


def test_a_cell_is_a_value_or_says_in_what_way_it_is_none(cell: Row) -> None:
    assert {gpu_facts.outcome(each) for each in cell["texts"]} == {cell["is"]}
    assert {gpu_facts.count(each) for each in cell["texts"]} == {cell["count"]}


def test_a_driver_is_asked_what_it_knows(fields: Row) -> None:
    asked = gpu.fields(fields["driver"])
    assert set(fields.get("has", ())) <= set(asked)
    assert not set(fields.get("lacks", ())) & set(asked)


def test_a_field_that_a_driver_does_not_know_is_asked_no_more(asked_again: Row) -> None:
    asked = gpu.fields(asked_again["driver"])
    said = Answer(2, f'Field "{asked_again["unknown"]}" is not a valid field to query.\n', "")
    assert len(gpu.known_fields(said, asked) or ()) == asked_again["left"]


def test_compute_processes_are_read_or_said_to_be_unknown(use: Row) -> None:
    found = uses.understand(Answer(status_of(use), use["text"], ""), LIMIT_S)
    if "why" in use:
        assert isinstance(found, Unreadable)
        assert found.reason == use["why"]
        return
    assert not isinstance(found, Unreadable)
    assert [[each.gpu, each.pid] for each in found] == use["uses"]
    assert [each.pid for each in found if not each.is_known] == use.get("unknown", [])
