"""systemd's units of ours, asked once for all: what it says of them, and what their links and files say."""

from __future__ import annotations

import time

from mpsfleet.node.files import TIMER_WANTS, WANTS
from mpsfleet.node.host import children, files
from mpsfleet.node.host_facts import PRIVATE, TIMER, Unit
from mpsfleet.node.model import Unreadable
from mpsfleet.show import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host import Host
    from mpsfleet.node.host.children import Answer, Command
    from mpsfleet.node.instances import Instance

SYSTEMCTL = "/usr/bin/systemctl"
RUNNING = "/run/systemd/system"  # sd_booted(3)
SLURMD = "slurmd.service"
_LIMIT_S = 2.0
_FRESH_S = 5.0
_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,Result,MainPID,NRestarts,"
    "ConditionResult,ConditionTimestampMonotonic,InactiveExitTimestampMonotonic"
)
# systemd.unit(5): where links of the boot's targets may lie beside the place that `systemctl enable` uses
_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_LINKS = (".wants", ".requires", ".upholds")


def question(host: Host, units: tuple[str, ...]) -> Command:
    """Return the one command that asks about all of them."""
    return children.Command((host.path(SYSTEMCTL), "show", *units, f"--property={_PROPERTIES}"), _LIMIT_S)


def blocks(said: str) -> dict[str, dict[str, str]]:
    """Return the properties that `systemctl show` printed, by the unit's Id."""
    found = (dict(line.partition("=")[::2] for line in block.splitlines()) for block in said.split("\n\n"))
    return {each.get("Id", ""): each for each in found}


def understand(answer: Answer, units: tuple[str, ...], now_s: float) -> tuple[Unit, ...] | Unreadable:
    """Return the units; `now_s` is the monotonic clock by which a fresh start is told."""
    if answer.missing:
        return Unreadable("systemctl is not there")
    if answer.rc is None:
        return Unreadable(f"systemd did not answer within {_LIMIT_S:g} s")
    if answer.rc != 0:
        return Unreadable(f"systemctl failed: {show(answer.err.strip() or f'exit status {answer.rc}')}")
    said = blocks(answer.out)
    return tuple(_unit(each, said.get(each, {}), now_s) for each in units)


def _unit(name: str, said: dict[str, str], now_s: float) -> Unit:
    def number(key: str) -> int:
        text = said.get(key, "")
        return int(text) if text.isascii() and text.isdigit() else 0

    began_s = number("InactiveExitTimestampMonotonic") / 1e6
    return Unit(
        name,
        said.get("LoadState", ""),
        said.get("ActiveState", ""),
        said.get("SubState", ""),
        said.get("Result", ""),
        number("MainPID"),
        number("NRestarts"),
        said.get("ConditionResult") == "no" and number("ConditionTimestampMonotonic") > 0,
        bool(began_s) and now_s - began_s < _FRESH_S,
    )


def now_s() -> float:
    """Return the clock of systemd's monotonic time stamps."""
    return time.monotonic()


def enabled(host: Host, name: str) -> bool:
    """Tell whether the next boot starts the unit: by links, for systemd remembers the old ones until it reloads."""
    usual = TIMER_WANTS if name.endswith(".timer") else WANTS
    return files.exists(host.path(f"{usual}/{name}")) or any(
        files.exists(host.path(f"{folder}/{each}/{name}"))
        for folder in _FOLDERS
        for each in files.names(host.path(folder))
        if each.endswith(_LINKS)
    )


def names(desired: Desired, wanted: tuple[Instance, ...]) -> tuple[str, ...]:
    """Return the units to ask about; slurmd where its /tmp may be another than the one with the pipe directory."""
    timer = (TIMER,) if desired.audit_minutes else ()
    slurmd = (SLURMD,) if desired.pipe_directory.startswith(PRIVATE) else ()
    return (*(each.unit for each in wanted), *timer, *slurmd)


def with_links(host: Host, found: tuple[Unit, ...] | Unreadable) -> tuple[Unit, ...] | Unreadable:
    """Add to the units whether the next boot starts them."""
    if isinstance(found, Unreadable):
        return found
    return tuple(each._replace(is_enabled=each.name == SLURMD or enabled(host, each.name)) for each in found)
