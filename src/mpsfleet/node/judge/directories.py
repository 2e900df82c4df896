"""Judge the pipe and log directories: root's, 0755, with parents that users can pass and cannot change."""

from __future__ import annotations

from mpsfleet.node.model import Directory, Finding, Parent, finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.model import Facts

MODE = 0o755
_STICKY = 0o1000
_OTHERS_WRITE = 0o002
_GROUP_WRITE = 0o020
_OTHERS_PASS = 0o001
SYSTEM_GIDS = 1000  # a group below may write a parent (Ubuntu's /var/log belongs to group syslog)


def judge(facts: Facts, desired: Desired) -> tuple[Finding, ...]:  # noqa: ARG001  # one signature for all judges
    """Return the findings about the directories of every instance; a parent they share is told once."""
    found = [
        each
        for at in facts.instances
        for each in (*_judge("pipe", at.pipe, facts.owner_uid), *_judge("log", at.log, facts.owner_uid))
    ]
    return (*dict.fromkeys(found), *_default(facts))


def _default(facts: Facts) -> tuple[Finding, ...]:
    """NVIDIA's own directory, where it is no instance's: whoever owns it stops every CUDA program of the others."""
    directory = facts.default
    if directory is None or directory.kind == "missing":
        return ()
    if directory.kind == "unreadable":
        return (finding("probe-failed", directory.path, f"{directory.path} cannot be looked at: {directory.reason}"),)
    if directory.kind == "directory" and directory.uid == facts.owner_uid and not directory.mode & _OTHERS_WRITE:
        return ()
    what = "a directory" if directory.kind == "directory" else "a link" if directory.kind == "link" else directory.kind
    whose = f" of user {directory.uid}" if directory.kind == "directory" else ""
    message = (
        f"{directory.path}, where every CUDA program looks that is told no other directory, is {what}{whose} "
        f"that others can change, so its owner can stop other users' programs"
    )
    return (finding("default-directory-squatted", directory.path, message, uid=directory.uid),)


def _judge(role: str, directory: Directory, owner: int) -> tuple[Finding, ...]:
    parents = tuple(found for each in directory.parents if (found := _parent(role, directory, each, owner)) is not None)
    if directory.kind != "directory":
        return (*parents, _absent(role, directory))
    return (*parents, *_owner(role, directory, owner), *_mode(role, directory))


def _absent(role: str, directory: Directory) -> Finding:
    subject = f"{role} directory {directory.path}"
    at = directory.reason or directory.path
    if directory.kind == "missing":
        part = f"{role} directory {directory.path} does not exist" + (
            f" ({at} is missing)" if at != directory.path else ""
        )
        return finding("directory-missing" if role == "pipe" else "log-directory-missing", subject, part)
    if directory.kind == "unreadable":
        return finding("probe-failed", subject, f"{role} directory {directory.path} cannot be looked at: {at}")
    what = "a link" if directory.kind == "link" else f"a {directory.kind}"
    if at != directory.path:
        message = f"{at}, above the {role} directory {directory.path}, is {what}; root's daemon must not go through it"
        remedy = f"Name the real path in node.toml, or give {at} back to root as a directory."
        return finding("directory-parent", subject, message, origin="either", remedy=remedy, at=at)
    message = f"{role} directory {directory.path} is {what}, not a directory of root's"
    return finding("directory-hijacked", subject, message, kind=directory.kind)


def _parent(role: str, directory: Directory, parent: Parent, owner: int) -> Finding | None:
    subject = f"{role} directory {directory.path}"
    if parent.uid not in (0, owner):
        message = (
            f"{parent.path}, above the {role} directory {directory.path}, belongs to user {parent.uid}, not to root"
        )
    elif changeable(parent):
        message = (
            f"{parent.path}, above the {role} directory {directory.path}, has mode {parent.mode:04o}: "
            "others can replace what lies in it"
        )
    elif role == "pipe" and not parent.mode & _OTHERS_PASS:
        message = (
            f"{parent.path}, above the pipe directory {directory.path}, has mode {parent.mode:04o}: "
            "users cannot pass it, so jobs cannot connect"
        )
    else:
        return None
    return finding("directory-parent", subject, message, at=parent.path, mode=f"{parent.mode:04o}", uid=parent.uid)


def changeable(parent: Parent) -> bool:
    """Return whether somebody other than root can rename or replace names in `parent`."""
    if parent.mode & _STICKY:
        return False
    by_group = bool(parent.mode & _GROUP_WRITE) and parent.gid >= SYSTEM_GIDS
    return bool(parent.mode & _OTHERS_WRITE) or by_group


def _owner(role: str, directory: Directory, owner: int) -> tuple[Finding, ...]:
    if directory.uid == owner:
        return ()
    message = f"{role} directory {directory.path} belongs to user {directory.uid}, not to root"
    return (finding("directory-owner", f"{role} directory {directory.path}", message, uid=directory.uid),)


def _mode(role: str, directory: Directory) -> tuple[Finding, ...]:
    if directory.mode == MODE or (role == "log" and directory.mode in (0o700, 0o750)):
        return ()
    subject = f"{role} directory {directory.path}"
    if directory.mode & (_OTHERS_WRITE | _GROUP_WRITE):
        message = (
            f"{role} directory {directory.path} has mode {directory.mode:04o}: others can write in it, "
            "and root's daemon must not run in such a directory; 0755 is what jobs need"
        )
        return (finding("directory-mode", subject, message, mode=f"{directory.mode:04o}"),)
    if role == "pipe" and not directory.mode & _OTHERS_PASS:
        message = (
            f"pipe directory {directory.path} has mode {directory.mode:04o}: users cannot pass it; it must be 0755"
        )
        return (finding("directory-mode", subject, message, origin="node", mode=f"{directory.mode:04o}"),)
    if role == "pipe":
        return ()  # narrower for reading only, e.g. 0711: users still connect
    return ()
