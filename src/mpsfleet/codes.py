"""Every finding code: how severe it is, where it comes from, whether it may drain a node, and what to do about it.

The one table that judges, the drain policy and the documentation read. A code is a word, room first, and is never
reused. `drain` says that jobs on the node would fail and that the node itself is the cause; a finding whose origin is
"user" or "either" never drains, whatever its code says here (a judge may lower a code's origin, never raise its drain).
"""

from __future__ import annotations

from typing import NamedTuple

SEVERITIES = ("ok", "warn", "unknown", "critical")  # in rising order; the verdict is the highest


class Code(NamedTuple):
    """One kind of finding."""

    code: str
    severity: str  # "warn" | "unknown" | "critical"
    origin: str  # "node" | "user" | "either"
    drain: bool
    meaning: str  # one sentence, for documentation
    remedy: str  # one sentence, what a person can do


_RESET = "Reset the daemon when the node is free: playbook reset_mps, or `mpsfleet node reset` on the drained node."
_APPLY = "Deploy again (playbook deploy_mps, or `mpsfleet node apply`)."
_REBOOT = "Drain the node and reboot it; restarting MPS does not help."

CODES: tuple[Code, ...] = (
    Code("daemon-absent", "critical", "node", True, "No control daemon runs for the pipe directory.", _RESET),
    Code(
        "daemon-wedged",
        "critical",
        "either",
        True,
        "The control daemon runs and accepts connections, but does not answer within the time limit.",
        _RESET,
    ),
    Code(
        "daemon-busy",
        "unknown",
        "user",
        False,
        "Other connections kept the control daemon busy for the whole time limit, so it could not be asked.",
        "Look for a program that queries the daemon in a loop; the daemon serves one connection at a time.",
    ),
    Code(
        "daemon-unreachable",
        "critical",
        "node",
        True,
        "The control daemon is alive, but its files were deleted, so nobody can connect to it.",
        _RESET,
    ),
    Code(
        "daemon-unreachable-by-users",
        "critical",
        "node",
        True,
        "Root reaches the control daemon and an ordinary user does not, so jobs cannot connect.",
        _RESET,
    ),
    Code(
        "daemon-duplicate",
        "warn",
        "node",
        False,
        "A second control daemon runs for the same pipe directory or the same GPUs.",
        "Reset the node when it is free; one on another directory only with `--others` (mps_reset_others: true).",
    ),
    Code(
        "socket-hijacked",
        "critical",
        "user",
        False,
        "A socket in the pipe directory is served by a process that is not the control daemon of that directory.",
        _RESET,
    ),
    Code(
        "server-fault",
        "critical",
        "user",
        False,
        "A client's GPU fault put its MPS server into FAULT: it takes no new client until all it has have ended.",
        "End the jobs of the named clients (`scancel`); the server recovers by itself when its last client has ended.",
    ),
    Code(
        "server-recovered",
        "warn",
        "user",
        False,
        "An MPS server was in FAULT at an audit within the last hour, and serves again.",
        "Nothing to do now; if it comes back, look for the program of that user that faults on the GPU.",
    ),
    Code(
        "server-orphaned",
        "warn",
        "either",
        False,
        "An MPS server outlived its control daemon: no daemon lists it, and it may hold memory of a GPU.",
        "When no job uses it any more, end it (`kill PID`, see the evidence); mpsfleet never ends one that has clients.",
    ),
    Code(
        "server-not-ready",
        "warn",
        "either",
        False,
        "An MPS server is stopped, hangs, or has not become ready for a minute, so its clients wait.",
        "Read server.log in the log directory; without nvidia-persistenced many GPUs start slowly. Then `node reset`.",
    ),
    Code(
        "server-crash-loop",
        "critical",
        "either",
        False,
        "The control daemon's servers end soon after their start, again and again.",
        "Read control.log and server.log in the log directory; check the driver, and whether users can pass the directory.",
    ),
    Code(
        "server-dead",
        "warn",
        "either",
        False,
        "The control daemon lists an MPS server that has ended.",
        _RESET,
    ),
    Code(
        "client-waiting",
        "warn",
        "user",
        False,
        "Clients of one user wait behind the MPS server of another: a daemon serves one user at a time.",
        "End one user's jobs on the GPU, or wait; ExclusiveUser=YES on the partition keeps users apart.",
    ),
    Code(
        "client-without-job",
        "warn",
        "either",
        False,
        "An MPS client belongs to no job that runs on the node.",
        "Look at the process (pid in the evidence) and end it if nobody needs it.",
    ),
    Code(
        "client-limit-near",
        "warn",
        "user",
        False,
        "An MPS server has nearly as many clients as it takes (48; 16 before Volta), then refuses new ones (error 808).",
        "Let fewer processes share the GPU, or give Slurm's mps shares a larger minimum.",
    ),
    Code(
        "job-bypasses-mps",
        "warn",
        "either",
        False,
        "A job that asked for MPS computes on its GPU beside MPS, without its share's limits.",
        "Deploy the TaskProlog (`mpsfleet node hook task-prolog`); see that the job keeps CUDA_MPS_PIPE_DIRECTORY.",
    ),
    Code("directory-missing", "critical", "node", True, "The pipe directory does not exist.", _RESET),
    Code(
        "log-directory-missing",
        "warn",
        "node",
        False,
        "The log directory does not exist, so the daemon's next start has nowhere to log; jobs are not affected.",
        _RESET,
    ),
    Code(
        "directory-owner",
        "critical",
        "either",
        False,
        "The pipe or log directory does not belong to root.",
        _RESET,
    ),
    Code(
        "directory-mode",
        "critical",
        "either",
        False,
        "The pipe or log directory has a mode other than 0755; what others can write is unsafe for root's daemon.",
        _RESET,
    ),
    Code(
        "directory-parent",
        "critical",
        "node",
        False,
        "A directory above the pipe or log directory cannot be traversed by users, or can be changed by them.",
        "Give the named directory back to root with mode 0755 (or 1777 for /tmp).",
    ),
    Code(
        "directory-hijacked",
        "critical",
        "user",
        False,
        "The name of the pipe or log directory is a link or a file, not a directory.",
        _RESET,
    ),
    Code(
        "percentage-tampered",
        "warn",
        "user",
        False,
        "The default thread percentage was changed on the running daemon.",
        "Deploy again, or run `mpsfleet node apply`: it sets the value back without a restart.",
    ),
    Code(
        "percentage-differs",
        "warn",
        "node",
        False,
        "The control daemon was started with a thread percentage other than the configured one.",
        "Deploy again, or run `mpsfleet node apply`: it sets the value without a restart.",
    ),
    Code(
        "memory-limit-differs",
        "warn",
        "either",
        False,
        "The default limit of device memory is not the configured one; drivers up to 535 let any user change it.",
        "Deploy again, or run `mpsfleet node apply`: it sets the value without a restart.",
    ),
    Code(
        "memory-limit-unsupported",
        "warn",
        "node",
        False,
        "A memory limit is configured, and the driver's MPS knows none (470 and older).",
        "Take pinned_memory_limit out of node.toml (mps_pinned_memory_limit), or upgrade the driver.",
    ),
    Code(
        "daemon-wrong-gpus",
        "critical",
        "node",
        True,
        "A control daemon was started for other GPUs than the recorded ones, so jobs land on GPUs that are not theirs.",
        _RESET,
    ),
    Code(
        "default-directory-squatted",
        "critical",
        "user",
        False,
        "NVIDIA's default pipe directory belongs to a user, who can stop every CUDA program that looks there.",
        "Deploy again, or run `mpsfleet node prepare`: it takes the name back where no daemon serves it.",
    ),
    Code(
        "mps-package-missing",
        "critical",
        "node",
        True,
        "NVIDIA's MPS control program is not installed.",
        "Install it (Debian: nvidia-cuda-mps; Ubuntu: nvidia-compute-utils-VERSION; RHEL: nvidia-driver-cuda).",
    ),
    Code("gpu-lost", "critical", "node", True, "A GPU is lost: the driver no longer reaches it.", _REBOOT),
    Code("gpu-requires-reset", "critical", "node", True, "The driver says a GPU must be reset.", _REBOOT),
    Code("gpu-missing", "critical", "node", True, "Fewer GPUs are visible than expected.", _REBOOT),
    Code(
        "gpus-unrecorded",
        "critical",
        "either",
        False,
        "Which daemons the node should run depends on its GPUs, and they are not recorded.",
        _APPLY,
    ),
    Code(
        "gpu-changed",
        "warn",
        "node",
        False,
        "A GPU is not the one that the deploy recorded.",
        "If a GPU was exchanged, remove /etc/mpsfleet/gpus.json and deploy again; otherwise find the missing one.",
    ),
    Code(
        "gpu-unmatched",
        "warn",
        "node",
        False,
        "[gpus] mps names a GPU, by index or UUID, that the node does not have.",
        "Correct mps_gpus for this host (`nvidia-smi -L` lists its GPUs) and deploy again.",
    ),
    Code(
        "gpu-mig",
        "warn",
        "node",
        False,
        "A GPU that should be under MPS is in MIG mode, which mpsfleet does not serve.",
        "Leave the GPU out of mps_gpus, or turn MIG off (`nvidia-smi -i GPU -mig 0`), and deploy again.",
    ),
    Code(
        "compute-mode-differs",
        "warn",
        "node",
        False,
        "The compute mode of a GPU under MPS is not the configured one (it does not outlive a reboot).",
        "Deploy again, or run `mpsfleet node apply`.",
    ),
    Code("gpu-error", "critical", "node", True, "nvidia-smi reports an error for a GPU.", _REBOOT),
    Code(
        "driver-mismatch",
        "critical",
        "node",
        True,
        "The NVIDIA libraries and the loaded kernel driver have different versions.",
        "Drain the node and reboot it, or reload the driver when no process uses it; pin the driver packages.",
    ),
    Code(
        "driver-not-loaded",
        "critical",
        "node",
        True,
        "nvidia-smi cannot communicate with the NVIDIA driver.",
        "Load the driver (`modprobe nvidia`) or install the one that matches the running kernel, then audit again.",
    ),
    Code(
        "nvidia-smi-wedged",
        "critical",
        "node",
        True,
        "nvidia-smi hangs in the driver (uninterruptible sleep).",
        _REBOOT,
    ),
    Code(
        "nvidia-smi-slow",
        "unknown",
        "either",
        False,
        "nvidia-smi did not answer within the time limit.",
        "Run nvidia-smi by hand; without nvidia-persistenced it is slow ([limits] nvidia_smi_timeout_s).",
    ),
    Code(
        "nvidia-smi-missing",
        "unknown",
        "node",
        False,
        "nvidia-smi is not installed, so the GPUs could not be checked.",
        "Install NVIDIA's utilities (Debian: nvidia-smi; Ubuntu: nvidia-utils-VERSION; RHEL: nvidia-driver-cuda).",
    ),
    Code(
        "nvidia-smi-failed",
        "unknown",
        "node",
        False,
        "nvidia-smi failed in a way that is not known.",
        "Run nvidia-smi by hand and read its message.",
    ),
    Code(
        "quiesced",
        "warn",
        "either",
        False,
        "MPS is stopped on the node on purpose, for work on the driver; nothing of it is judged.",
        "When the work is done, run `mpsfleet node unquiesce`.",
    ),
    Code(
        "configuration-invalid",
        "unknown",
        "node",
        False,
        "node.toml is missing or has a mistake, so there is nothing to judge against.",
        _APPLY,
    ),
    Code(
        "probe-failed",
        "unknown",
        "node",
        False,
        "A question could not be asked or its answer not be understood.",
        "Read the evidence; audit again.",
    ),
)

# What a reset of MPS cannot mend: it would only keep a person from the real cause.
BEYOND_RESET: frozenset[str] = frozenset(
    {
        "mps-package-missing",
        "gpu-lost",
        "gpu-requires-reset",
        "gpu-missing",
        "gpu-error",
        "driver-mismatch",
        "driver-not-loaded",
        "nvidia-smi-wedged",
        "nvidia-smi-slow",
    }
)

BY_NAME: dict[str, Code] = {each.code: each for each in CODES}

RESET = "reset"  # the word of a planned reset's drain; not a finding
DRAIN_WORDS: frozenset[str] = frozenset({each.code for each in CODES if each.drain} | {RESET})
