"""What an ordinary user met on the way to each daemon, put beside the directories that were looked at."""

from __future__ import annotations

from mpsfleet.node.host import children
from mpsfleet.node.model import Unreadable, UserView
from mpsfleet.node.probe import mps
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.model import Directory


class Way(NamedTuple):
    """A pipe directory that a user was to reach."""

    pipe: Directory
    is_there: bool
    is_mute: bool  # its daemon was not spoken to


def views(
    look: children.Apart | Unreadable, ways: tuple[Way, ...], limit_s: float
) -> tuple[UserView | Unreadable, ...]:
    """Return what the user met on each way; a pipe directory that is not there stops everybody."""
    seen: tuple[UserView, ...] | Unreadable
    if isinstance(look, children.Apart):
        raw = look.result()
        late = Unreadable(f"the look as a user did not end within {limit_s:g} s")
        seen = late if raw is None else mps.user_views(raw)
    else:
        seen = look
    left = iter(() if isinstance(seen, Unreadable) else seen)
    found: list[UserView | Unreadable] = []
    for each in ways:
        if not each.is_there:
            found.append(UserView(reached=False, step=each.pipe.reason or each.pipe.path, error="ENOENT"))
        elif each.is_mute:
            found.append(Unreadable("the control daemon was not spoken to"))
        elif isinstance(seen, Unreadable):
            found.append(seen)
        else:
            found.append(next(left, Unreadable("the look as a user ended early")))
    return tuple(found)
