"""The hooks that Slurm calls: a few lines of shell around `mpsfleet node hook`, as text.

They leave before Python starts where there is nothing to do, pass on only the variables that are read, need no PATH
(slurmd gives none) and end with 0 whatever happens: also without the program, and after a time limit that does not
depend on it. The site names them in slurm.conf as Prolog, Epilog, TaskProlog and HealthCheckProgram, or calls them from
its own.
"""

from __future__ import annotations

from mpsfleet.node import hook_environment as told
from mpsfleet.node import jobs
from mpsfleet.node.files import KILL_SWITCH, MADE_BY, PROGRAM_DIRECTORY, PROGRAM_LINK, Owned

DIRECTORY = f"{PROGRAM_DIRECTORY}/hooks"
PROLOG, EPILOG, TASK_PROLOG, HEALTH_CHECK = (
    f"{DIRECTORY}/{name}.sh" for name in ("prolog", "epilog", "task_prolog", "health_check")
)
_LIMIT_S = 20  # beyond the program's own
_HEALTH_LIMIT_S = 55  # slurmd kills a health check after 60 s

_TOP = f"""\
#!/bin/sh
{MADE_BY}\
[ -e {KILL_SWITCH} ] && exit 0
"""
_HEAD = f"""\
{_TOP}\
case "${told.JOB}" in '' | *[!0-9]*) exit 0 ;; esac
"""


def _call(hook: str, *names: str, limit_s: int = _LIMIT_S) -> str:
    passed = " ".join(f'{name}="${name}"' for name in names)
    program = f"/usr/bin/timeout -k 2 {limit_s} {PROGRAM_LINK} node hook {hook}"
    return f"/usr/bin/env -i {passed} \\\n    {program} </dev/null\nexit 0\n"


_HAS_GPUS = f"""[ -n "${told.GPUS}${told.PERCENTAGE}" ] || case "${told.VISIBLE}" in [0-9]*) ;; *)"""
_PROLOG = f"""\
{_HEAD}{_HAS_GPUS} exit 0 ;; esac
{_call("prolog", told.JOB, told.LEADER, told.UID, told.GPUS, told.PERCENTAGE, told.VISIBLE)}"""

_EPILOG = f"""\
{_HEAD}[ -n "${told.GPUS}${told.PERCENTAGE}" ] || [ -e "{jobs.DIRECTORY}/${told.JOB}" ] || exit 0
{_call("epilog", told.JOB)}"""

_TASK_PROLOG = f"""\
{_HEAD}[ -n "${told.SHARDS}${told.PERCENTAGE}" ] || exit 0
for each in "{jobs.EXPORTS}/${told.JOB}" "{jobs.EXPORTS}/${told.JOB}".*; do [ -r "$each" ] && break; done
[ -r "$each" ] || exit 0
{_call("task-prolog", told.JOB, told.SHARDS, told.PERCENTAGE)}"""

_HEALTH_CHECK = _TOP + _call("health-check", told.NODE, told.HEALTHY, limit_s=_HEALTH_LIMIT_S)


def owned() -> tuple[Owned, ...]:
    """Return the hooks as files of ours. Any user executes the TaskProlog."""
    texts = ((PROLOG, _PROLOG), (EPILOG, _EPILOG), (TASK_PROLOG, _TASK_PROLOG), (HEALTH_CHECK, _HEALTH_CHECK))
    return tuple(Owned(path, text.encode(), 0o755) for path, text in texts)
