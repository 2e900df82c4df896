"""A recorded node of tests/nodes/recorded/: what `mpsfleet node audit --record` wrote, and beside it about.toml."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import tomli

FOLDER = Path(__file__).parent / "recorded"
ABOUT, ANSWERS, REPORT = "about.toml", "answers.json", "report.json"
Document = dict[str, Any]
_PID = re.compile(r"^daemon [0-9]+$")  # of one that has no other name; it differs from making to making

CONFIG = """\
schema = 1

[gpus]
expected = 4

[slurm]
node_name = "n1"
cluster = "sim"
"""


class About(NamedTuple):
    """What about.toml says of a recorded node."""

    source: str  # what it is a recording of: "simulated node", or the make of a real one
    done: str  # what was done to it, in a sentence
    program: str  # the version of mpsfleet that recorded it
    date: str  # when, in UTC
    mps: str  # the driver whose MPS daemon and nvidia-smi it has
    verdict: str
    findings: tuple[tuple[str, str], ...] = ()  # code and subject of each that an audit must find, most severe first
    gpus: str = "a100:4"  # as `mpsfleet sim up --gpus` takes it
    fault: str = ""  # of `mpsfleet sim faults`, where it is one
    steps: tuple[str, ...] = ()  # how it is made again (README.md)
    config: str = CONFIG  # the node.toml that is deployed
    configured: str = ""  # the one that a step `configure` puts in its place
    needs_root: bool = False  # to be made again
    invented: bool = False  # changed by hand
    changed: str = ""  # then: what, and why

    @property
    def expected(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The verdict and the findings, in no order."""
        return self.verdict, tuple(sorted(self.findings))


def folders() -> tuple[Path, ...]:
    """Return the directories of all recorded nodes."""
    return tuple(sorted(each for each in FOLDER.iterdir() if each.is_dir()))


def about(folder: Path) -> About:
    """Read a node's about.toml. ValueError for what it must have and has not, or has and means nothing."""
    text = (folder / ABOUT).read_text(encoding="utf-8")
    return understood(tomli.loads(text))


def understood(said: Document) -> About:
    """Return the values of an about.toml."""
    strange = sorted(set(said) - set(About._fields))
    if strange:
        message = f"about.toml has {', '.join(strange)}, which means nothing"
        raise ValueError(message)
    missing = [each for each in About._fields if each not in About._field_defaults and each not in said]
    if missing:
        message = f"about.toml does not say {', '.join(missing)}"
        raise ValueError(message)
    values = {**said, "date": str(said["date"])}
    for name in ("findings", "steps"):
        rows = said.get(name, [])
        values[name] = tuple(tuple(each) if isinstance(each, list) else each for each in rows)
    return About(**values)


def found(report: Document) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the verdict of a report and its findings, as `About.expected`."""
    rows = ((each["code"], _PID.sub("daemon PID", each["subject"])) for each in report["findings"])
    return report["verdict"], tuple(sorted(rows))
