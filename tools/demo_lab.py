"""The demo on the lab: a real Slurm cluster on this machine, its nodes with systemd and NVIDIA's own control daemon."""

from __future__ import annotations

import os
import subprocess

import collection
from outcome import REPOSITORY
from story import LOG, Teller, say

NAME = "demo"  # beside a lab that somebody has up under the usual name
INVENTORY = f"/run/mpsfleet-lab/{NAME}/inventory.ini"
NODES = 4
WAIT_S = 30  # for Slurm to start a job on an idle node


def tell(*, is_verbose: bool) -> None:
    """Run the whole story. StoryError where a step ends otherwise than told."""
    teller = Teller(INVENTORY, _surroundings(), _surroundings(), is_verbose)
    say(f"A Slurm cluster on this machine: a controller `ctl` and {NODES} GPU nodes `n1` to `n{NODES}`, each a "
        "small machine with its own systemd, sshd, slurmd and NVIDIA's own MPS control daemon. The GPUs are "
        "simulated. The first start fetches Debian packages and takes minutes, later ones seconds.")  # fmt: skip
    teller.shell("lab/lab", "up", str(NODES))

    say("1. Deploy. One node first, then the others; each is audited when it is done.")
    teller.play("deploy_mps")
    say("2. Audit the fleet. Every node says how it is, and Slurm is asked once. All well:")
    teller.play("check_mps_health", expect="4 ok; verdict ok")

    say("3. alice starts a job on n4, so that there is something to be careful with.")
    teller.shell(*_on("ctl"), "runuser", "-u", "alice", "--",
                 "sbatch", "--chdir=/tmp", "--nodelist=n4", "--gres=mps:50", "--wrap=sleep 600")  # fmt: skip
    teller.wait_for(*_on("ctl"), "squeue", "--noheader", "--states=running", expect="n4", limit_s=WAIT_S)
    teller.shell(*_on("ctl"), "squeue", expect="n4")

    say("4. Break three nodes in three ways.")
    teller.shell("lab/lab", "break", "n1", "percentage-tampered")
    teller.shell("lab/lab", "break", "n2", "daemon-killed")
    teller.shell("lab/lab", "break", "n3", "directory-deleted")

    say("5. Audit again, and let it drain what would fail jobs. n2 and n3 are drained. n1 is not: what a user can "
        "do to a node never drains it, or any user could empty the cluster.")  # fmt: skip
    teller.play("check_mps_health", "-e", "trigger_drain=true", code=2, expect="2 critical, 1 warn, 1 ok")
    teller.shell(*_on("ctl"), "sinfo", "-R", "--format=%40E %10u %N", expect="mpsfleet: daemon-absent")

    say("6. Repair. n1 needs no restart: deploying again sets the value back. n2 and n3 are emptied, reset, "
        "audited and given back to Slurm, one after the other.")  # fmt: skip
    teller.play("deploy_mps", "--limit", "n1")
    teller.play("reset_mps", "--limit", "n2,n3", expect="verdict ok")

    say("7. A reset of n4, where alice's job runs, is refused, and nothing is touched.")
    teller.shell(*_on("n4"), "mpsfleet", "node", "reset", code=75)
    say("8. All well, no node drained, and the job has not noticed.")
    teller.play("check_mps_health", expect="4 ok; verdict ok")
    teller.shell(*_on("ctl"), "sinfo", "-R", "--format=%40E %10u %N")
    teller.shell(*_on("ctl"), "squeue", "--states=running", expect="n4")


def down() -> int:
    """Take the demo's cluster away, whatever there is of it; what that says goes to the log."""
    with LOG.open("a", encoding="utf-8") as log:
        done = subprocess.run(
            ("lab/lab", "down"),
            cwd=REPOSITORY,
            env=_surroundings(),
            stdout=log,
            stderr=log,
            check=False,
            start_new_session=True,  # a second Ctrl-C does not reach it
        )
    return done.returncode


def _on(node: str) -> tuple[str, ...]:
    """Return the start of a command line that runs the rest on a node."""
    return ("lab/lab", "exec", node)


def _surroundings() -> dict[str, str]:
    """Return the environment of all commands: the lab of the demo, and none of a person's Ansible configuration."""
    return {**os.environ, **collection.surroundings(), "MPSFLEET_LAB_NAME": NAME}


NEXT = """\
What to try next:
  ./dev demo --lab --keep                      the same, and the cluster stays up
  lab/lab faults                               what else can be broken
  build/mpsfleet.pyz explain daemon-absent     what a finding means
  docs/how-to/deploy.md                        your own cluster"""

WHILE_IT_IS_UP = f"""\
The cluster is still up. In this directory:
  export MPSFLEET_LAB_NAME={NAME} ANSIBLE_COLLECTIONS_PATH=$PWD/build/ansible
  lab/lab break n2 gpu-lost
  .venv/bin/ansible-playbook -i {INVENTORY} mpsfleet.mps.check_mps_health
  lab/lab exec n2 mpsfleet node audit
  lab/lab down"""
