"""The cluster's start: from nothing to all nodes idle in Slurm."""

from __future__ import annotations

import socket
import subprocess
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterlab import layers
from clusterlab.access import inventory_path, inventory_text, run_in_node, ssh_config_text
from clusterlab.base_tree import ensure_base_tree
from clusterlab.errors import LabError
from clusterlab.host_packages import ensure_host_packages
from clusterlab.host_settings import raise_settings
from clusterlab.locks import locked
from clusterlab.machine import boot, console_tail, init_of, mount_root
from clusterlab.mps_package import ensure_mps_package
from clusterlab.naming import CACHE, CONTROLLER, Lab
from clusterlab.network import make_bridge
from clusterlab.processes import is_alive
from clusterlab.record import Machine, Record, read_record, write_atomically, write_record
from clusterlab.suites import suite_called
from clusterlab.teardown import is_anything_left, take_down
from clusterlab.terminal import say
from mpsfleet.sim.gpu.board import Board

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clusterlab.mps_package import MpsPackage
    from clusterlab.wanted import Wanted


def up(lab: Lab, wanted: Wanted, *, timeout_s: float = 90.0) -> Record:
    """Start a lab and return its record once every node is idle in Slurm and answers ssh.

    A lab that is up and is what is wanted is left as it is. Left-overs of a killed `up` are taken down first. Whatever
    fails or interrupts the start, what was started is taken down again. timeout_s counts from the first boot on;
    building the cache has limits of its own.
    Raises LabError, among others when a different lab is up, and LabUnavailableError where no lab can be.
    """
    ensure_host_packages()
    with locked(lab.lock, f"starting or stopping lab {lab.name}", wait_s=120):
        record = read_record(lab)
        if record is not None and record.is_ready and all_alive(record):
            return _same_or_error(lab, record, wanted)
        if is_anything_left(lab):
            say("taking down what an earlier start left behind")
            take_down(lab)
        with locked(CACHE / "lock", "building the lab's base tree", wait_s=900):
            base = ensure_base_tree(wanted.suite)
            package = ensure_mps_package(wanted.suite)
        began = time.monotonic()
        try:
            record = _start(lab, wanted, base, package)
            record = _wait_ready(lab, record, deadline=began + timeout_s)
        except BaseException:
            say("the start did not succeed: taking down what was started")
            take_down(lab)
            raise
    say(f"{len(wanted.nodes)} nodes and {CONTROLLER} are up, all idle in Slurm, after {time.monotonic() - began:.1f} s")
    return record


def all_alive(record: Record) -> bool:
    """Whether every machine's nspawn and init run."""
    machines = record.machines
    return len(machines) == len(record.nodes) + 1 and all(
        machine.init is not None and is_alive(machine.nspawn) and is_alive(machine.init) for machine in machines
    )


def _same_or_error(lab: Lab, record: Record, wanted: Wanted) -> Record:
    if record.wanted == wanted:
        say(f"lab {lab.name} is already up as wanted")
        return record
    raise LabError(f"lab {lab.name} is up with {record.wanted}: `lab down` first, or choose another MPSFLEET_LAB_NAME")


def _start(lab: Lab, wanted: Wanted, base: Path, package: MpsPackage) -> Record:
    """Make the lab's files, network and mounts, and boot all machines; each step is on record before it is done."""
    suite = suite_called(wanted.suite)
    lab.state.parent.mkdir(mode=0o755, exist_ok=True)
    lab.state.mkdir(mode=0o700)
    network = make_bridge(lab)
    record = Record(
        wanted=wanted,
        base=str(base),
        mps_version=package.version,
        mps_md5=package.md5,
        mps_sha256=package.sha256,
        network=network,
    )
    write_record(lab, record)
    raise_settings(lab, len(wanted.nodes))
    layers.make_keys(lab, network)
    layers.make_homes(lab)
    common = layers.make_lab_layer(lab, record)
    write_atomically(inventory_path(lab), inventory_text(lab, record))
    write_atomically(lab.state / "ssh" / "config", ssh_config_text(lab, record))
    for node in (CONTROLLER, *wanted.nodes):
        board = Board(()) if node == CONTROLLER else wanted.board(node)
        layers.make_node_layer(lab, record, node, board, package.driver_version)
        has_mps = node == CONTROLLER or board.kinds
        mount_root(lab, node, (common, *((package.layer,) if has_mps else ()), base))
        nspawn = boot(lab, node, suite, board, is_on_one_cpu=wanted.has_private_tmp)
        record = record.with_machine(Machine(node, nspawn))
        write_record(lab, record)
    return record


def _wait_ready(lab: Lab, record: Record, *, deadline: float) -> Record:
    """Wait for every node's init, for Slurm to call all nodes idle, and for ssh on every node."""
    record = _with_inits(lab, record, deadline)
    _wait(lambda: _first_not_idle(lab, record), "Slurm:", deadline)
    _wait(lambda: _first_without_ssh(record), "ssh on", deadline)
    record = replace(record, is_ready=True)
    write_record(lab, record)
    return record


def wait_until_booted(lab: Lab, record: Record, *, deadline: float) -> None:
    """Wait for every node's init, which goes on record, and for ssh on every node."""
    record = _with_inits(lab, record, deadline)
    _wait(lambda: _first_without_ssh(record), "ssh on", deadline)


def _with_inits(lab: Lab, record: Record, deadline: float) -> Record:
    _wait(lambda: _first_without_init(lab, record), "the boot of", deadline)
    for machine in record.machines:
        record = record.with_machine(replace(machine, init=init_of(machine.nspawn)))
    write_record(lab, record)
    return record


def _wait(missing: Callable[[], str | None], what: str, deadline: float) -> None:
    while True:
        lacking = missing()
        if lacking is None:
            return
        if time.monotonic() >= deadline:
            raise LabError(f"waited too long for {what} {lacking}")
        time.sleep(0.1)


def _first_without_init(lab: Lab, record: Record) -> str | None:
    for machine in record.machines:
        if not is_alive(machine.nspawn):
            raise LabError(f"{machine.node} ended while booting: {console_tail(lab, machine.node) or 'no output'}")
        if init_of(machine.nspawn) is None:
            return machine.node
    return None


def _first_not_idle(lab: Lab, record: Record) -> str | None:
    """Return what Slurm says of the nodes, None when all are idle."""
    try:
        done = run_in_node(lab, CONTROLLER, ("sinfo", "--noheader", "--format=%t %D"), timeout_s=10)
    except subprocess.TimeoutExpired:
        return "slurmctld does not answer"
    states = done.stdout.split("\n")
    if done.returncode == 0 and f"idle {len(record.nodes)}" in states:
        return None
    for machine in record.machines:
        if not is_alive(machine.nspawn):
            raise LabError(f"{machine.node} ended: {console_tail(lab, machine.node) or 'no output'}")
    return ", ".join(line for line in states if line) or done.stderr.strip() or "no answer"


def _first_without_ssh(record: Record) -> str | None:
    for node in (CONTROLLER, *record.nodes):
        try:
            with socket.create_connection((record.address(node), 22), timeout=2) as connection:
                if not connection.recv(4).startswith(b"SSH-"):
                    return node
        except OSError:
            return node
    return None
