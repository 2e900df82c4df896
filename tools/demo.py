"""`./dev demo`: a cluster on this machine in which MPS is deployed, broken on three nodes, drained, repaired.

Each command is shown as a person would type it. Ansible's own progress goes to build/demo.log; what changed stays,
and the sentences. The story is checked as it is told: where a step ends otherwise than it says, the demo fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import collection
from outcome import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LAB = "demo"  # beside a lab that somebody has up under the usual name
INVENTORY = f"/run/mpsfleet-lab/{LAB}/inventory.ini"
LOG = REPOSITORY / "build" / "demo.log"
NODES = 4
WIDTH = 100
WAIT_S = 30  # for Slurm to start a job on an idle node
_RESULT = re.compile(
    r"(?P<status>ok|changed|skipping|ignored|fatal|failed): \[(?P<host>[^\] ]+)(?P<elsewhere>[^\]]*)\](?P<rest>.*)"
)
_TASK = re.compile(r"TASK \[(?:[\w.]+ : )?(?P<name>.*)\] \*+")


class StoryError(Exception):
    """A step that did not end as the story says; one sentence."""


def main(words: list[str]) -> int:
    """Tell the story; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./dev demo", description="A cluster on this machine, broken and repaired.")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    parser.add_argument("--verbose", action="store_true", help="show all that Ansible says")
    options = parser.parse_args(words)
    LOG.parent.mkdir(exist_ok=True)
    LOG.write_text("", encoding="utf-8")
    down()  # what an earlier `--keep` left, broken as it may be
    failed = None
    try:
        Story(verbose=options.verbose).tell()
    except StoryError as error:
        failed = str(error)
    except KeyboardInterrupt:
        failed = "interrupted."
    if options.keep:
        say(WHILE_IT_IS_UP)
    else:
        down()
    if failed:
        sys.stderr.write(f"demo: {failed} All that was said is in {LOG.relative_to(REPOSITORY)}.\n")
        return 1
    say(NEXT)
    return 0


class Story:
    """The steps in order."""

    def __init__(self, *, verbose: bool) -> None:
        self.verbose = verbose

    def tell(self) -> None:
        """Run the whole story. StoryError where a step ends otherwise than told."""
        say(f"A Slurm cluster on this machine: a controller `ctl` and {NODES} GPU nodes `n1` to `n{NODES}`, each a "
            "small machine with its own systemd, sshd, slurmd and NVIDIA's own MPS control daemon. The GPUs are "
            "simulated. The first start fetches Debian packages and takes minutes, later ones seconds.")  # fmt: skip
        self.shell("lab/lab", "up", str(NODES))

        say("1. Deploy. One node first, then the others; each is audited when it is done.")
        self.play("deploy_mps")
        say("2. Audit the fleet. Every node says how it is, and Slurm is asked once. All well:")
        self.play("check_mps_health", expect="4 ok; verdict ok")

        say("3. alice starts a job on n4, so that there is something to be careful with.")
        self.shell(*on("ctl"), "runuser", "-u", "alice", "--",
                   "sbatch", "--chdir=/tmp", "--nodelist=n4", "--gres=mps:50", "--wrap=sleep 600")  # fmt: skip
        wait_for(*on("ctl"), "squeue", "--noheader", "--states=running", expect="n4")
        self.shell(*on("ctl"), "squeue", expect="n4")

        say("4. Break three nodes in three ways.")
        self.shell("lab/lab", "break", "n1", "percentage-tampered")
        self.shell("lab/lab", "break", "n2", "daemon-stopped")
        self.shell("lab/lab", "break", "n3", "directory-deleted")

        say("5. Audit again, and let it drain what would fail jobs. n2 and n3 are drained. n1 is not: what a user can "
            "do to a node never drains it, or any user could empty the cluster.")  # fmt: skip
        self.play("check_mps_health", "-e", "trigger_drain=true", code=2, expect="2 critical, 1 warn, 1 ok")
        self.shell(*on("ctl"), "sinfo", "-R", "--format=%40E %10u %N", expect="mpsfleet: daemon-wedged")

        say("6. Repair. n1 needs no restart: deploying again sets the value back. n2 and n3 are emptied, reset, "
            "audited and given back to Slurm, one after the other.")  # fmt: skip
        self.play("deploy_mps", "--limit", "n1")
        self.play("reset_mps", "--limit", "n2,n3", expect="verdict ok")

        say("7. A reset of n4, where alice's job runs, is refused, and nothing is touched.")
        self.shell(*on("n4"), "mpsfleet", "node", "reset", code=75)
        say("8. All well, no node drained, and the job has not noticed.")
        self.play("check_mps_health", expect="4 ok; verdict ok")
        self.shell(*on("ctl"), "sinfo", "-R", "--format=%40E %10u %N")
        self.shell(*on("ctl"), "squeue", "--states=running", expect="n4")

    def play(self, name: str, *words: str, code: int = 0, expect: str = "") -> None:
        """Run one playbook of the collection."""
        self.shell("ansible-playbook", "-i", INVENTORY, f"mpsfleet.mps.{name}", *words, code=code, expect=expect)

    def shell(self, *command: str, code: int = 0, expect: str = "") -> None:
        """Run a command as shown; its exit code must be `code` and its output hold `expect`."""
        print(f"$ {shlex.join(command)}", flush=True)
        heard: list[str] = []
        with subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=surroundings(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            lines = logged(process.stdout or (), heard)
            for line in lines if self.verbose or command[0] != "ansible-playbook" else sentences(lines):
                print(f"  {line}", flush=True)
        if process.returncode != code:
            message = f"`{shlex.join(command)}` ended with exit code {process.returncode}, not {code}."
            raise StoryError(message)
        if expect not in "\n".join(heard):
            message = f"`{shlex.join(command)}` did not say {expect!r}."
            raise StoryError(message)


def down() -> None:
    """Take the demo's cluster away; what that says goes to the log."""
    with LOG.open("a", encoding="utf-8") as log:
        command = ["lab/lab", "down"]
        subprocess.run(command, cwd=REPOSITORY, env=surroundings(), stdout=log, stderr=log, check=False)


def wait_for(*command: str, expect: str) -> None:
    """Repeat a question until the answer holds `expect`, or the limit is over; the next step then says so."""
    limit = time.monotonic() + WAIT_S
    while time.monotonic() < limit:
        answer = subprocess.run(
            command, cwd=REPOSITORY, env=surroundings(), capture_output=True, text=True, errors="replace", check=False
        )
        if expect in answer.stdout:
            return
        time.sleep(0.5)


def on(node: str) -> tuple[str, ...]:
    """Return the start of a command line that runs the rest on a node."""
    return ("lab/lab", "exec", node)


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


def surroundings() -> dict[str, str]:
    """Return the environment of all commands: the lab of the demo, and none of a person's Ansible configuration."""
    return {**os.environ, **collection.surroundings(), "MPSFLEET_LAB_NAME": LAB}


def say(paragraph: str) -> None:
    """Print a paragraph, wrapped; lines that start with a blank stay as they are."""
    print()
    for line in paragraph.splitlines():
        print(line if line.startswith(" ") or not line else textwrap.fill(line, WIDTH), flush=True)


NEXT = """\
What to try next:
  ./dev demo --keep                            the same, and the cluster stays up
  lab/lab faults                               what else can be broken
  build/mpsfleet.pyz explain daemon-wedged     what a finding means
  docs/deploy.md                               your own cluster"""

_PLAYBOOK = Path(".venv/bin/ansible-playbook")
WHILE_IT_IS_UP = f"""\
The cluster is still up. In this directory:
  export MPSFLEET_LAB_NAME={LAB} ANSIBLE_COLLECTIONS_PATH=$PWD/build/ansible
  lab/lab break n2 gpu-lost
  {_PLAYBOOK} -i {INVENTORY} mpsfleet.mps.check_mps_health
  lab/lab exec n2 mpsfleet node audit
  lab/lab down"""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
