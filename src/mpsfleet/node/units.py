"""systemd, asked and told: the state of nvidia-mps.service, and the few things done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.errors import MpsfleetError, NotInEffect
from mpsfleet.node.files import UNIT
from mpsfleet.node.host import children
from mpsfleet.node.plan import UnitState
from mpsfleet.show import show

if TYPE_CHECKING:
    from mpsfleet.node.host import Host

_SYSTEMCTL = "/usr/bin/systemctl"
_ASK_S = 5.0
_PROPERTIES = "LoadState,ActiveState,UnitFileState,MainPID,NeedDaemonReload"


def state(host: Host) -> UnitState:
    """Return what systemd says about our unit. MpsfleetError where it cannot be asked."""
    argv = (host.path(_SYSTEMCTL), "show", UNIT, f"--property={_PROPERTIES}")
    answer = children.run((children.Command(argv, _ASK_S),))[0]
    if answer.missing:
        raise MpsfleetError("systemctl is not there; this version deploys to nodes that run systemd")
    if answer.rc != 0:
        what = "did not answer in time" if answer.rc is None else show(answer.err.strip() or f"exit status {answer.rc}")
        raise MpsfleetError(f"systemd cannot be asked about {UNIT}: {what}")
    said = dict(line.partition("=")[::2] for line in answer.out.splitlines())
    pid = said.get("MainPID", "0")
    return UnitState(
        said.get("LoadState", ""),
        said.get("ActiveState", ""),
        said.get("UnitFileState", ""),
        int(pid) if pid.isdigit() else 0,
        said.get("NeedDaemonReload") == "yes",
    )


def tell(host: Host, *words: str, limit_s: float) -> None:
    """Run one systemctl command; NotInEffect with systemd's own words when it fails or does not end in time."""
    answer = children.run((children.Command((host.path(_SYSTEMCTL), *words), limit_s),))[0]
    if answer.rc == 0:
        return
    said = f"no answer within {limit_s:g} s" if answer.rc is None else answer.err.strip().partition("\n")[0]
    raise NotInEffect(f"`systemctl {' '.join(words)}` failed: {show(said)}; see `journalctl -u {UNIT}`")
