"""What sound nodes look like: none raises an alarm, and at most the hint that its row allows. Invented, as sites have it.

Where a variant is a matter of reading, the text itself is read: nvidia-smi's, the daemon's, the kernel's, Slurm's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from build import DESIRED, LOG, OBSERVED, PID, PIPE, changed, gpu, parents
from test_gpu import INFOROM, LOST, ROW0, ROW1, UNIFIED
from test_judge_instances import BARE
from test_judge_instances import CARDS as PER_GPU_CARDS
from test_judge_instances import DESIRED as PER_GPU
from test_judge_instances import facts as per_gpu
from test_judge_servers import ALICE, BOB, JOB, STEPS, many, server, starting
from test_judge_servers import facts as serving
from test_servers import process

from mpsfleet.node.desired import Desired
from mpsfleet.node.host import Host
from mpsfleet.node.host.children import Answer
from mpsfleet.node.host_facts import TIMER, HostState, InstanceState, Own, Unit, Volume
from mpsfleet.node.judge import judge
from mpsfleet.node.kernel_facts import KernelLog, is_fatal
from mpsfleet.node.model import Directory, Facts, Gpus, Peer, Silence, Unreadable, UserView
from mpsfleet.node.probe import gpu as nvidia_smi
from mpsfleet.node.probe import kernel_log, mps, procfs, units, uses
from mpsfleet.node.servers_facts import Past, Servers, Use
from mpsfleet.node.steps import Listed
from mpsfleet.node.steps import understand as listed

if TYPE_CHECKING:
    from pathlib import Path

MARK = 'Unknown command "mpsfleet-next"\n'
NOBODY = "Cannot send command to MPS control daemon process\n"
UNIT = "nvidia-mps.service"
ROOM = Volume(1 << 30, 100_000)
OWN = Own(PID, "/usr/bin/nvidia-cuda-mps-control", (("CUDA_MPS_LOG_DIRECTORY", LOG),))
BUS = "0000:3b:00"


def rows(out: str, rc: int = 0, err: str = "") -> Gpus:
    """Read an answer of nvidia-smi."""
    return nvidia_smi.understand(Answer(rc, out, err), 4.0, "535.261.03")


def answer(out: str, rc: int | None = 0, err: str = "") -> Any:
    """Read an answer of the daemon to the two questions about itself."""
    return mps.understand(Answer(rc, out, err), 2.0)


def kernel(*texts: str, level: int = 3, flags: str = "-") -> Facts:
    """Return a sound node whose kernel log holds these records."""
    raw = (f"{level},{number},99,{flags};{text}\n".encode() for number, text in enumerate(texts, 1))
    events = tuple(event for each in raw if (event := kernel_log.parse(each)) is not None and is_fatal(event))
    return changed(kernel=KernelLog(events, len(texts), "boot", complete=True, buses=(BUS,)))


def around(unit: Unit, *more: Unit, **state: Any) -> Facts:
    """Return a sound node with a unit and what surrounds its one daemon; parts of what was observed may differ too."""
    observed = {each: state.pop(each) for each in ("control", "privileged", "said", "user", "daemons") if each in state}
    seen = InstanceState(unit, **{"own": OWN, "pipe": ROOM, "log": ROOM, **state})
    return changed(state=seen, host=HostState((unit, *more), ()), **observed)


def shown(*properties: str, now_s: float = 1_000.0) -> Unit:
    """Read what systemctl shows of the daemon's unit."""
    text = "\n".join((f"Id={UNIT}", *properties))
    found = units.understand(Answer(0, text + "\n", ""), (UNIT,), now_s)
    assert not isinstance(found, Unreadable)
    return found[0]


def mixed(**second: str) -> Facts:
    """Return a node with a daemon for each GPU, of which the second is left as it is and its owner's."""
    cards = (PER_GPU_CARDS[0], PER_GPU_CARDS[1]._replace(instance=""))
    read = per_gpu(cards=cards)
    first, other = read.gpus.gpus
    shown_gpus = Gpus((first, other._replace(**second)), "ok", rc=0)
    assert not isinstance(read.daemons, Unreadable)
    return read._replace(instances=read.instances[:1], daemons=read.daemons[:1], gpus=shown_gpus)


class Variant(NamedTuple):
    """One sound node, and the codes with their severities that it may be told with."""

    name: str
    facts: Facts
    allowed: tuple[tuple[str, str], ...] = ()
    desired: Desired = DESIRED


IDLE = answer(f"100.0\n{MARK}{MARK}")
DOWN: dict[str, Any] = {
    "daemons": (),
    "control": Peer("refused"),
    "privileged": Peer("refused"),
    "said": Silence("not-asked", "nobody listens"),
}
STARTING = shown("LoadState=loaded", "ActiveState=activating", "SubState=start-pre", "Result=success", "MainPID=0")
RUNNING = shown("LoadState=loaded", "ActiveState=active", "SubState=running", "Result=success", f"MainPID={PID}")
STARTED = shown(
    "ActiveState=active", "SubState=running", "MainPID=9", "InactiveExitTimestampMonotonic=999000000", now_s=1_000.0
)
SKIPPED_ONCE = shown(
    "ActiveState=active", "SubState=running", f"MainPID={PID}", "ConditionResult=no", "ConditionTimestampMonotonic=0"
)
APPLICATIONS = "NVRM: Xid (PCI:0000:3b:00): {}, pid=600, name=python3, Graphics Exception"
OTHER_JOB = JOB._replace(job=18, uid=BOB, gres="gpu")

DAEMONS = (
    Variant("an idle daemon without a server", changed(said=IDLE)),
    Variant("one that prints its percentage without a decimal", changed(said=answer(f"100\n{MARK}{MARK}"))),
    Variant(
        "a percentage that the daemon rounds",
        changed(
            instance=OBSERVED.instance._replace(active_thread_percentage=33.33),
            said=answer(f"33.3\n{MARK}{MARK}"),
        ),
    ),
    Variant(
        "a memory limit as the daemon prints it",
        per_gpu({"said": mps.understand(Answer(0, f"100.0\n{MARK}{MARK}8G\n{MARK}", ""), 2.0, mps.About(1))}),
        desired=PER_GPU,
    ),
    Variant(
        "a loop of questions that fills the whole time limit",
        changed(said=answer("", 1, NOBODY)),
        (("daemon-busy", "unknown"),),
    ),
    Variant("connections that are dropped without a word", changed(said=answer("", 0)), (("daemon-busy", "unknown"),)),
    Variant("dropped with a status", changed(said=answer("", 1)), (("daemon-busy", "unknown"),)),
    Variant(
        "a queue of connections that is full for root",
        changed(control=Peer("busy"), privileged=Peer("busy"), said=Silence("busy", "its queue is full")),
        (("daemon-busy", "unknown"),),
    ),
    Variant(
        "a queue of connections that is full for users",
        changed(user=mps.user_views(f"{PIPE}/control|".encode())[0]),
    ),
    Variant("a unit on its way up", around(STARTING, **DOWN), (("daemon-starting", "unknown"),)),
    Variant(
        "a daemon that answers root and has not opened its fifo to users yet",
        around(STARTING._replace(sub="start-post", main_pid=PID), user=UserView(reached=False, step=PIPE, error="?")),
        (("daemon-starting", "unknown"),),
    ),
    Variant("a unit that runs", around(RUNNING)),
    Variant("a unit that was restarted between two looks", around(STARTED)),
    Variant(
        "a unit that is being stopped between two looks", around(RUNNING._replace(active="deactivating", main_pid=0))
    ),
    Variant("a unit whose condition was never looked at", around(SKIPPED_ONCE)),
    Variant("a timer that waits", around(RUNNING, Unit(TIMER, sub="waiting"))),
    Variant("a restart that went well", around(RUNNING._replace(restarts=3))),
    Variant("a node without systemd", changed(host=None, state=InstanceState(None, OWN, pipe=ROOM, log=ROOM))),
    Variant("a node that is quiesced", changed(quiesced=True, **DOWN), (("quiesced", "warn"),)),
)

DIRECTORIES = (
    Variant("0711", changed(pipe=OBSERVED.pipe._replace(mode=0o711))),
    Variant("logs for root alone", changed(log=OBSERVED.log._replace(mode=0o700))),
    Variant("logs for root's group", changed(log=OBSERVED.log._replace(mode=0o750))),
    Variant(
        "Ubuntu's /var/log, which group syslog may write",
        changed(log=OBSERVED.log._replace(parents=(*parents("/", "/var"), parents("/var/log", mode=0o775)[0]))),
    ),
    Variant("a parent like /tmp", changed(pipe=OBSERVED.pipe._replace(parents=parents("/tmp", mode=0o1777)))),  # noqa: S108
    Variant("root's directory at NVIDIA's default place", changed(default=Directory("/x", "directory", 0, 0, 0o755))),
    Variant("nothing at NVIDIA's default place", changed(default=Directory("/x", "missing"))),
    Variant("a file system that counts no names", around(RUNNING, pipe=ROOM._replace(free_names=-1))),
    Variant("logs on a network's file system", around(RUNNING, log=ROOM._replace(kind="nfs4"))),
    Variant("an overlay", around(RUNNING, pipe=ROOM._replace(kind="overlay"))),
)

GPUS = (
    Variant("two GPUs", changed(gpus=rows(ROW0 + ROW1))),
    Variant("more GPUs than are expected", changed(gpus=rows(ROW0 + ROW1)), desired=DESIRED._replace(gpus_expected=1)),
    Variant("a driver without a mode of MIG", changed(gpus=rows(ROW0.replace(", Disabled", "") + ROW1.replace(", Disabled", "")))),
    Variant(
        "memory shared with the host, and fields that such a GPU has not",
        changed(gpus=rows(UNIFIED)),
        desired=DESIRED._replace(gpus_expected=1),
    ),
    Variant(
        "fields that are not supported",
        changed(gpus=rows(ROW0.replace("Disabled", "[N/A], [N/A], [N/A]") + ROW1.replace("Disabled", "[Not Supported], N/A, N/A"))),
    ),
    Variant("no error of memory and no action asked for", changed(gpus=rows(ROW0.replace("Disabled", "Disabled, 0, None") + ROW1.replace("Disabled", "Disabled, 0, None")))),
    Variant(
        "errors of memory that the driver has contained",
        changed(gpus=rows(ROW0.replace("Disabled", "Disabled, 2, None") + ROW1.replace("Disabled", "Disabled, 0, None"))),
        (("gpu-ecc-contained", "warn"),),
    ),
    Variant("a warning about an infoROM beside good rows", changed(gpus=rows(INFOROM + ROW0 + ROW1, 14)), (("gpu-inforom", "warn"),)),
    Variant("a warning between good rows", changed(gpus=rows(f"{ROW0}Warning: persistence mode is disabled\n{ROW1}"))),
    Variant("a warning on the other stream", changed(gpus=rows(ROW0 + ROW1, 0, "Warning: something, and more\n"))),
    Variant(
        "nvidia-smi that is slow",
        changed(gpus=nvidia_smi.understand(Answer(None, ROW0, "", state="S"), 4.0)),
        (("nvidia-smi-slow", "unknown"),),
    ),
    Variant("a GPU that is left as it is", mixed(), desired=PER_GPU),
    Variant("MIG on a GPU that is left as it is", mixed(mig="Enabled", memory_total="[Insufficient Permissions]"), desired=PER_GPU),
    Variant("a GPU that is left as it is and Prohibited by its owner", mixed(compute_mode="Prohibited"), desired=PER_GPU),
    Variant("a GPU that is left as it is and not exclusive", mixed(compute_mode="Default"), desired=PER_GPU),
    Variant("Exclusive_Process beside its daemon", changed(gpus=rows(ROW0.replace("Default", "Exclusive_Process") + ROW1))),
    Variant("a record of the same GPUs", changed(cards=BARE)),
    Variant(
        "a node without a GPU that nobody deployed to",
        changed(gpus=rows("", 6, "No devices were found\n"), nvidia=False, deployed=False, daemons=()),
        desired=Desired(),
    ),
)  # fmt: skip

KERNEL = (
    Variant("no kernel log", changed(kernel=None)),
    Variant("what applications bring about", kernel(*(APPLICATIONS.format(each) for each in (8, 13, 31, 43, 45, 68, 69)))),
    Variant("errors of memory without harm", kernel(*(APPLICATIONS.format(each) for each in (63, 92, 94)))),
    Variant("a recovery that is done", kernel("NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")),
    Variant("a link's error that is not fatal", kernel("NVRM: Xid (PCI:0000:3b:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 00")),
    Variant("a driver that is loaded", kernel("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.261.03", level=6)),
    Variant("a forged Xid of a user's facility", kernel("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", level=11)),
    Variant("a forged Xid within a record", kernel("ext4: bad option 'NVRM: Xid (PCI:0000:3b:00): 79, x'")),
    Variant("a forged Xid behind an escaped newline", kernel("ext4: bad option 'a\\x0aNVRM: Xid (PCI:0000:3b:00): 79, x'")),
    Variant("a forged Xid in a fragment", kernel("NVRM: Xid (PCI:0000:3b:00): 79, x", flags="c")),
    Variant(
        "a fatal Xid of a GPU that nvidia-smi shows as well",
        kernel("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus."),
        (("gpu-xid-logged", "warn"),),
    ),
    Variant(
        "a fatal Xid of a GPU that is not this node's",
        kernel("NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', GPU has fallen off the bus."),
        (("gpu-xid-logged", "warn"),),
    ),
)  # fmt: skip

SERVERS = (
    Variant("no server", changed(servers=Servers())),
    Variant("a server with two clients of one job", serving()),
    Variant("a driver that tells no status", serving(server(status=None))),
    Variant("a server that was started a moment ago", serving(starting(3.0))),
    Variant("a server that is busy in the kernel for a moment", serving(server(state="D"))),
    Variant("many clients", serving(server(clients=many(43)))),
    Variant("two early ends", changed(servers=Servers(past=(Past(PID, (90.0, 30.0)),)))),
    Variant("early ends that are over", changed(servers=Servers(past=(Past(PID, (3500.0, 3400.0, 2000.0)),)))),
    Variant("a server that MPS exchanged for another user's", serving(server(), past=(Past(PID, (), (499,)),))),
    Variant(
        "a GPU of MPS's that Slurm gave to a job as a whole",
        serving(records=(JOB, OTHER_JOB), uses=(Use(gpu(0).uuid, "700"),)),
    ),
    Variant(
        "a process whose number nvidia-smi withholds",
        serving(uses=uses.understand(Answer(0, f"{gpu(0).uuid}, [N/A]\n", ""), 4.0), steps=(*STEPS, Listed("[N/A]", "17"))),
    ),
    Variant(
        "no job on the node, told with a status of its own",
        changed(servers=Servers(steps=listed(Answer(1, "", "No job steps exist on this node.\n")), uses=())),
    ),
    Variant(
        "Slurm's daemon is not registered, and nobody is there",
        changed(servers=Servers(steps=listed(Answer(1, "", "Unable to contact slurm controller\n")), uses=())),
    ),
    Variant(
        "Slurm cannot be asked, and clients are there",
        serving(steps=listed(Answer(None, "", ""))),
        (("probe-failed", "unknown"),),
    ),
    Variant(
        "a site without Slurm",
        serving(server(clients=many(3)), records=(), steps=None),
        desired=DESIRED._replace(slurm_enabled=False),
    ),
)  # fmt: skip

VARIANTS = (*DAEMONS, *DIRECTORIES, *GPUS, *KERNEL, *SERVERS)


@pytest.mark.parametrize("variant", VARIANTS, ids=[each.name for each in VARIANTS])
def test_a_sound_node_raises_no_alarm(variant: Variant) -> None:
    report = judge(variant.facts, variant.desired)

    assert {(each.code, each.severity) for each in report.findings} <= set(variant.allowed), report.findings
    assert report.verdict != "critical"


def test_every_variant_is_one_of_its_own() -> None:
    assert len(VARIANTS) == len({each.name for each in VARIANTS})
    assert len({repr(each.facts) + repr(each.desired) for each in VARIANTS}) > 60


def test_the_table_would_notice_an_alarm() -> None:
    assert judge(changed(gpus=rows(ROW0 + LOST)), DESIRED).verdict == "critical"
    assert judge(mixed(bus_id="[GPU is lost]"), PER_GPU).verdict == "critical"


def test_a_users_own_daemon_with_a_living_server_is_nobodys_business(tmp_path: Path) -> None:
    for each in ("proc", "run/nvidia-mps/node", "home/alice/pipe"):
        (tmp_path / each).mkdir(parents=True)
    for each in ("run/nvidia-mps/node/control_lock", "home/alice/pipe/control_lock"):
        (tmp_path / each).touch()
    host = Host.at(str(tmp_path))
    hers = {"uid": str(os.getuid() + ALICE)}
    process(host, PID, 1, "nvidia-cuda-mps-control", held="run/nvidia-mps/node/control_lock")
    process(host, 900, 1, "nvidia-cuda-mps-control", held="home/alice/pipe/control_lock", **hers)
    process(host, 901, 900, "nvidia-cuda-mps-server", held="home/alice/pipe/control_lock", **hers)

    named = procfs.named_mps(host)
    assert not isinstance(named, Unreadable)
    found = procfs.daemons(host, named)

    assert len(named) == 3
    assert [(each.process.pid, each.directory) for each in found] == [(PID, PIPE)]
