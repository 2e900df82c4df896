"""Judge where the directories lie: on which file system, before whose eyes, and whether tmp cleaning passes them by."""

from __future__ import annotations

from mpsfleet.node.files import TMPFILES_PATH
from mpsfleet.node.model import Finding, Unreadable, finding
from mpsfleet.show import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host_facts import Holder, Volume
    from mpsfleet.node.model import Facts, Observed

_LEAST = 65536  # bytes
_CLEANED = ("/tmp/", "/var/tmp/")  # noqa: S108  # what systemd-tmpfiles and others empty by age
_NETWORK = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "lustre",
        "gpfs",
        "beegfs",
        "ceph",
        "9p",
        "afs",
        "ocfs2",
        "gfs2",
        "orangefs",
        "pvfs2",
        "panfs",
        "wekafs",
        "glusterfs",
    )
)
_OWN = {
    "daemon": "the control daemon itself has a /tmp of its own (PrivateTmp=), so nobody else sees its files in {path}",
    "slurmd": "slurmd does not see {path} (a /tmp of its own, PrivateTmp=), so its jobs do not either and bypass MPS",
    "jobs": "Slurm gives each job its own directory above {path} (job_container), so jobs do not see it and bypass MPS",
}


def judge(facts: Facts, desired: Desired) -> tuple[Finding, ...]:
    """Return the findings about the places of the directories; a file system that several share is told once."""
    found = [each for at in facts.instances for each in _instance(facts, at)]
    return (*dict.fromkeys(found), *_unprotected(facts, desired))


def _instance(facts: Facts, at: Observed) -> tuple[Finding, ...]:
    state = at.state
    if state is None:
        return ()
    found = [*_volume("pipe", at.pipe.path, state.pipe), *_volume("log", at.log.path, state.log)]
    if state.hidden:
        message = _OWN[state.hidden].format(path=at.pipe.path)
        found.append(finding("directory-hidden", f"pipe directory {at.pipe.path}", message))
    if state.locked_by is not None and facts.serving(at) is None:
        found += _locked(facts, at, state.locked_by)
    return tuple(found)


def _volume(role: str, path: str, volume: Volume | None) -> tuple[Finding, ...]:
    if volume is None:
        return ()
    subject = f"{role} directory {path}"
    found = []
    if role == "pipe" and _is_networks(volume.kind):
        message = f"{subject} lies on a network file system ({volume.kind}), where daemons of other nodes meet it"
        found.append(finding("directory-on-network", subject, message, kind=volume.kind))
    if volume.is_read_only:
        message = f"the file system of {subject} is read-only, so the daemon cannot write there"
        found.append(finding("directory-unwritable", subject, message, kind=volume.kind))
    elif volume.free < _LEAST or volume.free_names == 0:
        what = "has no free space" if volume.free < _LEAST else "can hold no more files"
        message = f"the file system of {subject} {what}"
        found.append(finding("directory-unwritable", subject, message, free=volume.free, free_names=volume.free_names))
    return tuple(found)


def _is_networks(kind: str) -> bool:
    return kind in _NETWORK or kind.startswith("fuse.")


def _locked(facts: Facts, at: Observed, holder: Holder) -> tuple[Finding, ...]:
    daemons = () if isinstance(facts.daemons, Unreadable) else facts.daemons
    if any(each.process.pid == holder.pid for each in daemons):
        return ()  # a daemon of root's, told as such
    path = f"{at.pipe.path}/control_lock"
    program = f" ({show(holder.comm, 20)})" if holder.comm else ""
    whose = f"a process of user {holder.uid}{program}" if holder.uid >= 0 else "a process that cannot be told"
    message = f'{path} is locked by {whose}, so a control daemon started by hand says "already running" and ends'
    return (finding("lock-held", path, message, pid=holder.pid, uid=holder.uid),)


def _unprotected(facts: Facts, desired: Desired) -> tuple[Finding, ...]:
    drifts = facts.host.drifts if facts.host is not None else None
    if drifts is None or isinstance(drifts, Unreadable) or not f"{desired.pipe_directory}/".startswith(_CLEANED):
        return ()
    if all(each.path != TMPFILES_PATH for each in drifts):
        return ()
    message = (
        f"tmp cleaning is not told to spare {desired.pipe_directory} ({TMPFILES_PATH} is missing or another), "
        "so the daemon's files may be deleted under it by age"
    )
    return (finding("directory-unprotected", f"pipe directory {desired.pipe_directory}", message),)
