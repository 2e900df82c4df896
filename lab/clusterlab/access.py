"""Getting into a node: commands enter its namespaces from the host, and so still work when its sshd does not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from clusterlab.commands import Completed, explained, run, stdout_of
from clusterlab.control_groups import groups_for_entering
from clusterlab.errors import LabError
from clusterlab.machine import JOIN_AND_BECOME, init_of
from clusterlab.naming import CONTROLLER
from clusterlab.processes import ProcessId, is_alive
from clusterlab.recipe import USERS
from clusterlab.record import Record, read_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from clusterlab.naming import Lab

PATH_IN_NODE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")


def running_record(lab: Lab) -> Record:
    """Return the record of a lab that is up; LabError says how to start one."""
    record = read_record(lab)
    if record is None:
        raise LabError(f"lab {lab.name} is not up: start it with `lab up N`")
    return record


def init_process(lab: Lab, node: str) -> ProcessId:
    """Return a node's own init; LabError if there is no such node or it does not run."""
    record = running_record(lab)
    if node not in (CONTROLLER, *record.nodes):
        raise LabError(f"lab {lab.name} has no node {node}: it has {CONTROLLER}, {', '.join(record.nodes)}")
    machine = record.machine(node)
    found = None if machine is None else machine.init or init_of(machine.nspawn)
    if found is None or not is_alive(found):
        raise LabError(f"node {node} does not run: `lab down`, then `lab up` again")
    return found


def enter_argv(init: ProcessId, argv: Sequence[str], user: str = "root") -> tuple[str, ...]:
    """Return the host's command that runs argv in a node as root or as one of its users, from the user's home.

    The environment is made from nothing, as a login would, and the command joins a control group of the node.
    """
    if user == "root":
        become: tuple[str, ...] = ()
        home = "/root"
    elif user in dict(USERS):
        become = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups")
        home = f"/home/{user}"
    else:
        raise LabError(f"the nodes have no user {user}: root, {', '.join(name for name, _ in USERS)}")
    return (
        "/bin/sh",
        "-c",
        JOIN_AND_BECOME,
        "sh",
        *(str(file) for file in groups_for_entering(init.pid)),
        "--",
        "nsenter",
        f"--target={init.pid}",
        *NAMESPACES,
        "--root",
        *become,
        "/usr/bin/env",
        "-i",
        f"--chdir={home}",
        f"PATH={PATH_IN_NODE}",
        f"HOME={home}",
        f"USER={user}",
        f"LOGNAME={user}",
        "SHELL=/bin/bash",
        "LANG=C.UTF-8",
        f"TERM={os.environ.get('TERM', 'dumb')}",
        *argv,
    )


def run_in_node(  # noqa: PLR0913 - where, what and how: each is a thing of its own
    lab: Lab, node: str, argv: Sequence[str], *, user: str = "root", timeout_s: float = 60.0, stdin: str = ""
) -> Completed:
    """Run argv in a node (no shell) and return its exit status and streams.

    Raises subprocess.TimeoutExpired after timeout_s seconds.
    """
    return run(enter_argv(init_process(lab, node), argv, user), timeout_s=timeout_s, stdin=stdin)


def must_in_node(  # noqa: PLR0913 - as run_in_node
    lab: Lab, node: str, argv: Sequence[str], what: str, *, user: str = "root", timeout_s: float = 60.0, stdin: str = ""
) -> str:
    """Run argv in a node and return its stdout; LabError if it fails or takes longer than timeout_s."""
    with explained(argv[0], f"{what} on {node}"):
        done = run_in_node(lab, node, argv, user=user, timeout_s=timeout_s, stdin=stdin)
        return stdout_of(done, f"{what} on {node}")


def inventory_path(lab: Lab) -> Path:
    """Return where `up` writes the lab's Ansible inventory."""
    return lab.state / "inventory.ini"


def inventory_text(lab: Lab, record: Record) -> str:
    """Return the Ansible inventory: groups slurm_master and gpu_nodes, by real ssh with the lab's own key."""
    keys = lab.state / "ssh"
    lines = ["[slurm_master]", f"{CONTROLLER} ansible_host={record.address(CONTROLLER)}", "", "[gpu_nodes]"]
    lines += [
        f"{node} ansible_host={record.address(node)} mps_gpus_expected={len(record.wanted.board(node).kinds)}"
        for node in record.nodes
    ]
    lines += [
        "",
        "[all:vars]",
        "ansible_user=root",
        f"ansible_ssh_private_key_file={keys / 'id'}",
        f"ansible_ssh_common_args='{' '.join(ssh_options(lab))}'",
        "ansible_python_interpreter=/usr/bin/python3",
    ]
    return "\n".join(lines) + "\n"


def ssh_options(lab: Lab) -> tuple[str, ...]:
    """Return the ssh options that make a connection to a node safe and unattended."""
    return (
        f"-oUserKnownHostsFile={lab.state / 'ssh' / 'known_hosts'}",
        "-oStrictHostKeyChecking=yes",
        "-oIdentitiesOnly=yes",
        "-oBatchMode=yes",
        "-oConnectTimeout=10",
    )


def ssh_config_text(lab: Lab, record: Record) -> str:
    """Return an ssh configuration file that knows the nodes by name, for ssh -F and clush."""
    lines = []
    for node in (CONTROLLER, *record.nodes):
        lines += [f"Host {node}", f"  HostName {record.address(node)}"]
    lines += ["Host *", "  User root", f"  IdentityFile {lab.state / 'ssh' / 'id'}"]
    lines += [f"  {option[2:].replace('=', ' ', 1)}" for option in ssh_options(lab)]
    return "\n".join(lines) + "\n"
