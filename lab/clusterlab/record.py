"""The record of a lab: what `up` started, written before and after each step, so `down` finds it whatever happened."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterlab.naming import CONTROLLER
from clusterlab.processes import ProcessId, boot_id
from clusterlab.wanted import Wanted, wanted
from mpsfleet.sim.gpu.board import said

if TYPE_CHECKING:
    from pathlib import Path

    from clusterlab.naming import Lab

RECORD = "record.json"


@dataclass(frozen=True)
class Machine:
    """The processes of one node: systemd-nspawn and the node's own init, which can outlive it."""

    node: str
    nspawn: ProcessId
    init: ProcessId | None = None


@dataclass(frozen=True)
class Record:
    """One lab as `up` made it."""

    wanted: Wanted
    base: str
    mps_version: str
    mps_md5: str
    mps_sha256: str
    network: str
    """The first three numbers of its /24."""
    machines: tuple[Machine, ...] = ()
    is_ready: bool = False

    @property
    def suite(self) -> str:
        """The suite."""
        return self.wanted.suite

    @property
    def nodes(self) -> tuple[str, ...]:
        """The GPU nodes; the controller comes on top."""
        return self.wanted.nodes

    def machine(self, node: str) -> Machine | None:
        """Return the processes of that node, None if it was not started."""
        for machine in self.machines:
            if machine.node == node:
                return machine
        return None

    def address(self, node: str) -> str:
        """Return a node's address: .1 is the bridge, .2 the controller, n1 is .11."""
        return f"{self.network}.{2 if node == CONTROLLER else 10 + int(node[1:])}"

    def with_machine(self, machine: Machine) -> Record:
        """Return the record with this machine in place of what it knew of that node."""
        others = tuple(known for known in self.machines if known.node != machine.node)
        return replace(self, machines=(*others, machine))


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file under another name and rename it: a reader sees the old text or the new."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.chmod(mode)
    partial.rename(path)


def write_record(lab: Lab, record: Record) -> None:
    """Write the record of a lab whose state folder exists."""
    content = {
        "schema": 1,
        "boot": boot_id(),
        "suite": record.suite,
        "nodes": record.nodes,
        "gpus": said(record.wanted.boards),
        "sharing": record.wanted.sharing,
        "has_private_tmp": record.wanted.has_private_tmp,
        "base": record.base,
        "mps": {"version": record.mps_version, "md5": record.mps_md5, "sha256": record.mps_sha256},
        "network": record.network,
        "is_ready": record.is_ready,
        "machines": [[machine.node, machine.nspawn, machine.init] for machine in record.machines],
    }
    write_atomically(lab.state / RECORD, json.dumps(content, indent=1) + "\n")


def read_record(lab: Lab) -> Record | None:
    """Return the lab's record; None if there is none, or one of another boot or another version of this program."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        content = json.loads((lab.state / RECORD).read_text(encoding="utf-8"))
        if content["schema"] != 1 or content["boot"] != boot_id():
            return None
        return Record(
            wanted=wanted(
                len(content["nodes"]),
                content["suite"],
                content["gpus"],
                content["sharing"],
                has_private_tmp=content["has_private_tmp"],
            ),
            base=content["base"],
            mps_version=content["mps"]["version"],
            mps_md5=content["mps"]["md5"],
            mps_sha256=content["mps"]["sha256"],
            network=content.get("network", lab.networks[0]),
            is_ready=content["is_ready"],
            machines=tuple(
                Machine(node, ProcessId(*nspawn), None if init is None else ProcessId(*init))
                for node, nspawn, init in content["machines"]
            ),
        )
    return None
