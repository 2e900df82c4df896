"""A story told by running it: each command is shown as a person would type it, and must end as the story says.

Ansible's own progress goes to build/demo.log; what changed stays, and the sentences.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import signal
import subprocess
import textwrap
import time
from typing import TYPE_CHECKING, NamedTuple

from outcome import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

LOG = REPOSITORY / "build" / "demo.log"
WIDTH = 100
_RESULT = re.compile(
    r"(?P<status>ok|changed|skipping|ignored|fatal|failed): \[(?P<host>[^\] ]+)(?P<elsewhere>[^\]]*)\](?P<rest>.*)"
)
_TASK = re.compile(r"TASK \[(?:[\w.]+ : )?(?P<name>.*)\] \*+")
# How long a command may take to end after an interrupt, and after each sharper one.
_ENDINGS = ((3.0, signal.SIGINT), (10.0, signal.SIGTERM), (5.0, signal.SIGKILL))


class StoryError(Exception):
    """A step that did not end as the story says; one sentence."""


class Teller(NamedTuple):
    """Runs commands as shown. `is_verbose` shows all that Ansible says."""

    inventory: str
    ansible: Mapping[str, str]  # the whole environment of Ansible
    other: Mapping[str, str]  # and of everything else
    is_verbose: bool

    def play(self, name: str, *words: str, code: int = 0, expect: str = "") -> None:
        """Run one playbook of the collection."""
        self.shell("ansible-playbook", "-i", self.inventory, f"mpsfleet.mps.{name}", *words, code=code, expect=expect)

    def shell(self, *command: str, code: int = 0, expect: str = "") -> str:
        """Run a command as shown; its exit code must be `code` and its output hold `expect`. Return the output."""
        print(f"$ {shlex.join(command)}", flush=True)
        is_ansible = command[0] == "ansible-playbook"
        heard: list[str] = []
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=dict(self.ansible if is_ansible else self.other),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            lines = logged(process.stdout or (), heard)
            for line in sentences(lines) if is_ansible and not self.is_verbose else lines:
                print(f"  {line}", flush=True)
            process.wait()
        except BaseException:
            see_end(process)
            raise
        if process.returncode != code:
            message = f"`{shlex.join(command)}` ended with exit code {process.returncode}, not {code}."
            raise StoryError(message)
        if expect not in "\n".join(heard):
            message = f"`{shlex.join(command)}` did not say {expect!r}."
            raise StoryError(message)
        return "\n".join(heard)

    def wait_for(self, *command: str, expect: str, limit_s: float) -> None:
        """Repeat a question until the answer holds `expect`, or the limit is over; the next step then says so."""
        limit = time.monotonic() + limit_s
        while time.monotonic() < limit:
            answer = subprocess.run(
                command,
                cwd=REPOSITORY,
                env=dict(self.other),
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            if expect in answer.stdout:
                return
            time.sleep(0.5)


def see_end(process: subprocess.Popen[str]) -> None:
    """Wait until an interrupted command has ended: what it would still do must not meet the clean-up."""
    for wait_s, number in _ENDINGS:
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            process.send_signal(number)  # from a terminal it has had one; from elsewhere it has not
        except KeyboardInterrupt:  # once more: it does not end faster by that
            continue
        else:
            return
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


def logged(lines: Iterable[str], heard: list[str]) -> Iterator[str]:
    """Pass lines on, keeping each in `heard` and in the log."""
    with LOG.open("a", encoding="utf-8") as log:
        for line in lines:
            log.write(line)
            heard.append(line.rstrip())
            yield line.rstrip()


def sentences(lines: Iterable[str]) -> Iterator[str]:
    """Keep of Ansible's output what changed where, what failed and why, and the lines written for a person."""
    task, quoting = "", False
    for line in lines:
        heading, result = _TASK.match(line), _RESULT.match(line)
        if line.startswith("PLAY RECAP"):
            quoting = True
        elif heading:
            task, quoting = heading["name"], False
        elif result:
            quoting = False
            if result["status"] == "changed":
                yield f"{result['host']}: {task}: changed"
            elif result["status"] in ("fatal", "failed"):
                yield ("the play" if result["elsewhere"] else result["host"]) + f" failed: {_message(result['rest'])}"
        elif line.startswith(("[ERROR]", "[WARNING]", "[DEPRECATION")):
            quoting = True  # the message comes again with the host it belongs to, the lines around it do not matter
        elif line.strip() and not quoting and not line.startswith(("PLAY [", "NO MORE HOSTS")):
            yield line


def _message(rest: str) -> str:
    _, _, text = rest.partition("=> ")
    try:
        return str(json.loads(text)["msg"])
    except (ValueError, KeyError, TypeError):
        return text


def say(paragraph: str) -> None:
    """Print a paragraph, wrapped; lines that start with a blank stay as they are."""
    print()
    for line in paragraph.splitlines():
        print(line if line.startswith(" ") or not line else textwrap.fill(line, WIDTH), flush=True)
