"""Recorded nodes, audited again: each comes to what was expected of it, on any machine and without root."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import recorded_node
from checker import problems

import report_schema
from mpsfleet.node.audit import look
from mpsfleet.node.recorded import replay
from mpsfleet.node.render import json as render

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = recorded_node.folders()
FEWEST = 25
LARGEST = 60_000  # bytes

of_each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@of_each
def test_a_recorded_node_is_judged_as_expected(folder: Path) -> None:
    result, _ = replay.replay(replay.read(str(folder)), look)
    report = json.loads(render.report(result))

    report_schema.require(report)
    assert recorded_node.found(report) == recorded_node.about(folder).expected


@of_each
def test_a_recorded_node_is_a_possible_one(folder: Path) -> None:
    document, report = (json.loads((folder / each).read_text()) for each in ("answers.json", "report.json"))

    assert problems(recorded_node.about(folder), document, report) == []


@of_each
def test_a_recorded_node_is_small_and_whole(folder: Path) -> None:
    sizes = {each.name: each.stat().st_size for each in folder.iterdir()}

    assert set(sizes) == {recorded_node.ABOUT, recorded_node.ANSWERS, recorded_node.REPORT}
    assert sum(sizes.values()) < LARGEST


def test_the_recorded_nodes_are_many_and_of_many_kinds() -> None:
    every = [recorded_node.about(each) for each in FOLDERS]
    rooms = {code.partition("-")[0] for node in every for code, _ in node.findings}

    assert len(every) >= FEWEST
    assert sum(node.verdict == "ok" for node in every) >= 8
    assert {"server", "client", "gpu", "daemon", "directory", "unit", "driver", "job"} <= rooms
    assert {node.mps for node in every} == {"470", "535", "550"}


def test_no_two_recorded_nodes_are_the_same() -> None:
    texts = [(each / recorded_node.ANSWERS).read_text() for each in FOLDERS]
    assert len(set(texts)) == len(texts)
