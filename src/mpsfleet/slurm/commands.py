"""The only door to Slurm: runs scontrol, and gives its words or why there are none.

scontrol is taken from fixed directories and gets an environment made from nothing: a caller's PATH, time format or
language changes nothing. Every call has a time limit, because scontrol retries a slurmctld that refuses the connection
for MessageTimeout (10 s unless configured; slurm_open_controller_conn in src/common/slurm_protocol_api.c), and longer
one that accepts it and is silent. At the limit the whole process group is killed.

Nodes are read as JSON where this scontrol has a data parser whose shape is known (json_nodes), else as text. Where it
gives no JSON in spite of that, the text is read and `tell` hears why.

SLURM_CONF: slurm.conf names directories of plugins, which scontrol loads as code, and scontrol quotes lines of a file
that it cannot read. So root uses SLURM_CONF only where nobody but root can have written that file, and under sudo only
where it is one of the usual places. Where it is set and not usable nothing is asked at all: without it another cluster
might answer. Who is not root gains nothing by it and may set it freely.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple, Union

from mpsfleet.errors import Refused
from mpsfleet.show import show
from mpsfleet.slurm import json_nodes, nodes
from mpsfleet.slurm.child import Ended, run
from mpsfleet.slurm.names import is_literal
from mpsfleet.slurm.nodes import Node, NodeTable
from mpsfleet.slurm.reasons import GIVEN_BACK

if TYPE_CHECKING:
    from collections.abc import Mapping

DIRECTORIES = ("/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/usr/sbin")
USUAL_CONFS = frozenset(
    f"{directory}/slurm.conf"
    for directory in ("/etc/slurm", "/etc/slurm-llnl", "/usr/local/etc", "/usr/local/etc/slurm", "/opt/slurm/etc")
)
TIMEOUT_S = 10.0
_VERSION_TIMEOUT_S = 2.0  # asks no daemon
_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
_CLUSTER_KEY = "ClusterName"
_STATE_KEY = "StateSaveLocation"
_LOOK = "look at slurmctld on the controller (systemctl status slurmctld)"


class Unreadable(NamedTuple):
    """Slurm could not be asked, or its answer not be read: why, in one sentence."""

    reason: str


class Done(NamedTuple):
    """scontrol ran to its end: its exit status, and what it said about a failure (one line, "" on success)."""

    rc: int
    words: str


class NoSuchNode(NamedTuple):
    """slurmctld answered, and knows no node of that name."""

    name: str


class Controller(NamedTuple):
    """Which cluster slurmctld is of, and the directory where it keeps its state (StateSaveLocation; None: not told)."""

    cluster: str
    state_directory: str | None


NodeAnswer = Union[Node, NoSuchNode, Unreadable]


@dataclass(frozen=True)
class Caller:
    """Who runs the program: real and effective uid, and the environment it was given."""

    uid: int
    euid: int
    environ: Mapping[str, str]
    stands_for_root: bool = False  # on simulated machines, whose owner is their root

    @property
    def acting_uid(self) -> int:
        """The uid that scontrol acts as, and whose name stands with what it writes."""
        return 0 if self.stands_for_root else self.euid

    @property
    def is_sudo(self) -> bool:
        """Root by the grace of sudo, for another user, who chose the arguments and perhaps the environment."""
        return self.euid == 0 and (self.uid != 0 or self.environ.get("SUDO_UID", "0") != "0")


def this_caller() -> Caller:
    """Give the identity of this process."""
    return Caller(os.getuid(), os.geteuid(), dict(os.environ))


@dataclass(frozen=True)
class Scontrol:
    """The door. `directories` are looked through in order, `timeout_s` holds for each call."""

    directories: tuple[str, ...] = DIRECTORIES
    timeout_s: float = TIMEOUT_S
    caller: Caller = field(default_factory=this_caller)
    tell: Callable[[str], None] = lambda _: None  # takes a sentence about what was done another way than usual
    root: str = ""  # the directory under which the controller lies

    @classmethod
    def under(cls, root: str) -> Scontrol:
        """Give the door of the controller under `root`; SLURM_CONF speaks of this machine and so only counts for ""."""
        if not root:
            return cls()
        caller = this_caller()
        return cls(
            tuple(root + each for each in DIRECTORIES),
            caller=Caller(caller.uid, caller.euid, {}, stands_for_root=True),
            root=root,
        )

    def show_nodes(self) -> NodeTable | Unreadable:
        """Ask for all nodes: one request for a whole fleet. Details add GresUsed to the text; JSON has it anyway."""
        table = self._json("nodes")
        if table is not None:
            return table
        answer = self._ask("--details", "show", "nodes")
        if isinstance(answer, Unreadable):
            return answer
        return nodes.parse(answer.stdout) if answer.rc == 0 else _refusal("scontrol show nodes", answer)

    def show_node(self, name: str) -> NodeAnswer:
        """Ask for one node by its literal name; no other node's record can stand in its answer."""
        table = self._json("node", _literal(name))
        if isinstance(table, Unreadable):
            return table
        if table is not None and (table.nodes or table.problems):
            return _only(name, table)
        # An empty JSON answer (status 0) does not say why it is empty; the text does.
        answer = self._ask("show", "node", _literal(name))
        if isinstance(answer, Unreadable):
            return answer
        if answer.rc != 0 and f"Node {name} not found" in answer.stdout:
            return NoSuchNode(name)
        if answer.rc != 0:
            return _refusal(f"scontrol show node {name}", answer)
        return _only(name, nodes.parse(answer.stdout))

    def _json(self, *words: str) -> NodeTable | Unreadable | None:
        """Ask for JSON. None where there is none to be had and the text is to be read."""
        if self._json_option is None:
            return None
        answer = self._ask(self._json_option, "show", *words)
        if isinstance(answer, Unreadable):
            return answer
        if answer.rc != 0:
            why = _words(answer)
            if _is_out_of_reach(why):
                return _refusal(f"scontrol show {words[0]}", answer)
        else:
            try:
                read = json_nodes.parse(answer.stdout, json_nodes.iso_of)
            except json_nodes.NotJsonError as error:
                why = str(error)
            else:
                if not read.errors:
                    return read.table
                why = show("; ".join(read.errors), 300)
        self.tell(f"scontrol's JSON is not used ({why.rstrip('.')}); its text was read instead.")
        return None

    @cached_property
    def _json_option(self) -> str | None:
        """The option that makes this scontrol print JSON of a known shape; None where its text is read."""
        version = self._ask("--version", timeout_s=min(self.timeout_s, _VERSION_TIMEOUT_S))
        return None if isinstance(version, Unreadable) or version.rc else json_nodes.option_for(version.stdout)

    def cluster_name(self) -> str | Unreadable:
        """Ask slurmctld for its cluster's name (not slurm.conf, which may be another's)."""
        found = self.controller()
        return found if isinstance(found, Unreadable) else found.cluster

    def controller(self) -> Controller | Unreadable:
        """Ask slurmctld who it is."""
        answer = self._ask("show", "config")
        if isinstance(answer, Unreadable):
            return answer
        if answer.rc != 0:
            return _refusal("scontrol show config", answer)
        parts = [each.partition("=") for each in reversed(answer.stdout.split("\n"))]  # the first of a name counts
        found = {key.strip(" "): value.strip(" ") for key, _, value in parts}
        cluster, state = found.get(_CLUSTER_KEY, ""), found.get(_STATE_KEY, "")
        if cluster in ("", "(null)"):
            return Unreadable("scontrol show config names no ClusterName.")
        return Controller(cluster, state if state.startswith("/") else None)

    def drain(self, name: str, reason: str) -> Done | Unreadable:
        """Set State=DRAIN. Overwrites whatever reason is there without a word: read before, verify after."""
        return self._update(name, "State=DRAIN", f"Reason={reason}")

    def undrain(self, name: str) -> Done | Unreadable:
        """Set State=UNDRAIN, which clears DRAIN alone; RESUME would revive a DOWN node too.

        The same request replaces our reason by a text that is not one, for where Slurm does not clear it.
        """
        return self._update(name, "State=UNDRAIN", f"Reason={GIVEN_BACK}")

    def _update(self, name: str, *settings: str) -> Done | Unreadable:
        answer = self._ask("update", f"NodeName={_literal(name)}", *settings)
        if isinstance(answer, Unreadable):
            return answer
        return Done(answer.rc, _words(answer) if answer.rc else "")

    def _ask(self, *arguments: str, timeout_s: float | None = None) -> Ended | Unreadable:
        program = find_scontrol(self.directories)
        if program is None:
            return Unreadable(
                f"scontrol is not installed in {', '.join(self.directories)}: install Slurm's client tools "
                "(Debian and Ubuntu: package slurm-client; RHEL: slurm) or run this on the controller.",
            )
        environment = environment_for(self.caller, is_roots_alone)
        if isinstance(environment, Unreadable):
            return environment
        what = " ".join(["scontrol", *(each for each in arguments if not each.startswith("--"))][:3])
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            answer = run((program, *arguments), environment, limit_s)
        except OSError as error:
            return Unreadable(f"{program} could not be started: {error.strerror or error}.")
        if answer.timed_out:
            return Unreadable(
                f"slurmctld could not be asked: {show(what)} did not end within {limit_s:g} s{_said(answer)}; {_LOOK}.",
            )
        if answer.too_long:
            return Unreadable(f"{show(what)} printed more than can be an answer, and was stopped.")
        return answer


def find_scontrol(directories: tuple[str, ...]) -> str | None:
    """Give the path of the first scontrol that can be run and that not everybody can write; None without one."""
    for directory in directories:
        path = Path(directory, "scontrol")
        try:
            mode = path.stat().st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode) and mode & 0o111 and not mode & stat.S_IWOTH:
            return str(path)
    return None


def environment_for(caller: Caller, is_safe: Callable[[str], bool]) -> dict[str, str] | Unreadable:
    """Give scontrol's whole environment. SLURM_TIME_FORMAT is left out, so times are ISO.

    `is_safe` tells whether root may let scontrol read a configuration of that path (`is_roots_alone`).
    """
    environment = {"PATH": _PATH, "LC_ALL": "C"}
    conf = caller.environ.get("SLURM_CONF")
    if not conf:
        return environment
    if 0 in (caller.uid, caller.euid) or caller.uid != caller.euid:
        if caller.is_sudo and conf not in USUAL_CONFS:
            return Unreadable(
                "SLURM_CONF is set and not used: under sudo it must name slurm.conf in a usual place "
                "(such as /etc/slurm/slurm.conf); unset it or run this as root without sudo.",
            )
        if not is_safe(conf):
            return Unreadable(
                "SLURM_CONF is set and not used: the file and every directory above it must belong to root and be "
                "writable by root alone; unset it or put that right.",
            )
    return {**environment, "SLURM_CONF": conf}


def is_roots_alone(path: str) -> bool:
    """Tell whether a file and all above it belong to root, and nobody else can change them; no link is followed."""
    file = Path(path)
    if not file.is_absolute() or ".." in file.parts:
        return False
    for place in (file, *file.parents):
        try:
            status = place.lstat()
        except (OSError, ValueError):
            return False
        wanted = stat.S_ISREG if place is file else stat.S_ISDIR
        if not wanted(status.st_mode) or status.st_uid != 0 or status.st_mode & 0o022:
            return False
    return True


def _literal(name: str) -> str:
    if not is_literal(name):  # decided by the callers already; the last barrier before scontrol
        raise Refused(f"{show(name)} is not the literal name of one node; nothing was asked or changed.")
    return name


def _words(answer: Ended) -> str:
    """Give what a failed call said, as one line."""
    text = answer.stderr if answer.stderr.strip() else answer.stdout
    return show(" ".join(text.split())) or f"exit status {answer.rc} without a word"


def _said(answer: Ended) -> str:
    return f" ({_words(answer)})" if (answer.stderr + answer.stdout).strip() else ""


def _only(name: str, table: NodeTable) -> Node | Unreadable:
    node = table.node(name)
    if node is not None and len(table.nodes) == 1 and not table.problems:
        return node
    problem = table.problems[0].sentence if table.problems else f"its answer is not about {show(name)}"
    return Unreadable(f"scontrol show node {name}: {problem}.")


def _is_out_of_reach(words: str) -> bool:
    return "Unable to contact" in words or "connect failure" in words


def _refusal(what: str, answer: Ended) -> Unreadable:
    words = _words(answer)
    if _is_out_of_reach(words):
        return Unreadable(
            f"slurmctld could not be asked ({words}); {_LOOK}.",
        )
    return Unreadable(f"{what} failed with status {answer.rc}: {words}.")
