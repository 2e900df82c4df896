"""`mpsfleet explain`: what a finding code means, where it comes from, whether it can drain a node, what to do.

Takes a code, or a whole drain reason as `sinfo -R` shows it (`mpsfleet: daemon-wedged gpu2`).
"""

from __future__ import annotations

import sys

from mpsfleet.cli import unknown_word
from mpsfleet.codes import BY_NAME, CODES, FLAPPING, RESET, Code
from mpsfleet.errors import OK

_TAG = "mpsfleet:"
_ORIGINS = {
    "node": "the node itself",
    "user": "what a user does",
    "either": "the node or a user; which one cannot be told from this finding alone",
}
_RESET = f"""\
{RESET}: a planned reset of the node's MPS daemon
  The playbook reset_mps drained this node, and undrains it when the reset has been verified. If the run ended early,
  run it again for this node; it goes on from where it stopped.
"""
_FLAPPING = f"""\
{FLAPPING}: the node was drained too often within a week
  mpsfleet drained it, gave it back when it was well, and had to drain it again; now it is left to you. What it was
  drained for: `mpsfleet slurm history NODE`. When you know why: `mpsfleet slurm undrain NODE`.
"""
_REASONS = {RESET: _RESET, FLAPPING: _FLAPPING}


def main(argv: list[str]) -> int:
    """Print one code, or all of them without one. An unknown word is a UsageError."""
    words = [each for word in argv for each in word.split() if each != _TAG]
    if not words:
        width = max(len(each.code) for each in CODES)
        sys.stdout.write("".join(f"{each.code:{width}}  {each.severity:8}  {each.meaning}\n" for each in CODES))
        return OK
    if words[0] in ("--help", "-h"):
        sys.stdout.write("usage: mpsfleet explain [CODE | REASON]   without one: all codes\n")
        return OK
    if words[0] in _REASONS:
        sys.stdout.write(_REASONS[words[0]])
        return OK
    found = BY_NAME.get(words[0])
    if found is None:
        raise unknown_word("finding code", words[0], (*BY_NAME, *_REASONS))
    sys.stdout.write(_text(found))
    return OK


def _text(code: Code) -> str:
    drains = code.drain and code.origin == "node"
    return (
        f"{code.code} ({code.severity}): {code.meaning}\n"
        f"  caused by: {_ORIGINS[code.origin]}\n"
        f"  drains:    {_drain(code, certain=drains)}\n"
        f"  remedy:    {code.remedy}\n"
        f"  page:      docs/findings/{code.code}.md\n"
    )


def _drain(code: Code, *, certain: bool) -> str:
    if certain:
        return "yes, where drains are asked for (trigger_drain)"
    if code.drain:
        return "only when the finding itself shows that the node is the cause"
    return "never"
