"""The judgement of a node with a daemon for each GPU: each is judged by itself, and each GPU beside the record."""

from __future__ import annotations

from typing import Any

import pytest
from build import INSTANCE, LOG, OBSERVED, changed, daemon, gpu, names, parents
from test_judge import CASES as NODE_CASES
from test_judge_gpus import CASES as GPU_CASES
from test_judge_gpus import MODES
from test_judge_host import CASES as HOST_CASES
from test_judge_servers import CASES as SERVER_CASES
from test_kernel_log import CASES as KERNEL_CASES

from mpsfleet.codes import BY_NAME
from mpsfleet.node.cards import Card
from mpsfleet.node.desired import Desired
from mpsfleet.node.instances import assign, of
from mpsfleet.node.judge import judge
from mpsfleet.node.model import Answers, Directory, Facts, Gpus, Observed, Peer, Silence, Unreadable

UUIDS = tuple(gpu(each).uuid for each in (0, 1))
BARE = tuple(Card(each, UUIDS[each], each, gpu(each).bus_id, gpu(each).name, "Disabled") for each in (0, 1))
DESIRED = Desired(daemons="gpu", memory_limit_mib=8192, compute_mode="exclusive_process")
CARDS = assign(DESIRED, BARE)
EXCLUSIVE = tuple(gpu(each)._replace(compute_mode="Exclusive_Process") for each in (0, 1))


def observed(index: int, **changes: Any) -> Observed:
    instance = of(DESIRED, CARDS)[index]
    pid = 100 + index
    pipe = Directory(
        instance.pipe_directory, "directory", 0, 0, 0o755, parents("/", "/run", "/run/nvidia-mps"), names(index * 10)
    )
    listening = Peer("listening", pid, 0, "nvidia-cuda-mps")
    sound = OBSERVED._replace(
        instance=instance,
        pipe=pipe,
        log=OBSERVED.log._replace(path=f"{LOG}/{index}"),
        control=listening,
        privileged=listening,
        said=Answers(100.0, (), (8192,), ""),
        gpus=instance.gpus,
    )
    return sound._replace(**changes)


def facts(first: dict[str, Any] | None = None, **changes: Any) -> Facts:
    """Return a sound node with two daemons; `first` changes what was read of GPU 0's."""
    both = (observed(0, **(first or {})), observed(1))
    daemons = tuple(daemon(100 + each, both[each].pipe.path, each * 10 + 1) for each in (0, 1))
    sound: dict[str, Any] = {"daemons": daemons, "cards": CARDS, "gpus": Gpus(EXCLUSIVE, "ok", rc=0)}
    return changed(**{**sound, **changes})._replace(instances=both)


CASES: list[tuple[str, Facts, list[tuple[str, str]], str]] = [
    ("two sound daemons", facts(), [], ""),
    (
        "one is gone",
        facts(
            {"control": Peer("refused"), "privileged": Peer("refused")}, daemons=(daemon(101, "/run/nvidia-mps/1", 11),)
        ),
        [("daemon-absent", "daemon gpu0")],
        "no control daemon runs for /run/nvidia-mps/0",
    ),
    (
        "one is silent",
        facts({"said": Silence("timeout", "-", "T", seconds=2.0)}),
        [("daemon-wedged", "daemon gpu0")],
        "the control daemon of /run/nvidia-mps/0 is stopped",
    ),
    (
        "the sockets of one serve the other",
        facts({"control": Peer("listening", 101, 0, "nvidia-cuda-mps")}),
        [("socket-hijacked", "/run/nvidia-mps/0/control")],
        "not by the control daemon of that directory",
    ),
    (
        "started for the other GPU",
        facts({"gpus": (UUIDS[1],)}),
        [("daemon-wrong-gpus", "daemon gpu0")],
        f"was started for {UUIDS[1]}, not for {UUIDS[0]}",
    ),
    (
        "started for all GPUs where it should have one of two",
        facts({"gpus": ()}),
        [("daemon-wrong-gpus", "daemon gpu0")],
        f"was started for all GPUs of the node, not for {UUIDS[0]}",
    ),
    (
        "its environment cannot be read",
        facts({"gpus": Unreadable("no")}),
        [("probe-failed", "daemon gpu0")],
        "which GPUs the control daemon was started for is not known",
    ),
    (
        "no memory limit",
        facts({"said": Answers(100.0, (), (0,), "")}),
        [("memory-limit-differs", "daemon gpu0")],
        "memory limit of device 0 is none, not the configured 8G",
    ),
    (
        "a driver without limits",
        facts({"said": Answers(100.0, (), (None,), "")}),
        [("memory-limit-unsupported", "daemon gpu0")],
        "470",
    ),
    (
        "a priority that nobody configured",
        facts({"said": Answers(100.0, (), (8192,), "", client_priority=1)}),
        [("priority-differs", "daemon gpu0")],
        "the default priority of clients is 1, not the configured 0",
    ),
    ("a driver without priorities", facts({"said": Answers(100.0, (), (8192,), "", client_priority=None)}), [], ""),
    (
        "a mode that a reboot has forgotten",
        facts(gpus=Gpus((gpu(0), EXCLUSIVE[1]), "ok", rc=0)),
        [("compute-mode-differs", "gpu0")],
        "GPU 0 has compute mode Default",
    ),
    (
        "MIG was turned on",
        facts(gpus=Gpus((EXCLUSIVE[0]._replace(mig="Enabled"), EXCLUSIVE[1]), "ok", rc=0)),
        [("gpu-mig", "gpu0")],
        "GPU 0 is in MIG mode",
    ),
    (
        "another GPU in the slot",
        facts(gpus=Gpus((EXCLUSIVE[0]._replace(uuid="GPU-ffffffff"), EXCLUSIVE[1]), "ok", rc=0)),
        [("gpu-changed", "gpu0")],
        "GPU 0 is not the one that was there at the deploy",
    ),
    ("no record", facts(cards=None), [("gpus-unrecorded", "GPUs")], "no deploy has recorded them"),
    ("a record of garbage", facts(cards=Unreadable("garbage")), [("gpus-unrecorded", "GPUs")], "garbage"),
    (
        "a user owns NVIDIA's directory",
        facts(default=Directory("/tmp/nvidia-mps", "directory", 2001, 2001, 0o755)),  # noqa: S108  # NVIDIA's default
        [("default-directory-squatted", "/tmp/nvidia-mps")],  # noqa: S108
        "its owner can stop other users' programs",
    ),
    ("root owns it", facts(default=Directory("/tmp/nvidia-mps", "directory", 0, 0, 0o755)), [], ""),  # noqa: S108
    ("nobody owns it", facts(default=Directory("/tmp/nvidia-mps", "missing")), [], ""),  # noqa: S108
]


@pytest.mark.parametrize(
    ("read", "expected", "sentence"), [each[1:] for each in CASES], ids=[each[0] for each in CASES]
)
def test_each_daemon_and_gpu_is_judged_by_itself(read: Facts, expected: list[tuple[str, str]], sentence: str) -> None:
    report = judge(read, DESIRED)

    assert [(each.code, each.subject) for each in report.findings] == expected
    if expected:
        assert sentence in report.findings[0].message


def test_a_gpu_that_is_named_and_not_there_is_told() -> None:
    report = judge(changed(cards=BARE), Desired(mps_gpus=(0, 7, "A100")))

    assert [(each.code, each.severity) for each in report.findings] == [("gpu-unmatched", "warn")]
    assert "[gpus] mps names 7" in report.findings[0].message


@pytest.mark.parametrize("outcome", ["none-found", "missing"])
def test_a_node_without_a_gpu_that_nobody_deployed_to_is_well(outcome: str) -> None:
    read = changed(daemons=(), gpus=Gpus((), outcome), nvidia=False, deployed=False)

    assert judge(read, Desired()).verdict == "ok"
    assert judge(read, Desired(gpus_expected=4)).verdict == "critical"
    assert judge(read._replace(deployed=True), Desired()).verdict == "critical"
    assert judge(read._replace(nvidia=True), Desired()).verdict == "critical"


@pytest.mark.parametrize(
    ("gpus", "code"),
    [((), "daemon-environment"), (UUIDS[::-1], "daemon-environment"), (UUIDS[:1], "daemon-wrong-gpus"), (UUIDS, "")],
)
def test_a_daemon_for_all_gpus_by_another_list_sends_no_job_astray(gpus: tuple[str, ...], code: str) -> None:
    desired = Desired(memory_limit_mib=8192)
    cards = assign(desired, BARE)
    (instance,) = of(desired, cards)
    at = OBSERVED._replace(instance=instance, said=Answers(100.0, (), (8192, 8192), ""), gpus=gpus)

    report = judge(changed(cards=cards)._replace(instances=(at,)), desired)

    assert [each.code for each in report.findings] == ([code] if code else [])
    assert all(BY_NAME[each.code].drain is (code == "daemon-wrong-gpus") for each in report.findings)


@pytest.mark.parametrize("cards", [None, Unreadable("garbage")])
def test_without_a_record_no_daemon_is_one_too_many(cards: Unreadable | None) -> None:
    report = judge(facts(cards=cards)._replace(instances=()), DESIRED)

    assert [each.code for each in report.findings] == ["gpus-unrecorded"]


def test_a_daemon_where_none_is_configured_is_told_as_that() -> None:
    desired = Desired(mps_gpus=("H100",))
    left = facts(cards=assign(desired, BARE))._replace(instances=())

    report = judge(left, desired)

    assert [each.code for each in report.findings] == ["daemon-duplicate"] * 2
    assert report.findings[0].message.endswith("serves /run/nvidia-mps/0, and none is configured")


def test_a_quiesced_node_is_judged_by_nothing_else() -> None:
    report = judge(facts({"control": Peer("refused")}, daemons=(), quiesced=True), DESIRED)

    assert [(each.code, each.severity, each.origin) for each in report.findings] == [("quiesced", "warn", "either")]


def test_a_node_wide_daemon_for_all_gpus_is_told_of_none() -> None:
    assert INSTANCE.gpus == ()


def test_every_code_is_made_by_some_case_or_has_a_reason_not_to() -> None:
    made = {code for _, _, expected, _ in NODE_CASES for code, _, _ in expected}
    made |= {code for _, _, expected, _ in CASES for code, _ in expected}
    made |= {code for _, _, expected, _ in GPU_CASES for code, _ in expected}
    made |= {code for _, _, _, expected, _ in MODES for code, _ in expected}
    made |= {code for table in (HOST_CASES, SERVER_CASES) for _, _, expected, _ in table for code, _ in expected}
    made |= {code for _, _, expected, _ in KERNEL_CASES for code, *_ in expected}

    assert set(BY_NAME) - made == {
        "configuration-invalid",
        "directory-unprotected",
        "gpu-unmatched",
        "quiesced",
    }  # tests of their own
