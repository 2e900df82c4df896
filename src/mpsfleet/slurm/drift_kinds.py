"""The ways in which Slurm's books and the nodes drift apart: a table of kinds, and one case of a kind as a value."""

from __future__ import annotations

from typing import NamedTuple

from mpsfleet.slurm.notices import INFO, Notice


class Kind(NamedTuple):
    """A kind of drift: a fixed word, its usual severity, what it means."""

    word: str
    severity: str  # of codes.SEVERITIES, or INFO
    about: str


KINDS = (
    Kind("mps-not-running", "critical", "Slurm sends jobs for gres/mps or gres/shard where no control daemon serves."),
    Kind("allocated-without-daemon", "critical", "Jobs have shares of a GPU whose daemon does not serve."),
    Kind("mps-not-registered", "warn", "Slurm has no gres/mps and no gres/shard of a node that is under MPS."),
    Kind("mps-count", "warn", "Slurm shares more GPUs of the node than are under MPS."),
    Kind("gpu-count", "warn", "Slurm has another number of GPUs than the node."),
    Kind("gpu-type", "warn", "Slurm's type of the GPUs is the model of others."),
    Kind("invalid-registration", "warn", "The node registered with less than slurm.conf gives it, and takes no jobs."),
    Kind("process-without-job", "warn", "A process uses MPS on GPUs that Slurm counts as free."),
    Kind("unknown-node", "unknown", "The inventory's name of the node is not one that Slurm knows."),
    Kind("name-claimed-twice", "unknown", "Several hosts of the inventory have the same name in Slurm."),
    Kind("not-audited", INFO, "Slurm shares GPUs of a node that no host of the inventory is."),
)
BY_WORD = {each.word: each for each in KINDS}


class Drift(NamedTuple):
    """One case. In `mend`, HOST stands for the host's name in the inventory and NODE for its name in Slurm."""

    kind: str
    severity: str
    host: str
    node: str | None  # None where Slurm knows none
    gpu: int | None  # nvidia-smi's index at the deploy; None for the node as a whole
    sentence: str
    mend: str

    @property
    def notice(self) -> Notice:
        """What a verdict says of it."""
        return Notice(self.severity, self.sentence, self.mend)


def drift(kind: str, sentence: str, mend: str, gpu: int | None = None, severity: str | None = None) -> Drift:
    """Make a case of a known kind, of a host that is still to be named."""
    return Drift(kind, severity or BY_WORD[kind].severity, "", None, gpu, sentence, mend)
