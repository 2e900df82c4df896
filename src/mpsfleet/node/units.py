"""systemd, asked and told: the state of our units, and the few things done to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.errors import MpsfleetError, NotInEffect
from mpsfleet.node.actions import UnitState
from mpsfleet.node.files import TIMER_WANTS, WANTS
from mpsfleet.node.host import children, files
from mpsfleet.node.instances import NODE_UNIT
from mpsfleet.show import show

if TYPE_CHECKING:
    from mpsfleet.node.host import Host

_SYSTEMCTL = "/usr/bin/systemctl"
_RUNNING = "/run/systemd/system"  # sd_booted(3)
_ASK_S = 5.0
_PROPERTIES = "Id,LoadState,ActiveState,UnitFileState,MainPID,NeedDaemonReload"


def is_booted(host: Host) -> bool:
    """Tell whether systemd runs; it does not in an image that is being made."""
    return files.exists(host.path(_RUNNING))


def known(host: Host, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the units that this node has of ours: the wanted ones, and what an earlier configuration enabled."""
    linked = tuple(each for each in files.names(host.path(WANTS)) if each.startswith("nvidia-mps@"))
    return tuple(dict.fromkeys((NODE_UNIT, *wanted, *sorted(linked))))


def states(host: Host, units: tuple[str, ...]) -> tuple[UnitState, ...]:
    """Return what systemd says about the units. MpsfleetError where it cannot be asked."""
    argv = (host.path(_SYSTEMCTL), "show", *units, f"--property={_PROPERTIES}")
    answer = children.run((children.Command(argv, _ASK_S),))[0]
    if answer.missing:
        raise MpsfleetError("systemctl is not there; this version deploys to nodes that run systemd")
    if answer.rc != 0:
        what = "did not answer in time" if answer.rc is None else show(answer.err.strip() or f"exit status {answer.rc}")
        raise MpsfleetError(f"systemd cannot be asked about {units[0]}: {what}")
    blocks = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in answer.out.split("\n\n")]
    found = {each.get("Id", ""): each for each in blocks}
    return tuple(_state(each, found.get(each, {})) for each in units)


def linked(host: Host, units: tuple[str, ...]) -> tuple[UnitState, ...]:
    """Return the units as the links of an image tell: nothing runs there."""
    enabled = {name for folder in (WANTS, TIMER_WANTS) for name in files.names(host.path(folder))}
    return tuple(
        UnitState(each, "", "inactive", "enabled" if each in enabled else "", 0, stale=False) for each in units
    )


def _state(unit: str, said: dict[str, str]) -> UnitState:
    pid = said.get("MainPID", "0")
    return UnitState(
        unit,
        said.get("LoadState", ""),
        said.get("ActiveState", ""),
        said.get("UnitFileState", ""),
        int(pid) if pid.isdigit() else 0,
        said.get("NeedDaemonReload") == "yes",
    )


def tell(host: Host, verb: str, *words: str, limit_s: float) -> None:
    """Run one systemctl command; NotInEffect with systemd's own words when it fails or does not end in time."""
    # In an image under --root, this machine's systemctl edits the image's links; there is nothing else to tell.
    program = (_SYSTEMCTL, f"--root={host.root}") if host.root and not is_booted(host) else (host.path(_SYSTEMCTL),)
    answer = children.run((children.Command((*program, verb, *words), limit_s),))[0]
    if answer.rc == 0:
        return
    said = f"no answer within {limit_s:g} s" if answer.rc is None else answer.err.strip().partition("\n")[0]
    about = f"; see `journalctl -u {words[-1]}`" if words and verb in ("start", "stop") else ""
    raise NotInEffect(f"`systemctl {' '.join((verb, *words))}` failed: {show(said)}{about}")
