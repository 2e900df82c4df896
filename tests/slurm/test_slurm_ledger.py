"""The ledger: read as written, kept where nobody else can change it, replaced whole, and locked by one run at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.slurm.test_slurm_verdict import known

from mpsfleet.slurm import history, ledger, ledger_file
from mpsfleet.slurm.ledger import DRAINED, FOUND, UNDRAINED, Entry, Event, Ledger, LedgerError
from mpsfleet.slurm.ledger_file import LedgerAbsent, LedgerUnusable
from mpsfleet.slurm.reasons import DrainReason

if TYPE_CHECKING:
    from pathlib import Path

OURS = "mpsfleet: gpu-lost gpu2"
TIMES = st.floats(0, 4e9)
EVENTS = st.builds(
    Event, TIMES, st.sampled_from(ledger.WHATS), st.text(max_size=40), st.text(max_size=40), st.sampled_from(ledger.BYS)
)
ENTRIES = st.builds(
    Entry,
    st.integers(0, 99),
    st.integers(0, 99),
    TIMES,
    st.integers(0, 2**40),
    st.booleans(),
    st.lists(EVENTS, max_size=4).map(tuple),
)
LEDGERS = st.builds(
    Ledger, st.text(max_size=20), st.dictionaries(st.from_regex(r"n[0-9]{1,4}", fullmatch=True), ENTRIES, max_size=5)
)


@given(LEDGERS)
def test_it_is_read_as_it_was_written(kept: Ledger) -> None:
    assert ledger.from_text(ledger.to_text(kept)) == kept


def whole(**changes: Any) -> str:
    entry = {
        "failing": 1,
        "well": 0,
        "at": 1.0,
        "stamp": 0,
        "overruled": False,
        "events": [[1.0, "drained", OURS, "", "verdict"]],
        **changes,
    }
    return json.dumps({"schema": 1, "cluster": "lab", "nodes": {"n1": entry}})


BROKEN = {
    "nothing": "",
    "half": whole()[:-20],
    "deep": "[" * 100_000,
    "another schema": whole().replace('"schema": 1', '"schema": 2'),
    "a list": "[]",
    "no node's name": whole().replace('"n1"', '"n[1-4]"'),
    "every node": whole().replace('"n1"', '"ALL"'),
    "a count that is none": whole(failing="1"),
    "a count below nothing": whole(well=-1),
    "a truth for a number": whole(failing=True),
    "a time that is none": whole(at=float("nan")),
    "a time far off": whole(at=1e300),
    "an event that is none": whole(events=[["drained"]]),
    "an unknown event": whole(events=[[1.0, "rebooted", "", "", "verdict"]]),
    "one more member": whole(more=1),
    "a truth that is none": whole(overruled="no"),
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_what_is_no_ledger_is_refused_in_one_clause(text: str) -> None:
    assert ledger.from_text(whole()).entry("n1").is_drained
    with pytest.raises(LedgerError, match=r"^(it is|a |an |the entry|'?n\[1-4\]|ALL)") as refused:
        ledger.from_text(text)
    assert "\n" not in str(refused.value)


@given(st.text(max_size=200))
def test_no_text_brings_the_reader_down(text: str) -> None:
    with pytest.raises(LedgerError):
        ledger.from_text(text)


def test_it_keeps_so_many_events_of_a_node() -> None:
    entry = Entry()
    for number in range(ledger.MOST_EVENTS + 10):
        entry = entry.with_event(Event(float(number), DRAINED, OURS))
    assert [each.at for each in entry.events] == [float(each) for each in range(10, ledger.MOST_EVENTS + 10)]


def test_what_slurm_has_and_the_ledger_lacks_is_taken_over_with_its_time() -> None:
    kept = ledger.reconciled(Ledger("lab"), [known("n1", "IDLE+DRAIN", OURS), known("n2")], 100.0, {"n1": 40.0})
    assert kept.entries == {"n1": Entry(events=(Event(40.0, FOUND, OURS, by="slurm"),))}
    assert ledger.reconciled(kept, [known("n1", "IDLE+DRAIN", OURS)], 200.0, {"n1": 40.0}) == kept


# Where it lies


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "ledger"
    path.mkdir(0o700)
    return path


def saved(folder: Path, kept: Ledger) -> None:
    with ledger_file.opened((str(folder),), makes=True) as store, ledger_file.locked(store):
        ledger_file.save(store, kept)


def loaded(folder: Path, cluster: str = "lab") -> ledger_file.Loaded:
    with ledger_file.opened((str(folder),), makes=False) as store:
        return ledger_file.load(store, cluster)


KEPT = Ledger("lab", {"n1": Entry(events=(Event(1.0, DRAINED, OURS, "it is lost"),))})


def test_it_is_kept_by_this_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "mpsfleet"
    saved(folder, KEPT)

    assert loaded(folder) == (KEPT, "")
    assert [(each.name, each.stat().st_mode & 0o777) for each in sorted(folder.iterdir())] == [
        ("ledger.json", 0o600),
        ("ledger.lock", 0o600),
    ]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_first_place_that_can_be_is_used(tmp_path: Path) -> None:
    usual = ledger_file.places(None, "/var/spool/slurmctld/")
    assert usual == ("/var/spool/slurmctld/mpsfleet", "/var/lib/mpsfleet")
    assert ledger_file.places("/srv/ledger", "/var/spool/slurmctld") == ("/srv/ledger",)
    assert ledger_file.places(None, None, "/sim") == ("/sim/var/lib/mpsfleet",)
    with ledger_file.opened((str(tmp_path / "no" / "mpsfleet"), str(tmp_path / "yes")), makes=True) as store:
        assert store.path == str(tmp_path / "yes")


def test_none_yet_is_told_apart_from_one_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(LedgerAbsent), ledger_file.opened((str(tmp_path / "mpsfleet"),), makes=False):
        pass
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "mpsfleet"):
        places = (str(path),)
        with pytest.raises(LedgerUnusable, match="cannot be kept") as error, ledger_file.opened(places, makes=True):
            pass
        assert not isinstance(error.value, LedgerAbsent)


def test_a_directory_that_others_can_write_is_refused(folder: Path) -> None:
    folder.chmod(0o770)
    with pytest.raises(LedgerUnusable, match="writable by nobody else"), ledger_file.opened((str(folder),), makes=True):
        pass


def test_a_link_in_its_place_is_not_followed(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(LedgerUnusable), ledger_file.opened((str(tmp_path / "link"),), makes=True):
        pass
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", [ledger_file.NAME, ledger_file.LOCK])
def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path, folder: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    (folder / name).symlink_to(target)
    with ledger_file.opened((str(folder),), makes=True) as store:
        if name == ledger_file.LOCK:
            with pytest.raises(LedgerUnusable, match=r"ledger\.lock cannot be opened"), ledger_file.locked(store):
                pass
        else:
            found = ledger_file.load(store, "lab")
            assert found.ledger == Ledger("lab")
            assert "it is a link" in found.trouble
            ledger_file.save(store, KEPT, replaces_unread=True)
            assert ledger_file.load(store, "lab") == (KEPT, "")
    assert target.read_text() == "untouched"


def test_a_fifo_in_its_place_holds_nobody_up(folder: Path) -> None:
    os.mkfifo(folder / ledger_file.NAME)
    assert "not a regular file" in loaded(folder).trouble


@pytest.mark.parametrize("text", ["", "{", "\x00" * 100])
def test_one_that_cannot_be_read_is_kept_aside(folder: Path, text: str) -> None:
    (folder / ledger_file.NAME).write_text(text)
    found = loaded(folder)
    assert found.ledger == Ledger("lab")
    assert "ledger.json is not used: it is not JSON" in found.trouble
    with ledger_file.opened((str(folder),), makes=True) as store:
        ledger_file.save(store, KEPT, replaces_unread=True)
    assert (folder / "ledger.json.unread").read_text() == text
    assert loaded(folder) == (KEPT, "")


def test_another_clusters_ledger_is_not_taken_for_ours(folder: Path) -> None:
    saved(folder, KEPT)
    with pytest.raises(LedgerUnusable, match="is of cluster lab and not other"):
        loaded(folder, "other")


def test_a_run_that_is_killed_while_it_writes_leaves_the_old_ledger(folder: Path) -> None:
    saved(folder, KEPT)
    (folder / ".ledger.json.0123456789abcdef").write_text("half")
    assert loaded(folder) == (KEPT, "")


HOLDS = """
import sys, time
from mpsfleet.slurm import ledger_file
with ledger_file.opened((sys.argv[1],), makes=True) as store, ledger_file.locked(store):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_run_waits_and_then_says_who_is_in_its_way(folder: Path) -> None:
    command = (sys.executable, "-c", HOLDS, str(folder))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with ledger_file.opened((str(folder),), makes=True) as store:
            told = r"Another run has held .*ledger\.lock for 0.2 s"
            with pytest.raises(LedgerUnusable, match=told), ledger_file.locked(store, 0.2):
                pass
            other.kill()  # a lock ends with its holder, however that ends
            with ledger_file.locked(store, 5):
                pass


# What it says


def test_a_history_is_told_in_order() -> None:
    at = time.mktime((2026, 12, 7, 10, 0, 0, 0, 0, -1))
    reason = DrainReason("gpu-lost", 2)
    kept = ledger.noted(Ledger("lab"), "n1", DRAINED, reason, (at, "GPU 2 is lost", "verdict"))
    kept = ledger.noted(kept, "n1", UNDRAINED, reason, (at + 600, "", "command"))
    assert history.text(kept, (), at + 700) == [
        "n1: 1 drain in the last 7 days",
        f"  2026-12-07 10:00:00  drained ({OURS}): GPU 2 is lost",
        f"  2026-12-07 10:10:00  given back ({OURS}), by command",
    ]
    assert history.text(kept, ("n2",), at) == ["n2: nothing is known of it"]
    assert history.text(Ledger("lab"), (), at) == ["nothing was drained yet"]


def test_a_history_shows_no_control_characters() -> None:
    hostile = "\x1b[31mred\u202e\nmore"
    kept = Ledger("lab", {"n1": Entry(events=(Event(1.0, ledger.RELEASED, hostile, hostile),))})
    assert all(each.isprintable() for each in history.text(kept, (), 2.0))
    assert json.dumps(history.as_json(kept, (), 2.0), ensure_ascii=False).isprintable()
