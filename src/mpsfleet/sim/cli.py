"""`mpsfleet sim …`: a simulated fleet for rehearsals, up and down, broken and mended."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from mpsfleet.errors import UsageError
from mpsfleet.sim.remembered import memory

if TYPE_CHECKING:
    from types import FrameType

    from mpsfleet.sim.fleet import Fleet

_MOST = 256
_ABOUT = """\
A simulated fleet on this machine, without root, GPU or Slurm: nodes n1 to nN and the controller ctl, each a directory
with simulated tools of NVIDIA, systemd and Slurm, and real processes. For rehearsals and for CI. MPSFLEET_SIM_NAME
selects one of several fleets."""
_HINTS = """\
What to do with it:
  ansible-playbook -i {inventory} mpsfleet.mps.deploy_mps
  mpsfleet sim exec n1 mpsfleet node audit
  mpsfleet sim exec ctl mpsfleet slurm nodes
  mpsfleet sim faults
  mpsfleet sim break n1 gpu-lost
  mpsfleet sim down
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; see `{self.prog} --help`")


def main(argv: list[str]) -> int:
    """Run one verb and return its exit code; a request to end is an interrupt, so that `up` cleans up after itself."""
    words = _parser().parse_args(argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    os.umask(0o022)
    return int(words.carry_out(words))


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _parser() -> _Parser:
    parser = _Parser(prog="mpsfleet sim", description=_ABOUT)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("up", help="start a fleet of N nodes")
    verb.add_argument("nodes", type=int, metavar="N")
    verb.add_argument("--version", default="535", help="the driver that is simulated: 470, 535 (default) or 550")
    verb.add_argument(
        "--gpus",
        default="4",
        metavar="SPEC",
        help="GPUs: a number for every node (4), or an entry per node, such as a100:4,a100:2+t4:2,a100:1,0",
    )
    verb.add_argument("--dir", help="a directory that is not there yet, with a short path (a fresh one in /tmp)")
    verb.add_argument("--terse", action="store_true", help="without the hints what to do with it")
    verb.set_defaults(carry_out=_up)

    verb = verbs.add_parser("down", help="end all its processes and remove it")
    verb.set_defaults(carry_out=_down)

    verb = verbs.add_parser("break", help="bring a fault about on a node")
    verb.add_argument("node", metavar="NODE")
    verb.add_argument("fault", metavar="FAULT")
    verb.add_argument("--gpu", type=int, default=0, help="the GPU, where the fault is one of a GPU (0)")
    verb.set_defaults(carry_out=_break)

    verb = verbs.add_parser("mend", help="undo what a reset cannot: GPUs, foreign processes, the parent's mode, Slurm")
    verb.add_argument("node", metavar="NODE")
    verb.set_defaults(carry_out=_mend)

    verb = verbs.add_parser("faults", help="list what can be broken")
    verb.set_defaults(carry_out=_faults)

    verb = verbs.add_parser("status", help="say what is up")
    verb.set_defaults(carry_out=_status)

    verb = verbs.add_parser("inventory", help="print the Ansible inventory, or with --path where it is")
    verb.add_argument("--path", action="store_true")
    verb.set_defaults(carry_out=_inventory)

    verb = verbs.add_parser("exec", help="run a command with the tools of a node, passing its exit code on")
    verb.add_argument("--user", default="root", help="root, alice or bob, as far as the simulated tools are asked")
    verb.add_argument("node", metavar="NODE")
    verb.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND")
    verb.set_defaults(carry_out=_exec)
    return parser


def _running() -> Fleet:
    from mpsfleet.sim.fleet import running

    return running(memory(os.environ))


def _up(words: argparse.Namespace) -> int:
    from mpsfleet.sim import fleet, inventory
    from mpsfleet.sim.gpu import board
    from mpsfleet.slurm.hostlist import compact

    if not 1 <= words.nodes <= _MOST:
        raise UsageError(f"mpsfleet sim up: N is 1 to {_MOST}, not {words.nodes}")
    if words.version not in fleet.VERSIONS:
        raise UsageError(f"mpsfleet sim up: --version is one of {', '.join(fleet.VERSIONS)}, not {words.version}")
    boards = board.boards(words.gpus, words.nodes)
    start = time.monotonic()
    made = fleet.up(memory(os.environ), fleet.Wanted(boards, words.version, words.dir))
    sys.stdout.write(
        f"{compact(made.nodes)} and ctl are up in {made.folder} after {time.monotonic() - start:.2f} s: "
        f"simulated GPUs {board.said(made.boards)}, driver {made.version}.\n"
    )
    if not words.terse:
        sys.stdout.write(_HINTS.format(inventory=inventory.path(made.folder)))
    return 0


def _down(_words: argparse.Namespace) -> int:
    from mpsfleet.sim import fleet

    folder = fleet.down(memory(os.environ))
    sys.stdout.write(f"{folder} is down.\n" if folder else "No simulated fleet was up.\n")
    return 0


def _break(words: argparse.Namespace) -> int:
    from mpsfleet.sim import faults

    sys.stdout.write(f"{faults.break_node(_running(), words.node, words.fault, words.gpu)}\n")
    return 0


def _mend(words: argparse.Namespace) -> int:
    from mpsfleet.sim import mending

    sys.stdout.write("".join(f"{words.node}: {line}\n" for line in mending.mend(_running().place(words.node))))
    return 0


def _faults(_words: argparse.Namespace) -> int:
    from mpsfleet.sim import faults

    sys.stdout.write("".join(f"{line}\n" for line in faults.lines()))
    return 0


def _status(_words: argparse.Namespace) -> int:
    from mpsfleet.sim import status

    sys.stdout.write("".join(f"{line}\n" for line in status.lines(_running())))
    return 0


def _inventory(words: argparse.Namespace) -> int:
    from mpsfleet.sim import inventory

    made = _running()
    path = inventory.path(made.folder)
    sys.stdout.write(f"{path}\n" if words.path else inventory.text(made))
    return 0


def _exec(words: argparse.Namespace) -> int:
    from mpsfleet.sim import enter

    return enter.become(_running().place(words.node), words.argv, words.user)
