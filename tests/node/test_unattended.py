"""Which daemons are reset unattended: those that the findings are about, or all where they do not tell."""

from __future__ import annotations

import pytest

from mpsfleet.codes import BEYOND_RESET, BY_NAME, MENDED_BY_RESET
from mpsfleet.node.instances import NODE, Instance, unit_of
from mpsfleet.node.model import finding
from mpsfleet.node.unattended import meant


def instance(name: str) -> Instance:
    return Instance(name, unit_of(name), (), f"/run/nvidia-mps/{name}", f"/var/log/nvidia-mps/{name}", 100.0)


@pytest.mark.parametrize(
    ("names", "subjects", "chosen"),
    [
        ((NODE,), ("daemon node",), ()),
        (("0", "1"), ("daemon gpu1",), ("1",)),
        (("0", "1"), ("pipe directory /run/nvidia-mps/0", "daemon gpu0"), ("0",)),
        (("0", "1"), ("daemon gpu0", "daemon gpu1"), ("0", "1")),
        (("0", "1"), ("daemon gpu1", "something else"), ()),
    ],
)
def test_the_daemons_that_findings_are_about(
    names: tuple[str, ...], subjects: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    ill = tuple(finding("daemon-wedged", each, "It hangs.") for each in subjects)

    assert meant(tuple(map(instance, names)), ill) == chosen


def test_what_a_reset_mends_and_what_is_beyond_it_are_two_things() -> None:
    assert {"daemon-absent", "daemon-wedged", "directory-mode"} <= MENDED_BY_RESET <= set(BY_NAME)
    assert not MENDED_BY_RESET & BEYOND_RESET
