"""What a site may ask for beside the daemons: an audit by timer or by NHC, a profile that tells logins the directory.

And the unit that lets an image find out at its first boot which GPUs it has, and the one by which the health check has
daemons put right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsfleet.node.cards import RECORD
from mpsfleet.node.desired import DEFAULT_DIRECTORY
from mpsfleet.node.files import HEAL, MADE_BY, PROGRAM_LINK, QUIESCED, UNIT_FOLDER, Owned
from mpsfleet.node.host_facts import TIMER
from mpsfleet.node.instances import NODE, needs_record

if TYPE_CHECKING:
    from mpsfleet.node.desired import Desired

SETUP = "nvidia-mps-setup.service"
UNITS = (SETUP, TIMER)
NHC_PATH = "/etc/nhc/scripts/mpsfleet.nhc"
PROFILE_PATH = "/etc/profile.d/mpsfleet.sh"
_SETUP_PATH = f"{UNIT_FOLDER}/{SETUP}"
HEAL_PATH = f"{UNIT_FOLDER}/{HEAL}"
_TIMER_PATHS = (f"{UNIT_FOLDER}/mpsfleet-audit.service", f"{UNIT_FOLDER}/{TIMER}")

_SETUP = f"""\
{MADE_BY}[Unit]
Description=Find out which GPUs this node has and start their MPS daemons (once, in a new image)
ConditionPathExists=!{RECORD}
After=nvidia-persistenced.service nvidia-fabricmanager.service
Before=slurmd.service

[Service]
Type=oneshot
ExecStart={PROGRAM_LINK} node apply
SuccessExitStatus=1 3
TimeoutStartSec=300

[Install]
WantedBy=multi-user.target
"""
_AUDIT = f"""\
{MADE_BY}[Unit]
Description=Audit NVIDIA MPS on this node

[Service]
Type=oneshot
ExecStart={PROGRAM_LINK} node audit
# a warning is no failure of the unit; critical and unknown are, and so stand in `systemctl --failed`
SuccessExitStatus=1
TimeoutStartSec=60
"""
_TIMER = """\
{made_by}[Unit]
Description=Audit NVIDIA MPS on this node every {minutes} minutes

[Timer]
OnBootSec={minutes}min
OnUnitActiveSec={minutes}min
RandomizedDelaySec=30

[Install]
WantedBy=timers.target
"""
_HEAL = f"""\
{MADE_BY}[Unit]
Description=Start or reset the MPS daemons of this node that are ill, where no job can be harmed
# mpsfleet's health check starts it
ConditionPathExists=!{QUIESCED}

[Service]
Type=oneshot
ExecStart={PROGRAM_LINK} node reset --unattended
# refused (75), since a job may be on the node, is no failure of the unit, and neither is a warning
SuccessExitStatus=1 75
TimeoutStartSec=300
"""
_NHC = f"""\
{MADE_BY}# A check for LBNL Node Health Check; call it in nhc.conf:  * || check_mpsfleet
function check_mpsfleet() {{
    local said rc
    said="$({PROGRAM_LINK} node audit 2>&1)"
    rc=$?
    if [ "$rc" -ge 2 ] && [ "$rc" -ne 3 ]; then
        die 1 "$FUNCNAME:  $(printf '%s' "$said" | sed -n '2s/^ *//p')"
        return 1
    fi
    return 0
}}
"""


def owned(desired: Desired) -> tuple[Owned, ...]:
    """Return the files that the configuration asks for beside the daemons' own."""
    files = []
    if needs_record(desired):
        files.append(Owned(_SETUP_PATH, _SETUP.encode(), 0o644))
    if desired.audit_minutes:
        timer = _TIMER.format(made_by=MADE_BY, minutes=desired.audit_minutes)
        files.append(Owned(_TIMER_PATHS[0], _AUDIT.encode(), 0o644))
        files.append(Owned(_TIMER_PATHS[1], timer.encode(), 0o644))
    if desired.own_reset:
        files.append(Owned(HEAL_PATH, _HEAL.encode(), 0o644))
    if desired.nhc:
        files.append(Owned(NHC_PATH, _NHC.encode(), 0o644))
    if desired.profile and desired.daemons == NODE and desired.pipe_directory != DEFAULT_DIRECTORY:
        files.append(Owned(PROFILE_PATH, _profile(desired).encode(), 0o644))
    return tuple(files)


def _profile(desired: Desired) -> str:
    return (
        f"{MADE_BY}# CUDA programs of this login find the node's MPS daemon here, unless they were told another.\n"
        f': "${{CUDA_MPS_PIPE_DIRECTORY:={desired.pipe_directory}}}"\n'
        "export CUDA_MPS_PIPE_DIRECTORY\n"
    )


def units(desired: Desired) -> tuple[str, ...]:
    """Return the units to enable beside the daemons' own."""
    asked = ((SETUP, needs_record(desired)), (TIMER, bool(desired.audit_minutes)))
    return tuple(name for name, is_asked in asked if is_asked)


def every_path() -> tuple[str, ...]:
    """Return the paths of all files that any configuration puts there."""
    return (_SETUP_PATH, *_TIMER_PATHS, HEAL_PATH, NHC_PATH, PROFILE_PATH)
