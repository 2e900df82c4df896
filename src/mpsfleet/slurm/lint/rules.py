"""Every code of the lint: how severe it is, what Slurm does about it, and what a person can do.

The one table that judges, output and documentation read. What Slurm does was seen on 22.05.8; that a daemon ends, on
24.11.5 too.
"""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """One kind of finding."""

    code: str
    severity: str  # "ok" (a note) | "warn" | "unknown" | "critical"
    slurm: str  # what Slurm does, for documentation
    remedy: str


_COUNTS = "Make the counts of Gres in slurm.conf and of the lines in gres.conf equal."
_HOOK = "Set it to the program of mpsfleet, or call that from the site's own."

RULES: tuple[Rule, ...] = (
    Rule(
        "unreadable",
        "unknown",
        "The daemons run as other users and may read it.",
        "Run this as a user who may read the file.",
    ),
    Rule(
        "gres-conf-missing",
        "ok",
        "Each node reads the gres.conf of its own.",
        "Run this on the nodes too, each with its --node.",
    ),
    Rule(
        "include-missing",
        "critical",
        "Every daemon waits 60 s for the file, then ends.",
        "Create the file first, then the Include line.",
    ),
    Rule("include-cycle", "critical", "slurmd reads on without an end (22.05).", "Take the Include line out."),
    Rule(
        "line-not-understood",
        "critical",
        "The daemons end: parse error.",
        "Write key=value, and a value with spaces in double quotes.",
    ),
    Rule("list-comma", "warn", "It is let pass (24.11).", "Take the comma out, or put the name that is missing there."),
    Rule("key-unknown", "critical", "slurmd ends: unrecognized key.", "Write the key as gres.conf(5) has it."),
    Rule(
        "key-repeated",
        "warn",
        "The last value is used, the others are dropped with a line in the log.",
        "Keep one of them; two programs need one that calls both.",
    ),
    Rule(
        "gres-not-understood",
        "critical",
        "The entry is ignored, or counts as something else.",
        "Write name[:type][:count].",
    ),
    Rule("gres-comma", "warn", "It is let pass.", "Take the last comma out."),
    Rule("count-invalid", "critical", "slurmd ends.", "Write a count of 0 or more."),
    Rule(
        "count-not-files",
        "critical",
        "slurmd ends: count does not match File value.",
        "Leave Count out of lines with Name=gpu and File.",
    ),
    Rule(
        "cpus-key",
        "warn",
        "The numbers are read as cores; thread numbers are refused with an error in the log.",
        "Write Cores with numbers of cores (scontrol show node, slurmd -C).",
    ),
    Rule(
        "gres-types",
        "critical",
        "slurmctld and slurmd ignore the resource; jobs that ask for it are refused.",
        "Add the name to GresTypes, on the nodes first.",
    ),
    Rule(
        "gres-types-both",
        "warn",
        "A job's percentage is reckoned from the shards, and jobs with one of the two lack their GPU's number.",
        "Keep one of mps and shard in GresTypes.",
    ),
    Rule(
        "select-type",
        "critical",
        "slurmctld ends: shared gres requires select/cons_tres.",
        "Set SelectType=select/cons_tres.",
    ),
    Rule(
        "select-type-unset",
        "warn",
        "22.05: slurmctld ends; 24.11: select/cons_tres is the default.",
        "Set SelectType=select/cons_tres.",
    ),
    Rule(
        "node-repeated",
        "critical",
        "slurmctld ends: duplicated NodeHostName.",
        "Put all of the node's settings on its one NodeName line.",
    ),
    Rule(
        "gres-name-case",
        "critical",
        "slurmd takes it for another resource: shares are not spread over the GPUs, nor GPUs told apart (24.11).",
        "Write gpu, mps and shard in lower case.",
    ),
    Rule(
        "autodetect-unknown",
        "critical",
        "slurmd finds no GPU by itself: the count is too low, and with mps or shard slurmd ends (24.11).",
        "Write AutoDetect=nvml, or nvidia where slurmd knows it, or off and lines with File.",
    ),
    Rule(
        "gres-conf-for-all",
        "warn",
        "A node without GPUs that reads these lines waits for the device file, then its slurmd ends (24.11).",
        "Begin the lines with NodeName=, or check each node's own file there with --node.",
    ),
    Rule(
        "gpu-count-low",
        "critical",
        "The node is drained (count reported lower than configured), or MPS is spread over fewer GPUs.",
        _COUNTS,
    ),
    Rule("gpu-count-high", "warn", "slurmd ignores what is above the count of slurm.conf.", _COUNTS),
    Rule(
        "gpu-type",
        "critical",
        "slurmd ignores the lines of the other type, and ends where shares depend on them.",
        "Write the same Type in both files.",
    ),
    Rule(
        "gpu-without-file",
        "warn",
        "Slurm counts GPUs, and binds no job to one.",
        "Name the device files: Name=gpu File=/dev/nvidia[0-3].",
    ),
    Rule(
        "gpu-repeated",
        "critical",
        "slurmd ends: duplicate records.",
        "Keep one line, or give each line its File.",
    ),
    Rule(
        "shared-without-gpu",
        "critical",
        "slurmd ends: failed to merge SHARED and SHARING configuration.",
        "Give the node gpu in Gres, and Name=gpu lines with File.",
    ),
    Rule(
        "shared-file-without-gpu",
        "critical",
        "slurmd drops the line, so the count is too low and the node is drained.",
        "Name the same File on a line with Name=gpu.",
    ),
    Rule(
        "shared-files-mixed",
        "critical",
        "slurmd ends: some records have File while others do not.",
        "Write one line with a Count and no File, or only lines with File.",
    ),
    Rule("shared-count-low", "critical", "slurmd ends.", _COUNTS),
    Rule("shared-count-high", "warn", "slurmd ignores what is above the count of slurm.conf.", _COUNTS),
    Rule(
        "shared-not-in-slurm-conf",
        "warn",
        "slurmd ignores the lines.",
        "Add it to the node's Gres as the next step of the roll-out, or take the lines out.",
    ),
    Rule(
        "shared-type",
        "warn",
        "slurmd ignores the lines of gres.conf and spreads the count of slurm.conf evenly.",
        "Leave the type out of mps and shard in both files, or write the same one.",
    ),
    Rule("count-uneven", "warn", "The last GPU gets what is left over.", "Give each GPU the same count."),
    Rule(
        "mps-percent",
        "warn",
        "A job's count is translated to a percentage of its GPU and rounded down.",
        "Give each GPU a multiple of 100.",
    ),
    Rule(
        "mps-several-gpus",
        "warn",
        "While one GPU of a node serves mps, further mps jobs get that GPU alone; the others stay idle.",
        "Use gres/shard with a daemon per GPU, or give mps to one GPU of the node.",
    ),
    Rule(
        "mps-and-shard",
        "critical",
        "The GPU is given away twice: jobs with all of its mps and all of its shards run at once (22.05).",
        "Give a GPU either mps or shard.",
    ),
    Rule(
        "device-repeated",
        "warn",
        "What is above the count of slurm.conf is ignored.",
        "Name each device on one line of each kind.",
    ),
    Rule(
        "gpu-not-on-node",
        "critical",
        "slurmd waits for the device file, then ends.",
        "Take the numbers from /proc/driver/nvidia (Device Minor): they are not nvidia-smi's indices.",
    ),
    Rule("gpu-not-in-gres-conf", "warn", "Slurm does not know the GPU.", "Add its File, or leave it as it is."),
    Rule(
        "gpu-other-model",
        "critical",
        "Jobs that ask for the type get another GPU.",
        "Take the number from the GPU's Device Minor in /proc/driver/nvidia, not from nvidia-smi's index.",
    ),
    Rule(
        "shared-without-daemon",
        "critical",
        "Jobs are sent there and find no MPS daemon.",
        "Put the GPU under MPS (mps_gpus), or take it out of the mps and shard lines.",
    ),
    Rule(
        "shard-fills-first",
        "ok",
        "The shards of one GPU are given away before those of the next.",
        "From Slurm 23.11 on, add LL_SHARED_GRES to SelectTypeParameters to spread jobs over the GPUs.",
    ),
    Rule("prolog-missing", "warn", "Nothing is run before a job.", _HOOK),
    Rule("epilog-missing", "warn", "Nothing is run after a job.", _HOOK),
    Rule(
        "task-prolog-missing",
        "warn",
        "Slurm never sets CUDA_MPS_PIPE_DIRECTORY.",
        _HOOK,
    ),
    Rule("health-check-missing", "ok", "Nobody asks the node.", "Set it, or audit by a timer or from Ansible."),
    Rule(
        "hook-other", "ok", "The site's program is run.", "See that it calls mpsfleet's; nothing was looked at in it."
    ),
    Rule(
        "prolog-flags",
        "warn",
        "The prolog runs at the job's first step, not when the GPU is given to it.",
        "Set PrologFlags=Alloc (Contain and X11 include it).",
    ),
    Rule(
        "several-users",
        "warn",
        "Jobs of several users are placed on one GPU; MPS serves one user at a time, so the others wait.",
        "Set ExclusiveUser=YES for the partition, or run the daemons as multi-user servers and lint with --multi-user.",
    ),
    Rule(
        "private-tmp",
        "critical",
        "Each job has a /tmp of its own and finds no daemon there.",
        "Put the pipe directory outside /tmp (mps_ipc_dir: /run/nvidia-mps/node).",
    ),
)
BY_CODE = {each.code: each for each in RULES}
