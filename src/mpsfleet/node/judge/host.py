"""Judge the units of the daemons, the files of ours, and what each daemon was started with and by whom."""

from __future__ import annotations

from mpsfleet.node.files import UNIT_PATHS, unit_path
from mpsfleet.node.host_facts import MULTI_USER, TIMER
from mpsfleet.node.model import Answers, Finding, Unreadable, UserView, finding
from mpsfleet.show import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired
    from mpsfleet.node.host_facts import Drift, HostState, Own, Unit
    from mpsfleet.node.model import Daemon, Facts, Observed

HOOKS = "/usr/lib/mpsfleet/hooks/"
RESIDENT = "resident"
_MOST = 6  # paths in a sentence
_DELETED = " (deleted)"
_HOW = {"missing": "is missing", "mode": "has another mode", "no file": "is no plain file", "masked": "is masked"}


def judge(facts: Facts, desired: Desired) -> tuple[Finding, ...]:
    """Return the findings about units, files of ours and the daemons' processes."""
    host = facts.host
    if host is None:
        return ()
    each = tuple(found for at in facts.instances for found in (*_unit(facts, at, desired), *_process(facts, at)))
    return (*_units(host), *each, *_timer(host), *_files(host, desired), *_zombies(host))


def starting(facts: Facts, at: Observed) -> Finding | None:
    """Return the finding about a daemon on its way up that cannot be used yet; None otherwise."""
    unit = at.state.unit if at.state is not None else None
    if unit is None or not unit.is_starting:
        return None
    reached = not isinstance(at.user, UserView) or at.user.reached
    if facts.serving(at) is not None and reached and (isinstance(at.said, Answers) or at.said.outcome == "timeout"):
        return None
    message = f"{unit.name} is being started, and its control daemon of {at.pipe.path} does not answer yet"
    return finding("daemon-starting", at.instance.subject, message, unit=unit.name, state=unit.sub)


def _units(host: HostState) -> tuple[Finding, ...]:
    if not isinstance(host.units, Unreadable):
        return ()
    return (finding("probe-failed", "units", f"the state of the units is not known: {host.units.reason}"),)


def _unit(facts: Facts, at: Observed, desired: Desired) -> tuple[Finding, ...]:
    unit = at.state.unit if at.state is not None else None
    if unit is None or facts.host is None or unit.is_starting:
        return ()
    found = [*_fate(unit)]
    lost = _lost_unit(facts.host, desired)
    if lost is None and not unit.is_enabled and desired.mode == RESIDENT:
        message = f"{unit.name} is disabled: the next boot does not start its control daemon"
        found.append(finding("unit-disabled", unit.name, message))
    serving = facts.serving(at)
    if serving is not None and serving.process.pid != unit.main_pid and not _is_changing(unit):
        found.append(_foreign(at, unit, serving))
    return tuple(found)


def _is_changing(unit: Unit) -> bool:
    """Tell whether the daemon that was seen may be one that the unit had, or has, a moment before or after."""
    return unit.active == "deactivating" or (unit.is_fresh and unit.active == "active")


def _fate(unit: Unit) -> tuple[Finding, ...]:
    """Tell why systemd does not run the unit's daemon, where it knows."""
    last = f"its last result was {show(unit.result, 40)}"
    if unit.gave_up:
        cause = "" if unit.result == "start-limit-hit" else f"; {last}"  # systemd 262 keeps no other result
        message = f"systemd has given up on {unit.name}, which failed too often in a row{cause}"
        return (finding("unit-start-limit", unit.name, message, restarts=unit.restarts),)
    if unit.active == "failed":
        message = f"{unit.name} has failed; {last}"
        return (finding("unit-failed", unit.name, message),)
    if unit.sub == "auto-restart":
        message = f"{unit.name} has failed and waits to be started again; {last}"
        return (finding("unit-failed", unit.name, message, restarts=unit.restarts),)
    if unit.is_skipped and unit.active == "inactive":
        message = f"systemd skipped the last start of {unit.name}: one of its conditions did not hold"
        return (finding("unit-skipped", unit.name, message),)
    return ()


def _foreign(at: Observed, unit: Unit, serving: Daemon) -> Finding:
    group = at.state.group if at.state is not None else ""
    parts = [each for each in group.split("/") if each.endswith((".service", ".scope"))]
    place = f"; it runs in {show(parts[-1], 60)}" if parts else ""
    own = at.state.own if at.state is not None else None
    job = "" if own is None or isinstance(own, Unreadable) else own.variable("SLURM_JOB_ID")
    by_job = " and was started in the environment of a Slurm job" if job else ""
    message = f"the control daemon of {at.pipe.path} was not started by {unit.name}{place}{by_job}"
    return finding("daemon-foreign", at.instance.subject, message, pid=serving.process.pid, job=job, group=group)


def _process(facts: Facts, at: Observed) -> tuple[Finding, ...]:
    serving, own = facts.serving(at), at.state.own if at.state is not None else None
    if serving is None or own is None:
        return ()
    pid, who, subject = serving.process.pid, f"the control daemon of {at.pipe.path}", at.instance.subject
    if isinstance(own, Unreadable):
        return (finding("probe-failed", subject, f"{who}: {own.reason}", pid=pid),)
    found = []
    if own.program.endswith(_DELETED):
        message = f"{who} still runs the program of before an upgrade: its file was replaced or deleted"
        found.append(finding("daemon-outdated", subject, message, pid=pid, program=own.program))
    return (*found, *_environment(at, own, who, pid))


def _environment(at: Observed, own: Own, who: str, pid: int) -> tuple[Finding, ...]:
    """Compare the log directory; the pipe directory is where its files are found, and the GPUs are judged beside it."""
    subject, found = at.instance.subject, []
    logs = own.variable("CUDA_MPS_LOG_DIRECTORY")
    wanted = at.instance.log_directory
    if not logs.rstrip("/").endswith(wanted):  # below a root of its own, in a simulated node
        where = show(logs, 80) if logs else "NVIDIA's default directory"
        message = f"{who} was started with other settings: it logs in {where}, not in {wanted}"
        found.append(finding("daemon-environment", subject, message, pid=pid, log_directory=logs))
    if bool(own.variable(MULTI_USER)) != at.instance.multi_user:
        ways = ("all users", "one user at a time")
        now, asked = reversed(ways) if at.instance.multi_user else ways
        message = f"{who} was started with other settings: it serves {now}, not {asked}"
        found.append(finding("daemon-environment", subject, message, pid=pid))
    return tuple(found)


def _timer(host: HostState) -> tuple[Finding, ...]:
    units = host.units if host.units is not None and not isinstance(host.units, Unreadable) else ()
    timer = next((each for each in units if each.name == TIMER), None)
    if timer is None or (timer.active == "active" and timer.is_enabled):
        return ()
    state = "is disabled" if timer.active == "active" else "does not run"
    message = f"{TIMER}, which the configuration asks for, {state}: nobody audits this node by the clock"
    return (finding("unit-disabled", TIMER, message),)


def _lost_unit(host: HostState, desired: Desired) -> Drift | None:
    """Return the unit's file if systemd cannot use it."""
    drifts = host.drifts if host.drifts is not None and not isinstance(host.drifts, Unreadable) else ()
    wanted = unit_path(desired)
    return next((each for each in drifts if each.path == wanted and each.how in ("missing", "masked")), None)


def _files(host: HostState, desired: Desired) -> tuple[Finding, ...]:
    """Compare the files of ours: the unit's and the hooks by themselves, the others in one finding."""
    if host.drifts is None:
        return ()
    if isinstance(host.drifts, Unreadable):
        return (finding("probe-failed", "files", f"the deployed files are not known: {host.drifts.reason}"),)
    found = []
    rest = []
    hooks = []
    for each in host.drifts:
        if each.path in UNIT_PATHS and each.how in ("missing", "masked"):
            found.append(_unit_file(each, desired))
        elif each.path.startswith(HOOKS) and each.how != "content":
            hooks.append(each)
        else:
            rest.append(each)
    if hooks:
        message = f"of the hooks that Slurm calls, {_listed(hooks)}; where slurm.conf names them, jobs fail or go wrong"
        found.append(finding("hooks-missing", "hooks", message))
    if rest:
        message = f"files are not as the configuration asks for: {_listed(rest)}"
        found.append(finding("deployment-differs", "files", message, paths=" ".join(each.path for each in rest)))
    return tuple(found)


def _unit_file(drift: Drift, desired: Desired) -> Finding:
    name = drift.path.rpartition("/")[2]
    if drift.how == "masked":
        message = f"{name} is masked: systemd starts no control daemon from it"
        return finding("unit-masked", name, message)
    message = f"the unit file {drift.path} is missing, so the next boot starts no control daemon"
    return finding("unit-missing", name, message, daemons=desired.daemons)


def _listed(drifts: list[Drift]) -> str:
    said = [f"{each.path} {_HOW.get(each.how, 'is another')}" for each in drifts[:_MOST]]
    more = len(drifts) - len(said)
    return ", ".join(said) + (f", and {more} more" if more else "")


def _zombies(host: HostState) -> tuple[Finding, ...]:
    if not host.zombies:
        return ()
    pids = " ".join(str(each.pid) for each in host.zombies)
    message = "a process of MPS's has ended and its parent does not take note of it (a zombie); it serves nobody"
    parents = " ".join(str(each.ppid) for each in host.zombies)
    return (finding("daemon-zombie", "processes", message, pid=pids, parent=parents),)
