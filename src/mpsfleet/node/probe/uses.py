"""Which processes compute on the GPUs, by nvidia-smi: clients of MPS, its servers, and what runs beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.node.host import children
from mpsfleet.node.model import Unreadable
from mpsfleet.node.probe import gpu
from mpsfleet.node.servers_facts import Use
from mpsfleet.show import show

if TYPE_CHECKING:
    from mpsfleet.node.host import Host
    from mpsfleet.node.host.children import Answer, Command

_DEVICES = ("GPU-", "MIG-")
_WORDS = ("--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")


def question(host: Host, limit_s: float) -> Command:
    """Return the query: a line `GPU's UUID, pid` for each process on each GPU."""
    return children.Command((gpu.tool(host), *_WORDS), limit_s)


def understand(answer: Answer, limit_s: float) -> tuple[Use, ...] | Unreadable:
    """Return the rows. A warning mixed into them is no row, and a failure is no empty answer."""
    if answer.missing:
        return Unreadable("it is not installed")
    if answer.rc is None:
        return Unreadable(f"no answer within {limit_s:g} s")
    rows = (line.partition(",") for line in answer.out.splitlines())
    found = tuple(Use(uuid.strip(), pid.strip()) for uuid, _, pid in rows if uuid.startswith(_DEVICES))
    if answer.rc == 0 or found:
        return found
    said = answer.err.strip() or answer.out.strip() or f"exit status {answer.rc}"
    return Unreadable(show(said.partition("\n")[0], 80))
