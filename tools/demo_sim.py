"""The demo for everybody: a simulated fleet, without root, GPU or Slurm, and the playbooks of a real cluster."""

from __future__ import annotations

import os
import subprocess
from hashlib import sha256

import collection
from outcome import REPOSITORY
from story import LOG, StoryError, Teller, say

NODES = 4
# One fleet for each checkout: two demos of one person do not meet.
NAME = f"demo-{sha256(str(REPOSITORY).encode()).hexdigest()[:6]}"
_WAIT_S = 10.0


def tell(*, is_verbose: bool) -> None:
    """Run the whole story. StoryError where a step ends otherwise than told."""
    say("NVIDIA MPS lets several processes share a GPU. On each GPU node one control daemon serves the jobs that Slurm "
        "places there, through sockets in one directory. When it breaks, jobs fail or silently run without it. This is "
        "how mpsfleet looks after it.")  # fmt: skip
    say(f"First a cluster: {NODES} GPU nodes and a Slurm controller `ctl`. They are simulated, each in a directory of "
        "its own, and run as you on this machine: no GPU, no Slurm, no root. mpsfleet and the playbooks are the real "
        "ones.")  # fmt: skip
    quiet = _surroundings()
    first = Teller("", quiet, quiet, is_verbose)
    first.shell("mpsfleet", "sim", "up", str(NODES), "--terse")
    teller = first._replace(inventory=_inventory(), ansible={**quiet, **collection.surroundings(), **_FASTER})

    say("1. Deploy: directories, a systemd unit, the daemon. One node first, then the others; each is audited when "
        "it is done.")  # fmt: skip
    teller.play("deploy_mps")
    say("2. Audit the fleet. Every node says how it is, and Slurm is asked once. All well:")
    teller.play("check_mps_health", expect="4 ok; verdict ok")

    say("3. A user, alice, starts a job on n4, with half a GPU, so that there is something to be careful with.")
    teller.shell(
        "mpsfleet", "sim", "exec", "--user=alice", "ctl", "sbatch", "--nodelist=n4", "--gres=mps:50", "--wrap=sleep 600"
    )
    teller.wait_for(*_on("ctl"), "squeue", "--noheader", "--states=running", expect="n4", limit_s=_WAIT_S)

    say("4. Break three nodes in three ways.")
    teller.shell("mpsfleet", "sim", "break", "n1", "percentage-tampered")
    teller.shell("mpsfleet", "sim", "break", "n2", "daemon-killed")
    teller.shell("mpsfleet", "sim", "break", "n3", "directory-deleted")

    say("5. Audit again, and let it drain (`trigger_drain`): Slurm then sends no more jobs to nodes where they would "
        "fail. n2 and n3 are drained, and the reason is in Slurm. n1 is not: what a user can do to a node never drains "
        "it, or any user could empty the cluster.")  # fmt: skip
    teller.play("check_mps_health", "-e", "trigger_drain=true", code=2, expect="2 critical, 1 warn, 1 ok")
    teller.shell(*_on("ctl"), "sinfo", "-R", "--format=%40E %10u %N", expect="mpsfleet: daemon-absent")

    say("6. Repair. n1 needs no restart: deploying again sets the value back. n2 and n3 are reset while they are "
        "drained and empty, audited, and given back to Slurm, one after the other.")  # fmt: skip
    teller.play("deploy_mps", "--limit", "n1")
    teller.play("reset_mps", "--limit", "n2,n3", expect="verdict ok")

    say("7. A reset of n4, where alice's job runs, is refused, and nothing is touched.")
    teller.shell(*_on("n4"), "mpsfleet", "node", "reset", code=75)
    say("8. All well, no node drained, and the job has not noticed.")
    teller.play("check_mps_health", expect="4 ok; verdict ok")
    teller.shell(*_on("ctl"), "sinfo", expect="n[1-3]")
    teller.shell(*_on("ctl"), "squeue", "--states=running", expect="n4")


def down() -> int:
    """Take the demo's fleet away, whatever there is of it; what that says goes to the log."""
    with LOG.open("a", encoding="utf-8") as log:
        done = subprocess.run(
            ("mpsfleet", "sim", "down"),
            cwd=REPOSITORY,
            env=_surroundings(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=False,
            start_new_session=True,  # a second Ctrl-C does not reach it
        )
    return done.returncode


def _inventory() -> str:
    done = subprocess.run(
        ("mpsfleet", "sim", "inventory", "--path"), env=_surroundings(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        message = f"`mpsfleet sim inventory` said: {done.stderr.strip()}"
        raise StoryError(message)
    return done.stdout.strip()


def _on(node: str) -> tuple[str, ...]:
    """Return the start of a command line that runs the rest with a node's tools."""
    return ("mpsfleet", "sim", "exec", node)


# Local connections need no files of modules, and four nodes at once are no burden.
_FASTER = {"ANSIBLE_PIPELINING": "1", "ANSIBLE_FORKS": "4"}


def _surroundings() -> dict[str, str]:
    """Return the environment of all commands but Ansible's: a person's own, and the name of the demo's fleet."""
    return {**os.environ, "MPSFLEET_SIM_NAME": NAME}


NEXT = """\
What to try next:
  ./dev demo --keep                            the same, and the fleet stays up for you to break
  .venv/bin/mpsfleet explain daemon-absent     what a finding means, and what to do
  docs/how-to/deploy.md                        your own cluster
  sudo ./dev demo --lab                        the same on a real Slurm, systemd and MPS daemon (Debian, root)"""

WHILE_IT_IS_UP = f"""\
The fleet is still up. In this directory:
  export PATH=$PWD/.venv/bin:$PATH MPSFLEET_SIM_NAME={NAME} ANSIBLE_COLLECTIONS_PATH=$PWD/build/ansible
  mpsfleet sim faults
  mpsfleet sim break n2 gpu-lost
  mpsfleet sim exec n2 mpsfleet node audit
  ansible-playbook -i $(mpsfleet sim inventory --path) mpsfleet.mps.check_mps_health
  mpsfleet sim down"""
