"""`mpsfleet node audit`: probe, judge, print. The healthy path, so the words are read without argparse."""

from __future__ import annotations

import os
import sys

from mpsfleet.errors import UNKNOWN, VERDICT_EXIT, MpsfleetError, UsageError
from mpsfleet.node import config
from mpsfleet.node.host import Host
from mpsfleet.node.judge import judge, misconfigured
from mpsfleet.node.judge.presence import presence
from mpsfleet.node.probe import probe, short_name
from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.model import Facts, Report

USAGE = """\
usage: mpsfleet node audit [--json | --nagios] [--config - | --replay DIR | --record DIR [--record-names]]
  --json           one line of JSON
  --nagios         a line with performance data for Nagios and its relatives, then a line a finding
  --config -       judge against the node.toml on standard input
  --record DIR     keep every answer in a new directory, so that the audit can be repeated anywhere
  --record-names   keep names of machines and people as they are
  --replay DIR     audit a recorded node; reads nothing else, and needs no root"""


class _Wanted(NamedTuple):
    """The words of one command line."""

    form: str = ""  # "" | "json" | "nagios"
    text: str | None = None  # of a node.toml
    record: str | None = None
    replay: str | None = None
    keeps_names: bool = False


def main(argv: list[str], root: str = "") -> int:
    """Audit this node and print the report. Returns 0 ok, 1 warning, 2 critical, 3 unknown."""
    wanted = _words(argv)
    if wanted.form == "nagios":
        return _for_nagios(wanted, root)
    result, _ = _look(wanted, root)
    if wanted.form == "json":
        from mpsfleet.node.render import json as render  # only what is printed is loaded

        write_line(render.report(result))
    else:
        from mpsfleet.node.render import text as render_text

        write_line(render_text.report(result))
    return VERDICT_EXIT[result.verdict]


def audit(host: Host, text: str | None = None) -> Report:
    """Return the judgement of the node, against node.toml or the given text of one."""
    return look(host, text)[0]


def look(host: Host, text: str | None = None) -> tuple[Report, Facts | None]:
    """Return the judgement of the node and the facts it rests on; None where there is nothing to judge against."""
    desired, mistakes = config.load(host, text)
    if mistakes:
        return misconfigured(short_name(host), mistakes), None
    facts = probe(host, desired)
    return judge(facts, desired)._replace(mps=presence(facts, desired)), facts


def _look(wanted: _Wanted, root: str) -> tuple[Report, Facts | None]:
    """Look at this node, at one under a root, or at a recorded one."""
    if wanted.replay is not None:
        from mpsfleet.node.recorded import replay

        return replay.replay(replay.read(replay.directory(wanted.replay)), look)
    host = Host.at(root)
    if wanted.record is None:
        require_root(host, "node audit")
        return look(host, wanted.text)
    from mpsfleet.node.recorded import record

    path = record.directory(wanted.record)
    require_root(host, "node audit")
    return record.record(host, path, lambda: look(host, wanted.text), with_names=wanted.keeps_names)


def _for_nagios(wanted: _Wanted, root: str) -> int:
    """Print the report for a monitoring system, which reads standard output and four exit codes alone."""
    import time

    from mpsfleet.node.render import nagios

    begun = time.monotonic()
    try:
        result, facts = _look(wanted, root)
    except MpsfleetError as error:
        write_line(nagios.failure(str(error)))
        return UNKNOWN
    write_line(nagios.report(result, facts, time.monotonic() - begun))
    return VERDICT_EXIT[result.verdict]


def require_root(host: Host, verb: str) -> None:
    """Refuse to look at a node with fewer rights than its owner's: half a look would be a wrong verdict."""
    if os.geteuid() != host.owner_uid:
        raise MpsfleetError(f"`mpsfleet {verb}` must run as root; run it with sudo")
    settle_process()


def settle_process() -> None:
    """Take on nothing from the caller: working directory, umask and open descriptors are set from scratch."""
    os.chdir("/")
    os.umask(0o077)
    try:
        numbers = os.listdir("/proc/self/fd")
    except FileNotFoundError:  # a chroot without /proc, where an image is made
        return
    for number in numbers:
        if int(number) > 2:  # noqa: PLR2004  # the three standard streams
            try:
                os.set_inheritable(int(number), False)
            except OSError:  # the descriptor of the listing itself
                continue


def write_line(text: str) -> None:
    """Write a line to standard output."""
    sys.stdout.write(f"{text}\n")


def _words(argv: list[str]) -> _Wanted:
    wanted = _Wanted()
    words = iter(argv)
    for word in words:
        if word in ("--json", "--nagios"):
            wanted = wanted._replace(form=word[2:])
        elif word == "--config":
            wanted = wanted._replace(text=read_config(next(words, "")))
        elif word == "--record":
            wanted = wanted._replace(record=next(words, ""))
        elif word == "--record-names":
            wanted = wanted._replace(keeps_names=True)
        elif word == "--replay":
            wanted = wanted._replace(replay=next(words, ""))
        elif word in ("-h", "--help"):
            write_line(USAGE)
            raise SystemExit(0)
        else:
            raise UsageError(f"node audit does not know {word}; {USAGE.partition(chr(10))[0]}")
    if wanted.replay is not None and (wanted.text is not None or wanted.record is not None):
        raise UsageError("--replay judges a recording as it is; it takes neither --config nor --record")
    if wanted.keeps_names and wanted.record is None:
        raise UsageError("--record-names is of a recording: `mpsfleet node audit --record DIR --record-names`")
    return wanted


def read_config(word: str) -> str:
    """Return the node.toml text from standard input; a path is refused, so that root never opens a caller's path."""
    if word != "-":
        raise UsageError("--config takes only - (standard input): run `mpsfleet node audit --config - < FILE`")
    data = sys.stdin.buffer.read(65537)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise MpsfleetError("the node.toml on standard input is not UTF-8 text") from None
