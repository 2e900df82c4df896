"""The command line: verbs to the rooms that do them."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from clusterlab.errors import LabError
from clusterlab.naming import current
from clusterlab.suites import DEFAULT_SUITE, SUITES
from clusterlab.wanted import DEFAULT_GPUS, DEFAULT_SHARING, SHARINGS, wanted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType


def main(arguments: Sequence[str]) -> int:
    """Carry out one command and return its exit status; a failure is one sentence on stderr."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        return int(options.carry_out(options))
    except LabError as error:
        sys.stderr.write(f"lab: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("lab: interrupted\n")
        return 130


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Turn a request to end into the exception that Ctrl-C raises, so that `up` cleans up after itself."""
    raise KeyboardInterrupt


def _up(options: argparse.Namespace) -> int:
    from clusterlab.cluster import up

    asked = wanted(options.nodes, options.suite, options.gpus, options.sharing, has_private_tmp=options.has_private_tmp)
    up(current(), asked)
    return 0


def _down(_options: argparse.Namespace) -> int:
    from clusterlab.teardown import down

    down(current())
    return 0


def _exec(options: argparse.Namespace) -> int:
    from clusterlab.access import enter_argv, init_process

    init = init_process(current(), options.node)
    argv = enter_argv(init, options.argv or ["/bin/bash"], options.user)
    os.execv(argv[0], argv)  # noqa: S606 - no shell is wanted: the exit status is the command's own


def _inventory(options: argparse.Namespace) -> int:
    from clusterlab.access import inventory_path, inventory_text, running_record

    lab = current()
    record = running_record(lab)
    sys.stdout.write(f"{inventory_path(lab)}\n" if options.path else inventory_text(lab, record))
    return 0


def _status(_options: argparse.Namespace) -> int:
    from clusterlab.status import status_lines

    lines, is_well = status_lines(current())
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0 if is_well else 1


def _break(options: argparse.Namespace) -> int:
    from clusterlab.faults import break_node

    sys.stdout.write(f"{break_node(current(), options.node, options.fault, options.pipe_directory, options.gpu)}\n")
    return 0


def _mend(options: argparse.Namespace) -> int:
    from clusterlab.mending import mend_node

    sys.stdout.write("".join(f"{line}\n" for line in mend_node(current(), options.node)))
    return 0


def _reboot(options: argparse.Namespace) -> int:
    from clusterlab.rebooting import reboot_node

    sys.stdout.write(f"{reboot_node(current(), options.node)}\n")
    return 0


def _faults(_options: argparse.Namespace) -> int:
    from clusterlab.faults import FAULTS

    width = max(len(fault.name) for fault in FAULTS)
    sys.stdout.write("".join(f"{fault.name:{width}}  {fault.meaning}\n" for fault in FAULTS))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lab",
        description="A real Slurm cluster on this machine: controller ctl, GPU nodes n1 to nN. "
        "MPSFLEET_LAB_NAME selects one of several.",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("up", help="start a cluster of N GPU nodes and wait until Slurm calls all idle")
    verb.add_argument("nodes", type=int, metavar="N")
    verb.add_argument("--suite", default=DEFAULT_SUITE, choices=[suite.name for suite in SUITES])
    verb.add_argument(
        "--gpus",
        default=DEFAULT_GPUS,
        metavar="SPEC",
        help="simulated GPUs: a number for every node (4), or an entry per node, such as a100:4,a100:2+t4:2,a100:1,0",
    )
    verb.add_argument(
        "--sharing", default=DEFAULT_SHARING, choices=SHARINGS, help="the GRES for a part of a GPU: gres/mps (default)"
    )
    verb.add_argument(
        "--private-tmp", dest="has_private_tmp", action="store_true", help="each job has a /tmp of its own"
    )
    verb.set_defaults(carry_out=_up)

    verb = verbs.add_parser("down", help="end the cluster and remove all that it made")
    verb.set_defaults(carry_out=_down)

    verb = verbs.add_parser("exec", help="run a command in a node (no shell), passing its exit status on")
    verb.add_argument("--user", default="root", help="root, alice or bob")
    verb.add_argument("node", metavar="NODE")
    verb.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD")
    verb.set_defaults(carry_out=_exec)

    verb = verbs.add_parser("inventory", help="print the Ansible inventory")
    verb.add_argument("--path", action="store_true", help="print where it is written instead")
    verb.set_defaults(carry_out=_inventory)

    verb = verbs.add_parser("status", help="say what is up")
    verb.set_defaults(carry_out=_status)

    verb = verbs.add_parser("break", help="bring a fault about on a node")
    verb.add_argument("--pipe-directory", metavar="PATH", help="the pipe directory meant (from the node's node.toml)")
    verb.add_argument("--gpu", type=int, default=0, metavar="INDEX", help="the GPU meant by a GPU fault (0)")
    verb.add_argument("node", metavar="NODE")
    verb.add_argument("fault", metavar="FAULT")
    verb.set_defaults(carry_out=_break)

    verb = verbs.add_parser("mend", help="undo on a node what no reset can undo")
    verb.add_argument("node", metavar="NODE")
    verb.set_defaults(carry_out=_mend)

    verb = verbs.add_parser("reboot", help="shut a node down and boot it again")
    verb.add_argument("node", metavar="NODE")
    verb.set_defaults(carry_out=_reboot)

    verb = verbs.add_parser("faults", help="list the faults")
    verb.set_defaults(carry_out=_faults)
    return parser
