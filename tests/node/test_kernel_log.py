"""The kernel log's fatal events: only what begins a record of the kernel's counts, as far as nvidia-smi confirms it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from build import DESIRED, changed, gpu
from hypothesis import given, settings
from hypothesis import strategies as st

from mpsfleet.errors import Refused
from mpsfleet.node.acknowledge import acknowledge
from mpsfleet.node.cards import Card
from mpsfleet.node.host import Host, files
from mpsfleet.node.judge import judge
from mpsfleet.node.kernel_facts import ACKNOWLEDGED, MEANINGS, Event, KernelLog, is_fatal
from mpsfleet.node.model import Gpus, Unreadable
from mpsfleet.node.probe import kernel_log

if TYPE_CHECKING:
    from pathlib import Path

    from mpsfleet.node.model import Facts

BOOT = "6b1f5c1e-0000-4000-8000-000000000001"
BUS, OTHER, FOREIGN = "0000:3b:00", "0000:86:00", "0000:c1:00"
XID = (
    b"3,%d,99,-;NVRM: Xid (PCI:%s): %d, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n SUBSYSTEM=pci\n"
)
SECOND = gpu(1)._replace(bus_id="00000000:86:00.0")
SOUND = Gpus((gpu(0), SECOND), "ok", rc=0)
LOST = Gpus((gpu(0), SECOND._replace(bus_id="[GPU is lost]", name="[GPU is lost]")), "ok", rc=15)
CARDS = tuple(Card(int(each.number), each.uuid, int(each.number), bus, each.name, instance="node") for each, bus in
              ((gpu(0), "00000000:3B:00.0"), (gpu(1), "00000000:86:00.0")))  # fmt: skip
FELL = Event(OTHER, 79, 7, None, "NVRM: Xid (PCI:0000:86:00): 79, ...")


def record(sequence: int, xid: int = 79, bus: str = BUS) -> bytes:
    return XID % (sequence, bus.encode(), xid)


def node(folder: Path, *records: bytes, boot: str = BOOT) -> Host:
    for path, data in (("dev/kmsg", b"".join(records)), ("proc/sys/kernel/random/boot_id", f"{boot}\n".encode())):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    (folder / "proc/driver/nvidia/gpus/0000:3b:00.0").mkdir(parents=True, exist_ok=True)
    return Host.at(str(folder))


def read(host: Host) -> KernelLog:
    found = kernel_log.read(host)
    assert isinstance(found, KernelLog)
    return found


def log(*events: Event, **more: Any) -> KernelLog:
    return KernelLog(events, 9, BOOT, complete=more.pop("complete", True), **more)


def test_a_fatal_xid_is_read_with_its_gpu_and_the_gpus_of_the_driver(tmp_path: Path) -> None:
    found = read(node(tmp_path, b"6,1,2,-;NVRM: loading\n", record(2), record(3)))

    (event,) = found.events
    assert (event.bus, event.xid, event.sequence, event.pid, event.records) == (BUS, 79, 3, None, 2)
    assert (found.last, found.boot, found.complete, found.buses) == (3, BOOT, True, (BUS,))


@pytest.mark.parametrize("xid", [8, 13, 31, 43, 45, 63, 68, 69, 92, 94, 109])
def test_what_an_application_brings_about_is_no_fatal_event(tmp_path: Path, xid: int) -> None:
    assert read(node(tmp_path, record(2, xid))).events == ()


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x1)", True),
        ("145, RLW_RXPIPE Nonfatal XC0 i0 Link 00 (0x1)", False),
        ("154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", True),
        ("154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)", False),
        ("154, ", False),
    ],
)
def test_what_the_text_says_decides_for_links_and_recovery_actions(text: str, is_one: bool) -> None:  # noqa: FBT001  # drawn
    event = kernel_log.parse(f"3,2,99,-;NVRM: Xid (PCI:{BUS}): {text}\n".encode())

    assert event is not None
    assert is_fatal(event) is is_one


@pytest.mark.parametrize(
    ("words", "pid"),
    [("pid=1234, name=python3", 1234), ("pid='77', x", 77), ("pid='<unknown>', x", None), ("Channel ID 0", None)],
)
def test_the_process_is_read_where_one_is_named(words: str, pid: int | None) -> None:
    event = kernel_log.parse(f"4,2,99,-;NVRM: Xid (PCI:{BUS}): 48, {words}\n".encode())

    assert event is not None
    assert event.pid == pid


FORGED = {
    "another facility": b"11,2,99,-;NVRM: Xid (PCI:0000:3b:00): 79, x\n",
    "the user's facility": b"12,2,99,-;NVRM: Xid (PCI:0000:3b:00): 79, x\n",
    "not at the start": b"3,2,99,-;fs: option 'NVRM: Xid (PCI:0000:3b:00): 79, x'\n",
    "behind an escaped newline": b"3,2,99,-;fs: option\\x0aNVRM: Xid (PCI:0000:3b:00): 79, x\n",
    "on a further line": b"3,2,99,-;fs: option\n3,3,99,-;NVRM: Xid (PCI:0000:3b:00): 79, x\n",
    "a fragment": b"3,2,99,c;NVRM: Xid (PCI:0000:3b:00): 79, x\n",
    "no bus id": b"3,2,99,-;NVRM: Xid (PCI:): 79, x\n",
    "no number": b"3,2,99,-;NVRM: Xid (PCI:0000:3b:00): x, 79\n",
    "other digits": "3,2,99,-;NVRM: Xid (PCI:0000:3b:00): ٧٩, x\n".encode(),
    "a name before it": b"3,2,99,-;NVRM: Xid (PCI[12]: segfault at 79\n",
    "another driver's words": b"6,2,99,-;mlx5_core 0000:3b:00.0: Link ACTIVE after Xid 79\n",
}


@pytest.mark.parametrize("raw", FORGED.values(), ids=FORGED.keys())
def test_what_does_not_begin_a_record_of_the_kernels_is_none(raw: bytes) -> None:
    assert kernel_log.parse(raw) is None


def test_the_module_of_unified_memory_may_fail_for_all_gpus(tmp_path: Path) -> None:
    text = b"uvm encountered global fatal error 0x60, requiring os reboot to recover.\n"
    host = node(tmp_path, b"3,4,9,-;NVRM: nvGpuOpsReportFatalError: " + text, b"3,5,9,-;NVRM: " + text)

    (event,) = read(host).events

    assert (event.bus, event.xid, event.records) == ("", 0, 2)


def test_a_log_that_is_not_there_is_none_and_one_that_cannot_be_read_is_not_empty(tmp_path: Path) -> None:
    host = Host.at(str(tmp_path))
    assert kernel_log.read(host) is None
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").symlink_to("/dev/null")
    assert isinstance(kernel_log.read(host), Unreadable)


def test_a_log_that_grows_faster_than_it_is_read_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_log, "_LIMIT_S", -1.0)

    assert read(node(tmp_path, record(2))).complete is False


def test_a_fifo_is_read_to_what_it_holds_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    reader = os.open(tmp_path / "kmsg", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(tmp_path / "kmsg", os.O_WRONLY)
    os.write(writer, record(2) + record(3))
    os.close(reader)
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.extend(files.records(str(tmp_path / "kmsg"), 1.0)), daemon=True)
    thread.start()
    thread.join(5.0)
    os.close(writer)
    assert not thread.is_alive()
    assert [kernel_log.parse(each) is not None for each in found] == [True, True]


def test_what_was_acknowledged_is_told_no_more_and_what_comes_later_is(tmp_path: Path) -> None:
    host = node(tmp_path, record(2))
    tried = acknowledge(host, DESIRED, dry_run=True)
    assert [str(each.what) for each in tried.changes] == [f"Xid 79 ({MEANINGS[79]}) of the GPU at {BUS}"]
    assert not (tmp_path / ACKNOWLEDGED[1:]).exists()

    done = acknowledge(host, DESIRED, dry_run=False)

    assert len(done.changes) == 1
    assert (tmp_path / ACKNOWLEDGED[1:]).read_text() == f"{BOOT} 2\n"
    assert (tmp_path / ACKNOWLEDGED[1:]).stat().st_mode & 0o777 == 0o600
    assert read(host).events == ()
    assert acknowledge(host, DESIRED, dry_run=False).changes == ()
    later = read(node(tmp_path, record(2), record(5)))
    assert [each.sequence for each in later.events] == [5]


@pytest.mark.parametrize("text", ["", "x", f"{BOOT}", f"{BOOT} x", "other 99", f"{BOOT} 99 99", f"{BOOT} -99"])
def test_a_note_of_another_boot_or_of_nonsense_acknowledges_nothing(tmp_path: Path, text: str) -> None:
    host = node(tmp_path, record(2))
    (tmp_path / "run/mpsfleet").mkdir(parents=True)
    (tmp_path / ACKNOWLEDGED[1:]).write_text(text)

    assert len(read(host).events) == 1


def test_without_a_boots_name_nothing_is_acknowledged(tmp_path: Path) -> None:
    host = node(tmp_path, record(2), boot="")

    with pytest.raises(Refused):
        acknowledge(host, DESIRED, dry_run=False)


CASES: list[tuple[str, dict[str, Any], list[tuple[str, str, str, str]], str]] = [
    ("no kernel log", {"kernel": None}, [], ""),
    ("nothing fatal", {"kernel": log()}, [], ""),
    (
        "not readable",
        {"kernel": Unreadable("no")},
        [("probe-failed", "unknown", "node", "kernel log")],
        "whether the driver logged a fatal error is not known: no",
    ),
    (
        "not to its end",
        {"kernel": log(complete=False)},
        [("probe-failed", "unknown", "node", "kernel log")],
        "was not read to its end",
    ),
    (
        "an Xid and a sound GPU",
        {"kernel": log(FELL)},
        [("gpu-xid-logged", "warn", "either", "gpu1")],
        "Xid 79 (the GPU has fallen off the bus) of GPU 1, which nvidia-smi shows as well; when it is seen to",
    ),
    (
        "an Xid and its GPU is lost",
        {"kernel": log(FELL), "gpus": LOST, "cards": CARDS},
        [("gpu-lost", "critical", "node", "gpu1"), ("gpu-xid", "critical", "node", "gpu1")],
        "",
    ),
    (
        "an Xid and its GPU is gone from nvidia-smi, as the driver knows it",
        {"kernel": log(FELL, buses=(OTHER,)), "gpus": Gpus((gpu(0),), "ok"), "cards": None},
        [("gpu-missing", "critical", "node", "GPUs"), ("gpu-xid", "critical", "node", f"GPU {OTHER}")],
        "",
    ),
    (
        "an Xid and the record knows the GPU that is gone",
        {"kernel": log(FELL), "gpus": Gpus((gpu(0),), "ok"), "cards": CARDS},
        [
            ("gpu-missing", "critical", "node", "GPUs"),
            ("gpu-xid", "critical", "node", "gpu1"),
            ("gpu-changed", "warn", "node", "gpu1"),
        ],
        "",
    ),
    (
        "an Xid and nvidia-smi hangs in the driver",
        {"kernel": log(FELL), "gpus": Gpus((), "timeout", "late", state="D"), "cards": CARDS},
        [("nvidia-smi-wedged", "critical", "node", "GPUs"), ("gpu-xid", "critical", "node", "gpu1")],
        "",
    ),
    (
        "an Xid and nvidia-smi is slow: a user can bring that about",
        {"kernel": log(FELL), "gpus": Gpus((), "timeout", "late", state="S"), "cards": CARDS},
        [("nvidia-smi-slow", "unknown", "either", "GPUs"), ("gpu-xid-logged", "warn", "either", "gpu1")],
        "",
    ),
    (
        "an Xid with errors of memory that the driver has contained",
        {
            "kernel": log(FELL._replace(xid=48)),
            "gpus": Gpus((gpu(0), SECOND._replace(ecc="2", recovery="None")), "ok"),
        },
        [("gpu-ecc-contained", "warn", "node", "gpu1"), ("gpu-xid-logged", "warn", "either", "gpu1")],
        "",
    ),
    (
        "an Xid of no GPU of this node",
        {"kernel": log(FELL._replace(bus=FOREIGN), buses=(BUS, OTHER)), "cards": CARDS},
        [("gpu-xid-logged", "warn", "either", f"GPU {FOREIGN}")],
        f"of the GPU at {FOREIGN}, of which nvidia-smi tells nothing",
    ),
    (
        "two Xids of one GPU are one finding",
        {"kernel": log(FELL, FELL._replace(xid=119, sequence=8))},
        [("gpu-xid-logged", "warn", "either", "gpu1")],
        "Xid 79 (the GPU has fallen off the bus), Xid 119 (",
    ),
    (
        "the module of unified memory",
        {"kernel": log(Event("", 0, 3, None, "NVRM: uvm"))},
        [("gpu-xid-logged", "warn", "either", "GPUs")],
        "the driver's unified memory (a reboot is asked for) of all GPUs",
    ),
]


@pytest.mark.parametrize(
    ("changes", "expected", "sentence"), [each[1:] for each in CASES], ids=[each[0] for each in CASES]
)
def test_an_event_is_a_fault_only_as_far_as_nvidia_smi_confirms_it(
    changes: dict[str, Any], expected: list[tuple[str, str, str, str]], sentence: str
) -> None:
    report = judge(facts(**changes), DESIRED)

    assert [(each.code, each.severity, each.origin, each.subject) for each in report.findings] == expected
    assert not sentence or sentence in report.findings[0].message


def facts(**changes: Any) -> Facts:
    return changed(**{"gpus": SOUND, "cards": None, **changes})


PIECES = st.sampled_from(
    [b"NVRM: Xid (PCI:", b"0000:3b:00", b"0000:c1:00", b"): ", b"79", b", ", b"3,2,99,-;", b"11,2,99,-;", b"\n", b" "]
)
RECORDS = st.lists(st.one_of(PIECES, st.binary(max_size=20)), max_size=12).map(b"".join)


@settings(max_examples=200, deadline=None)
@given(RECORDS)
def test_no_bytes_break_the_parser_and_no_record_alone_is_more_than_a_hint(raw: bytes) -> None:
    event = kernel_log.parse(raw)

    if event is None or not is_fatal(event):
        return
    assert int(raw.partition(b",")[0]) < 8
    assert raw.partition(b";")[2].startswith(b"NVRM: ")
    report = judge(facts(kernel=log(event, buses=(BUS, OTHER))), DESIRED)
    assert [each.severity for each in report.findings] == ["warn"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(list(FORGED.values())), max_size=6), st.integers(0, 3))
def test_forged_records_change_no_verdict(forged: list[bytes], place: int) -> None:
    found = [event for each in forged if (event := kernel_log.parse(each)) is not None]
    assert found == []
    mixed = [kernel_log.parse(each) for each in (*forged[:place], record(50), *forged[place:])]
    assert len(mixed) - mixed.count(None) == 1
