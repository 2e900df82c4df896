"""`mpsfleet slurm lint`: read both files and perhaps a node's GPUs, judge, print; nothing is written.

Exit status: 0 ok, 1 warning, 2 critical, 3 a file could not be read, 64 wrong usage. Root under sudo reads slurm.conf
in one of its usual places alone, what that includes, and standard input: another path would be opened with rights that
the user does not have.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import TYPE_CHECKING

from mpsfleet.errors import VERDICT_EXIT, MpsfleetError, UsageError
from mpsfleet.show import show
from mpsfleet.slurm.commands import USUAL_CONFS, Unreadable
from mpsfleet.slurm.lint import gres_conf, judge_cluster, judge_gpus, judge_node, render, slurm_conf, wanted
from mpsfleet.slurm.lint.findings import Finding, Place, ordered, verdict
from mpsfleet.slurm.lint.told import Gpu, Told, gpus_of, tell

if TYPE_CHECKING:
    import argparse

    from mpsfleet.slurm.commands import Caller
    from mpsfleet.slurm.lint.gres_conf import GresConf
    from mpsfleet.slurm.lint.settings import Source
    from mpsfleet.slurm.lint.slurm_conf import SlurmConf

LIMIT = 8 * 1024 * 1024  # bytes of one file
_FIRST = "/etc/slurm/slurm.conf"


class FileError(MpsfleetError):
    """A file that is needed cannot be read."""


def lint(words: argparse.Namespace, caller: Caller, root: str = "") -> int:
    """Run the verb; `root` is the directory under which the controller or node lies. Raises MpsfleetError."""
    _refuse_paths_under_sudo(words, caller)
    source = _source(root)
    conf, gres = _read(words, root, source)
    told = _told(conf, gres, words.node)
    found = [*conf.findings, *(gres.findings if gres else ())]
    found += judge_cluster.judge(conf, told, judge_cluster.Site(words.pipe_directory, words.multi_user))
    if gres is None and words.node is None:
        found.append(Finding("gres-conf-missing", Place(conf.path, 0), "there is no gres.conf beside it"))
    else:
        found += [finding for each in told for finding in judge_node.judge(each)]
    if gres is not None and words.node is None:
        found += judge_node.together(gres, told)
    gpus = _gpus(words.gpus_json, told, source)
    if gpus is not None:
        found += judge_gpus.judge(told[0], gpus)
    findings = ordered(found)
    want = _want(words)
    changed = None if want is None else wanted.changes(conf, told, want)
    if words.json:
        text = json.dumps(render.as_json(conf, gres, told, findings, changed), separators=(",", ":"))
    else:
        text = "\n".join(render.lines(told, findings, changed))
    sys.stdout.write(f"{text}\n")
    return VERDICT_EXIT[verdict(findings)]


def _want(words: argparse.Namespace) -> wanted.Want | None:
    if words.want is None:
        return None
    shares = wanted.DEFAULT_SHARES[words.want] if words.shares is None else words.shares
    gpus = {name: count for count, names in words.shared for name in names}
    return wanted.Want(words.want, shares, gpus, words.multi_user)


def _refuse_paths_under_sudo(words: argparse.Namespace, caller: Caller) -> None:
    given = [
        option
        for option, value in (("--slurm-conf", words.slurm_conf), ("--gres-conf", words.gres_conf))
        if value is not None
    ]
    if words.gpus_json not in (None, "-"):
        given.append("--gpus-json with a file")
    if caller.is_sudo and given:
        raise UsageError(
            f"Under sudo, {given[0]} is not taken: root does not open a path of the caller's. "
            "Run this without sudo, or pass the GPUs on standard input (--gpus-json -).",
        )


def _read(words: argparse.Namespace, root: str, source: Source) -> tuple[SlurmConf, GresConf | None]:
    path = words.slurm_conf or _usual(root)
    text = _whole(path, source)
    beside = os.path.join(os.path.dirname(path), "gres.conf")
    gres_path = words.gres_conf or beside
    gres_text = source(gres_path)
    if gres_text is None and words.gres_conf is None:
        gres = None
    else:
        gres = gres_conf.parse(gres_path, _whole(gres_path, source), source)
    return slurm_conf.parse(path, text, source), gres


def _usual(root: str) -> str:
    for path in (_FIRST, *sorted(USUAL_CONFS - {_FIRST})):
        if os.path.exists(root + path):
            return path
    raise FileError(f"There is no {_FIRST}, nor slurm.conf in another usual place: name it with --slurm-conf.")


def _whole(path: str, source: Source) -> str:
    text = source(path)
    if text is None:
        raise FileError(f"There is no file {show(path)}.")
    if isinstance(text, Unreadable):
        raise FileError(f"{show(path)} cannot be read: {text.reason}.")
    return text


def _source(root: str) -> Source:
    def source(path: str) -> str | Unreadable | None:
        try:
            descriptor = os.open(root + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as stream:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return Unreadable("it is not a regular file")
                content = stream.read(LIMIT + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:  # ValueError: a path with a NUL
            return Unreadable(getattr(error, "strerror", None) or "its name is not a path")
        if len(content) > LIMIT:
            return Unreadable(f"it is larger than {LIMIT} bytes")
        return content.decode("utf-8", "replace")

    return source


def _told(conf: SlurmConf, gres: GresConf | None, only: str | None) -> tuple[Told, ...]:
    told = tell(conf, gres, only)
    if only is not None and not told:
        raise FileError(f"{show(conf.path)} has no node {show(only)}.")
    return told


def _gpus(given: str | None, told: tuple[Told, ...], source: Source) -> tuple[Gpu, ...] | None:
    if given is None:
        return None
    if sum(len(each.names) for each in told) != 1:
        raise UsageError("--gpus-json is about one node: name it with --node.")
    if given != "-":
        return gpus_of(_whole(given, source))
    content = sys.stdin.buffer.read(LIMIT + 1)
    if len(content) > LIMIT:
        raise FileError(f"The record of GPUs is larger than {LIMIT} bytes; nothing was read.")
    return gpus_of(content.decode("utf-8", "replace"))
