"""Reading node.toml: root's own file, never through a link; what was found right is kept beside the locks.

The kept values are JSON in a directory only root can enter, keyed by the file's device, inode, size, modification and
change time and the program's version; anything unexpected there means reading the file again.
"""

from __future__ import annotations

import json
import os
import stat

from mpsfleet import __version__
from mpsfleet.node.desired import CONFIG, Desired, Mistake, Share, parse
from mpsfleet.node.host import files, locks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.host import Host

_CAP = 65536  # bytes of a node.toml


def load(host: Host, text: str | None = None) -> tuple[Desired, tuple[Mistake, ...]]:
    """Return the desired state and its mistakes, from `text` or, when None, from /etc/mpsfleet/node.toml."""
    if text is not None:
        if len(text) > _CAP:
            return Desired(), (Mistake(0, f"longer than {_CAP} bytes"),)
        return parse(text)
    path = host.path(CONFIG)
    try:
        now = os.lstat(path)
    except FileNotFoundError:
        sentence = f"there is no {CONFIG}; deploy this node (playbook deploy_mps, or `mpsfleet node apply --config -`)"
        return Desired(), (Mistake(0, sentence),)
    except OSError as error:
        return Desired(), (Mistake(0, f"{CONFIG} cannot be read: {error.strerror}"),)
    if not stat.S_ISREG(now.st_mode) or now.st_uid != host.owner_uid or now.st_mode & 0o022:
        return Desired(), (Mistake(0, f"{CONFIG} must be a plain file of root's that nobody else can write"),)
    key = [__version__, now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns]
    kept = _kept(host, key)
    if kept is not None:
        return kept, ()
    try:
        content = files.read(path, _CAP).decode()
    except OSError as error:
        return Desired(), (Mistake(0, f"{CONFIG} cannot be read: {error.strerror}"),)
    except UnicodeDecodeError:
        return Desired(), (Mistake(0, f"{CONFIG} is not UTF-8 text"),)
    desired, mistakes = parse(content)
    if not mistakes:
        _keep(host, key, desired)
    return desired, mistakes


def _kept(host: Host, key: list[object]) -> Desired | None:
    try:
        kept = json.loads(files.read(host.path(f"{locks.STATE}/node.json"), _CAP))
        if kept["key"] == key and len(kept["values"]) == len(Desired._fields):
            return _revived(kept["values"])
    except (OSError, ValueError, KeyError, TypeError):  # nothing is lost: the file itself is read then
        return None
    return None


def _revived(values: list[object]) -> Desired:
    """Return the value that JSON has made lists of."""
    desired = Desired(*(tuple(each) if isinstance(each, list) else each for each in values))  # type: ignore[arg-type]
    return desired._replace(shares=tuple(Share(*each)._replace(gpus=tuple(each[0])) for each in desired.shares))


def _keep(host: Host, key: list[object], desired: Desired) -> None:
    content = json.dumps({"key": key, "values": list(desired)}).encode()
    try:
        files.publish(os.path.join(locks.state_directory(host), "node.json"), content, 0o600)
    except OSError:  # a read-only /run (the unit's own sandbox): the next reader parses again
        return
