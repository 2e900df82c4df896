"""A node tells Slurm how it is: by its own Extra, or Comment where Slurm has no Extra, and only where that is free.

Slurm is asked what stands there first; a text of somebody else's stays. Slurm 20.11 has no Extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.errors import MpsfleetError
from mpsfleet.node import steps
from mpsfleet.node.host import children
from mpsfleet.show import show
from mpsfleet.slurm import nodes, publication

if TYPE_CHECKING:
    from mpsfleet.node.host import Host
    from mpsfleet.node.host.children import Answer
    from mpsfleet.slurm.publication import Publication

    Asked = tuple[str, ...]

_LIMIT_S = 10.0
_FIELDS = ("Extra", "Comment")
_UNKNOWN = "Update of this parameter is not supported"  # scontrol of a keyword that it does not know (20.11 to 24.11)


def publish(host: Host, node: str, value: Publication, left_s: float) -> str | None:
    """Publish in the first field that Slurm has; return the field where somebody else's text stands there, else None.

    `left_s`: the time that is left for this. MpsfleetError where Slurm cannot be asked or told.
    """
    program = steps.scontrol(host)
    if program is None:
        raise MpsfleetError("scontrol is not installed on this node, so Slurm is not told how it is")
    limit_s = min(_LIMIT_S, left_s / (1 + len(_FIELDS)))

    def ask(*words: str) -> Answer:
        return children.run((children.Command((host.path(program), *words), limit_s),))[0]

    shown = ask("show", "node", node)
    known = nodes.parse(shown.out).node(node) if shown.rc == 0 else None
    if known is None:
        raise MpsfleetError(f"Slurm cannot be asked about node {node} ({_said(shown, limit_s)}), so it is told later")
    text = publication.text(value)
    for field, there in zip(_FIELDS, (known.extra, known.comment)):
        if there is not None and not publication.is_ours(there):
            return field
        told = ask("update", f"NodeName={node}", f"{field}={text}")
        if told.rc == 0:
            return None
        if _UNKNOWN not in told.out + told.err:
            break
    raise MpsfleetError(f"Slurm does not take how node {node} is ({_said(told, limit_s)}), so it is told later")


def _said(answer: Answer, limit_s: float) -> str:
    if answer.rc is None and not answer.missing:
        return f"no answer within {limit_s:.0f} s"
    text = answer.err.strip() or answer.out.strip() or f"exit status {answer.rc}"
    return show(text.partition("\n")[0] if answer.rc else "its answer is not understood")
