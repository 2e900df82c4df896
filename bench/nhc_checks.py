"""LBNL NHC beside our audit: the same questions about MPS on the same node, in NHC's own checks.

NHC is run from a folder given on the command line, with its driver `nhc` and its `scripts`; nothing of it is kept here.

| what is asked | our audit | NHC |
| --- | --- | --- |
| a control daemon of root's runs | each directory's own, by /proc | any, `check_ps_service -u root` |
| pipe and log directory: owner, group, mode | and those above them | `check_file_stat -u 0 -g 0 -p 0755` |
| both sockets are there | and who listens on them | `check_file_test -S` |
| the daemon answers, its percentage is the configured one | and servers, priority | `check_cmd_output -m 100.0` |
| the units are active | and enabled, and theirs are the daemons | `check_cmd_status systemctl is-active` |
| nvidia-smi is well | and each GPU in it | `check_nvsmi_healthmon` |
| room on the log's file system | each directory's | `check_fs_free` |

NHC has no check for: whose socket it is, one daemon among several that is missing, silent or busy told apart, what a
daemon was started with, a user's own way to the socket, servers and clients, who else runs a daemon, whether the files
of the deployment are the configured ones. The kernel log is read by neither here: a simulated node has none.

What is left out on NHC's side makes it faster: it writes nothing to syslog, marks no node, and starts as a session
leader, which saves it a second start of itself. It has its watchdog, for whose end it waits: without one its commands
would have no limit of time.
"""

# ruff: noqa: INP001  beside scripts, not a package
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from simulated_node import CONTROL, SMI, SYSTEMCTL, BenchError, Node

if TYPE_CHECKING:
    from pathlib import Path


class Nhc(NamedTuple):
    """How to run NHC on a node, and with what environment."""

    command: list[str]
    environment: dict[str, str]


def prepared(checkout: Path, node: Node, folder: Path) -> Nhc:
    """Write a configuration with the checks of the table. BenchError where the folder holds no NHC."""
    driver, scripts = checkout / "nhc", checkout / "scripts"
    if not driver.is_file() or not (scripts / "common.nhc").is_file():
        message = f"{checkout} holds no NHC: it has no `nhc` and `scripts/common.nhc`"
        raise BenchError(message)
    folder.mkdir()
    (folder / "run").mkdir()
    configuration = folder / "nhc.conf"
    configuration.write_text("".join(f"* || {each}\n" for each in _checks(node, 2)))
    words = ["-c", str(configuration), "-l", "-", "-r", "none", "-t", "30", "SYSLOG_CMD=:"]
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "SHELL": "/bin/bash",
        "LC_ALL": "C",
        "NHC_CFG_INCDIR": str(scripts),
        "NHC_CFG_RUNDIR": str(folder / "run"),
        "NVIDIA_SMI_HEALTHMON": str(node.tool(SMI)),
    }
    return Nhc(["/bin/bash", str(driver), *words], environment)


def _checks(node: Node, limit_s: int) -> list[str]:
    checks = [f"check_ps_service -u root -d {CONTROL} {CONTROL}"]
    for name in node.names:
        pipe, log = node.pipe(name), node.log(name)
        ask = f"/usr/bin/env CUDA_MPS_PIPE_DIRECTORY={pipe} {node.tool(CONTROL)}"
        checks += [
            f"check_file_stat -u 0 -g 0 -p 0755 {pipe} {log}",
            f"check_file_test -S {pipe}/control {pipe}/control_privileged",
            f"check_cmd_output -t {limit_s} -m '100.0' {ask}",
        ]
    checks += [
        f"check_cmd_status -t {limit_s} {node.tool(SYSTEMCTL)} is-active {' '.join(node.units)}",
        "check_nvsmi_healthmon",
        "check_fs_free / 1%",
    ]
    return checks
