"""`mpsfleet node audit`: probe, judge, print. The healthy path, so the words are read without argparse."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from mpsfleet.errors import VERDICT_EXIT, MpsfleetError, UsageError
from mpsfleet.node import config
from mpsfleet.node.host import Host
from mpsfleet.node.judge import judge, misconfigured
from mpsfleet.node.probe import probe, short_name

if TYPE_CHECKING:
    from mpsfleet.node.model import Report

USAGE = "usage: mpsfleet node audit [--json] [--config -]    (- reads a node.toml from standard input)"


def main(argv: list[str], root: str = "") -> int:
    """Audit this node and print the report. Returns 0 ok, 1 warning, 2 critical, 3 unknown."""
    as_json, text = _words(argv)
    host = Host.at(root)
    require_root(host, "node audit")
    result = audit(host, text)
    if as_json:
        from mpsfleet.node.render import json as render  # only what is printed is loaded

        write_line(render.report(result))
    else:
        from mpsfleet.node.render import text as render_text

        write_line(render_text.report(result))
    return VERDICT_EXIT[result.verdict]


def audit(host: Host, text: str | None = None) -> Report:
    """Return the judgement of the node, against node.toml or the given text of one."""
    desired, mistakes = config.load(host, text)
    if mistakes:
        return misconfigured(short_name(host), mistakes)
    return judge(probe(host, desired), desired)


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


def _words(argv: list[str]) -> tuple[bool, str | None]:
    as_json, text = False, None
    words = iter(argv)
    for word in words:
        if word == "--json":
            as_json = True
        elif word == "--config":
            text = read_config(next(words, ""))
        elif word in ("-h", "--help"):
            write_line(USAGE)
            raise SystemExit(0)
        else:
            raise UsageError(f"node audit does not know {word}; {USAGE}")
    return as_json, text


def read_config(word: str) -> str:
    """Return the node.toml text from standard input; a path is refused, so that root never opens a caller's path."""
    if word != "-":
        raise UsageError("--config takes only - (standard input): run `mpsfleet node audit --config - < FILE`")
    data = sys.stdin.buffer.read(65537)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise MpsfleetError("the node.toml on standard input is not UTF-8 text") from None
