"""The contract's page: facts by implementation, the releases that were asked, and the differences that are known."""

from __future__ import annotations

import datetime as dt
import os

from contract.implementations import IMPLEMENTATIONS, release

_WORDS = {"passed": "yes", "failed": "**no**", "skipped": "not asked"}
_HEAD = """\
# The simulator's contract

Written by `python -m pytest tests/sim/contract --contract-table docs/simulator-contract.md`: the same assertions ran on
NVIDIA's own control daemons and on the simulated one, {date}, {who}. Servers were played by a stand-in script on both,
for no server of NVIDIA's runs without a GPU. "NVIDIA" is the daemon of Debian's package `nvidia-cuda-mps`
({releases}); the simulated 550 stands for 555 too.

"""
_DIFFERENCES = """
## Known differences

- **Servers and clients.** An active server, its clients, FAULT, recovery and `terminate_client` were never seen on a
  machine without a GPU. They follow NVIDIA's manual and public reports; the rows of `ps` and
  `get_device_client_list` are a guess at the form.
- **Turned away.** While NVIDIA's daemon serves a command line, another is mostly told `Cannot send command to MPS
  control daemon process`, and sometimes ends without a word with 0 or 1. The simulated one always says it.
- **Log.** NVIDIA's 535 and older do not say `Force shutting down server N`, 470 not `quit command issued …`; so does the
  simulated one. NVIDIA's prints some warnings of a start twice, the simulated one once.
- **Users.** A command or client has a declared user, so several can be played without root; NVIDIA's has the real one.
  As root, the simulated servers and clients really take the declared uid.
- **Start.** NVIDIA's `-d` returns after some 5 ms, the simulated one after 100 to 200 ms; a query takes 5 ms and 30 ms.
- **Protocol.** What is said on the sockets is the simulator's own: neither program understands the other's daemon, and
  no CUDA program can be a client.
"""


class Results:
    """How each fact came out, in the order in which they were told."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[str, str]] = {}

    def note(self, fact: tuple[str, str], implementation: str, outcome: str) -> None:
        """Keep an outcome; a failure is not forgotten."""
        row = self._found.setdefault(fact, {})
        if row.get(implementation) != "failed":
            row[implementation] = outcome

    def page(self) -> str:
        """Return the page in Markdown."""
        names = [each.name for each in IMPLEMENTATIONS]
        releases = ", ".join(release(each) or f"{each.version}: not here" for each in IMPLEMENTATIONS if each.is_real)
        who = "as root" if os.geteuid() == 0 else "as an ordinary user"
        page = _HEAD.format(date=dt.datetime.now(dt.timezone.utc).date(), who=who, releases=releases)
        for about in dict.fromkeys(about for about, _ in self._found):
            page += f"## {about}\n\n| fact | {' | '.join(names)} |\n| --- |{' --- |' * len(names)}\n"
            for (its, sentence), row in self._found.items():
                if its == about:
                    cells = (_WORDS.get(row.get(name, "skipped"), "?") for name in names)
                    page += f"| {sentence.replace('|', chr(92) + '|')} | {' | '.join(cells)} |\n"
            page += "\n"
        return page.rstrip("\n") + "\n" + _DIFFERENCES
