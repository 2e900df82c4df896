"""The exit codes of the program, and the errors that carry one sentence to a person.

An error says what was tried, on what, what came back and what to do next. OS errors are translated where they happen;
nothing but `MpsfleetError` is expected to reach `cli.main`.
"""

from __future__ import annotations

OK = 0
WARNING = 1
CRITICAL = 2  # also: asked for, and not in effect
UNKNOWN = 3  # could not ask, configuration invalid, or our own failure
USAGE = 64
REFUSED = 75  # a precondition does not hold; nothing was changed

VERDICT_EXIT = {"ok": OK, "warn": WARNING, "critical": CRITICAL, "unknown": UNKNOWN}


class MpsfleetError(Exception):
    """One sentence for a person; `exit_code` for the shell."""

    exit_code = UNKNOWN


class UsageError(MpsfleetError):
    """The command line is wrong; the sentence names the word and the nearest right one."""

    exit_code = USAGE


class Refused(MpsfleetError):
    """A precondition does not hold (a job is running, a drain is not ours). Nothing was changed."""

    exit_code = REFUSED


class NotInEffect(MpsfleetError):
    """The step was taken and its effect did not come about."""

    exit_code = CRITICAL
