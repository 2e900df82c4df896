"""Public cases about logs: the kernel's records, and what is told without a line of MPS's own logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import build

from mpsfleet.node import sampled
from mpsfleet.node.host import Host
from mpsfleet.node.judge import judge
from mpsfleet.node.kernel_facts import ACKNOWLEDGED, KernelLog
from mpsfleet.node.model import Gpus
from mpsfleet.node.probe import kernel_log
from mpsfleet.node.servers_facts import Client, Past, Server, Servers

if TYPE_CHECKING:
    from tests.cases.conftest import Row

BOOT, OTHER_BOOT = "6b1f5c1e-0000-4000-8000-000000000001", "6b1f5c1e-0000-4000-8000-000000000002"
SECOND = build.gpu(1)._replace(bus_id="00000000:86:00.0")
RECORDED = Path(__file__).resolve().parents[1] / "nodes" / "recorded"
ALICE = 2001


def node_with(folder: Path, row: Row) -> Host:
    text = "".join(f"{each}\n" for each in row["records"]) * row.get("times", 1)
    boot = OTHER_BOOT if row.get("other_boot") else BOOT
    files = {"dev/kmsg": text, "proc/sys/kernel/random/boot_id": f"{boot}\n"}
    if "acknowledged" in row:
        files[ACKNOWLEDGED.lstrip("/")] = f"{BOOT} {row['acknowledged']}\n"
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content, encoding="utf-8")
    for bus in ("0000:3b:00.0", "0000:86:00.0"):
        (folder / "proc/driver/nvidia/gpus" / bus).mkdir(parents=True)
    return Host.at(str(folder))


def test_records_of_the_kernel_are_read_and_judged_as_the_case_says(kmsg: Row, tmp_path: Path) -> None:
    read = kernel_log.read(node_with(tmp_path, kmsg))
    first = build.gpu(0)._replace(ecc=kmsg.get("gpu0", "0"))
    shown = (first,) if kmsg.get("gone") else (first, SECOND)
    report = judge(build.changed(gpus=Gpus(shown, "ok", rc=0), kernel=read), build.DESIRED)

    assert isinstance(read, KernelLog)
    pids = [-1 if each.pid is None else each.pid for each in read.events]
    found = [[each.bus, each.xid, pid, each.records] for each, pid in zip(read.events, pids)]
    assert found == kmsg["events"]
    assert sorted([each.code, each.subject] for each in report.findings) == sorted(kmsg["finds"])
    assert kmsg.get("says", "") in " ".join(each.message for each in report.findings)


def with_servers(**changes: Any) -> list[tuple[str, str]]:
    facts = build.changed(servers=Servers(**changes.pop("servers")), **changes)
    return [(each.code, each.message) for each in judge(facts, build.DESIRED).findings]


def test_a_crash_loop_is_told_by_audits_in_a_row(ended: Row) -> None:
    noted = None
    for number, (count, serves) in enumerate(ended["audits"]):
        sample = sampled.Sample(build.PID, 100, count, serves)
        noted = sampled.follow(noted, sample, 1000.0 + number)
    assert noted is not None
    past = Past(build.PID, tuple(2000.0 - each for each in noted.strikes))

    found = with_servers(servers={"past": (past,)})

    assert [code for code, _ in found] == ["server-crash-loop"] * ended["is_loop"]


def test_clients_are_counted_against_what_a_server_takes(clients: Row) -> None:
    row = build.gpu(0)
    gpus = Gpus((row._replace(name=clients.get("model", row.name)), build.gpu(1)), "ok", rc=0)
    served = tuple(Client(5000 + each, ALICE) for each in range(clients["count"]))
    server = Server(build.process(4600, ALICE), build.PID, 60.0, clients.get("status"), is_ready=True, clients=served)

    found = with_servers(servers={"servers": (server,)}, gpus=gpus)

    assert [code for code, _ in found] == clients["finds"]
    assert clients.get("says", "") in " ".join(message for _, message in found)


def test_no_audit_reads_a_log_of_mps() -> None:
    asked = [
        question
        for path in RECORDED.glob("*/answers.json")
        for question in json.loads(path.read_text(encoding="utf-8"))["answers"]
    ]
    assert len(asked) > 1000
    assert [each for each in asked if ".log" in each] == []
