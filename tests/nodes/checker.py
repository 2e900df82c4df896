"""Refuse a recorded node that no node can be: a fixture that the world cannot produce proves nothing.

Each check returns sentences about what is impossible. They go by what /proc, systemd, nvidia-smi and NVIDIA's control
program were seen to do; what merely looks odd is no problem of theirs.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, NamedTuple

import commands_checked
import recorded_node
from commands_checked import Document, objects, texts

from mpsfleet.codes import BY_NAME, SEVERITIES
from mpsfleet.node.recorded import door
from mpsfleet.node.recorded.record import SCHEMA
from mpsfleet.sim.faults import FAULTS
from mpsfleet.sim.fleet import VERSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

SIMULATED = "simulated node"
_MEMBERS = {"schema", "program", "clock", "owner", "answers"}
_NODE = "node1"  # the name that `--record` gives every node
_APART = ("look_as_user", "read_apart")
_BY_PATH = ("exists", "executable", "read", "read_or_none", "names", "link_target", "state_of")
_PATH = re.compile(r"(?<![\w.@:/-])/([A-Za-z](?:[\w.-]*\w)?)")
_OF_A_NODE = {"run", "var", "etc", "usr", "tmp", "proc", "sys", "dev", "lib", "bin", "sbin", "opt", "boot"}
_SLICES = (".slice", ".scope", ".service")  # of control groups, whose paths begin there
_SLACK_S = 2.0  # between two clocks, and for what is read after them
_TICKS = 100.0  # of /proc/PID/stat in a second (USER_HZ, the same on every Linux that NVIDIA supports)


class Recorded(NamedTuple):
    """A recorded node as its files hold it."""

    about: recorded_node.About
    document: Document  # of answers.json
    report: Document

    def answers(self, question: str) -> list[object]:
        """Return what was answered to a question, in order; [] where it was not asked."""
        return list(self.document["answers"].get(question, ()))


def problems(about: recorded_node.About, document: Document, report: Document) -> list[str]:
    """Return a sentence for each thing that no node can have."""
    strange = sorted(_MEMBERS ^ set(document))
    if strange or document["schema"] != SCHEMA:
        return [f"answers.json is not what --record writes: {', '.join(strange) or 'another schema'}"]
    node = Recorded(about, document, report)
    checks = (
        _metadata,
        _dates,
        _report,
        _questions,
        _processes,
        _peers,
        _holders,
        _clock,
        _order,
        _directories,
        _private,
    )
    found = [each for check in checks for each in check(node)]
    return [*found, *commands_checked.problems(document["answers"])]


def _metadata(node: Recorded) -> Iterator[str]:
    about = node.about
    if not about.source.strip():
        yield "about.toml names no source"
    if not about.done.strip():
        yield "about.toml does not say what was done"
    if about.invented != bool(about.changed):
        yield "what was changed by hand is said, and only then: `invented = true` and `changed`"
    if about.verdict not in SEVERITIES:
        yield f"no verdict is called {about.verdict}"
    for code, _ in about.findings:
        if code not in BY_NAME:
            yield f"no finding is called {code}"
    if about.source == SIMULATED and about.mps not in VERSIONS:
        yield f"driver {about.mps} is not simulated"
    if about.fault and about.fault not in {each.name for each in FAULTS}:
        yield f"`mpsfleet sim faults` has no {about.fault}"


def _dates(node: Recorded) -> Iterator[str]:
    try:
        day = dt.date.fromisoformat(node.about.date)
    except ValueError:
        yield f"{node.about.date} is no date"
        return
    clock = dt.datetime.fromtimestamp(node.document["clock"], dt.timezone.utc).date()
    if abs((clock - day).days) > 1:
        yield f"about.toml says {day}, and the recording's clock {clock}"
    if node.about.program != node.document["program"]:
        yield f"about.toml says {node.about.program}, and mpsfleet {node.document['program']} recorded it"


def _report(node: Recorded) -> Iterator[str]:
    if recorded_node.found(node.report) != node.about.expected:
        yield f"report.json holds {recorded_node.found(node.report)}, and about.toml expects {node.about.expected}"
    if node.report["node"] != _NODE:
        yield f"the node is called {node.report['node']}, not {_NODE}"


def _questions(node: Recorded) -> Iterator[str]:
    """Find questions that no audit asks, and those without an answer."""
    known = {_label(module.__name__, name) for module, name in door._questions()}
    known |= {"directories.look", *_BY_PATH}
    for question, answers in node.document["answers"].items():
        if not isinstance(answers, list) or not answers:
            yield f"`{question}` has no answer"
        word, _, rest = question.partition(" ")
        if word == "apart" and rest in _APART:
            continue
        if word not in known and commands_checked.program(question) not in commands_checked.PROGRAMS:
            yield f"no audit asks `{question}`"


def _label(module: str, name: str) -> str:
    return f"{module.removeprefix('mpsfleet.node.').removeprefix('probe.')}.{name.lstrip('_')}"


def _processes(node: Recorded) -> Iterator[str]:
    """Compare every process told of with the listing of /proc that the audit began with."""
    listed = commands_checked.named_mps(node.document["answers"])
    starts: dict[int, int] = {}
    for each in objects(node.document, "model.Process"):
        pid = each["pid"]
        if starts.setdefault(pid, each["start"]) != each["start"]:
            yield f"process {pid} started twice"
        if each["ppid"] == pid:
            yield f"process {pid} is its own parent"
        if each["comm"] == commands_checked.COMM and pid not in listed:
            yield f"process {pid} has MPS's name and is not among those of that name"
    for each in objects(node.document, "model.Daemon"):
        if each["process"]["uid"] != node.document["owner"][0]:
            yield f"daemon {each['process']['pid']} is not of the node's owner"


def _peers(node: Recorded) -> Iterator[str]:
    listed = commands_checked.named_mps(node.document["answers"])
    for each in objects(node.document, "model.Peer"):
        if each["outcome"] != "listening":
            continue
        pid, comm = each.get("pid", 0), each.get("comm", "")
        if pid > 0 and not comm:
            yield f"process {pid} listens on a socket and has no entry in /proc"
        if comm == commands_checked.COMM and pid not in listed:
            yield f"process {pid} listens on a socket by MPS's name and is not among those of that name"


def _holders(node: Recorded) -> Iterator[str]:
    """Check who holds a lock or a connection: a process, or why it cannot be told."""
    for each in objects(node.document, "host_facts.Holder"):
        pid, is_told = each.get("pid", 0), bool(each.get("comm"))
        if pid > 0 and not is_told and not each.get("reason"):
            yield f"process {pid} holds a lock or a connection and has no entry in /proc"
        if pid <= 0 and not each.get("reason"):
            yield "somebody holds a lock or a connection, and it is not said who or why that cannot be told"


def _clock(node: Recorded) -> Iterator[str]:
    """Find clocks that run backwards, and processes of after the audit."""
    seen = [float(str(each)) for each in node.answers("units.now_s")]
    if seen != sorted(seen):
        yield "the clock of units.now_s runs backwards"
    now = seen[-1] if seen else None
    for each in objects(node.document, "model.Process"):
        if now is not None and each["start"] / _TICKS > now + _SLACK_S:
            yield f"process {each['pid']} started after the audit"
    for each in objects(node.document, "servers_facts.Server"):
        begun, age = each["process"]["start"] / _TICKS, each["age_s"]
        if age < 0 or (now is not None and abs(begun + age - now) > _SLACK_S):
            yield f"server {each['process']['pid']} is {age:.0f} s old, which its start contradicts"


def _order(node: Recorded) -> Iterator[str]:
    """Find events that come after those of later, or after the audit."""
    for each in objects(node.document, "servers_facts.Past"):
        ago = each.get("strikes_s", [])
        if any(one < 0 for one in ago) or ago != sorted(ago, reverse=True):
            yield "a strike lies in the future, or after a later one"
    for each in objects(node.document, "kernel_facts.KernelLog"):
        if any(one["sequence"] > each["last"] for one in objects(each, "kernel_facts.Event")):
            yield "an event of the kernel log comes after its last record"
    for each in objects(node.document, "jobs.Job"):
        if each["start"] > node.document["clock"] + _SLACK_S:
            yield f"job {each['job']} began after the audit"


def _directories(node: Recorded) -> Iterator[str]:
    for each in objects(node.document, "model.Directory"):
        path, names = each["path"], each.get("names", [])
        above = [""] if path == "/" else path.split("/")[:-1]
        prefixes = ["/".join(above[: end + 1]) or "/" for end in range(len(above))]
        parents = [one["path"] for one in each.get("parents", ())]
        if parents != prefixes[: len(parents)] or (each["kind"] == "directory" and parents != prefixes):
            yield f"the directories above {path} are not {', '.join(parents) or 'none'}"
        if names and each["kind"] != "directory":
            yield f"{path} holds names and is a {each['kind']}"
        if len({one["name"] for one in names}) < len(names):
            yield f"{path} holds a name twice"
        inodes = [(one["device"], one["inode"]) for one in names if one["links"] == 1]
        if len(set(inodes)) < len(inodes):
            yield f"{path} holds two files of one link each with the same inode"


def _private(node: Recorded) -> Iterator[str]:
    """Find paths that no node has for MPS's sake: they are of the machine that recorded it."""
    for text in texts((node.document, node.report)):
        for found in _PATH.finditer(text):
            if found[1] not in _OF_A_NODE and not found[1].endswith(_SLICES):
                yield f"/{found[1]} is no place of a node"
