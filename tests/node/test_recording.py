"""What a deploy records of the GPUs: what it sees, unless something is missing that a person has to let go."""

from __future__ import annotations

import json

from build import gpu
from hypothesis import given
from hypothesis import strategies as st

from mpsfleet.node.cards import Card, parse, text
from mpsfleet.node.desired import Desired, Share
from mpsfleet.node.instances import Instance, of
from mpsfleet.node.model import Gpu, Gpus
from mpsfleet.node.recording import Found, find

PER_GPU = Desired(daemons="gpu")
FOUR = tuple(gpu(each) for each in range(4))
MINORS = {each.uuid: 3 - number for number, each in enumerate(FOUR)}
LOST = FOUR[1]._replace(**dict.fromkeys(Gpu._fields[2:], "[GPU is lost]"))


def seen(*rows: Gpu, outcome: str = "ok") -> Gpus:
    return Gpus(rows, outcome, rc=0)


def deployed(desired: Desired, before: tuple[Card, ...] = (), gpus: Gpus | None = None) -> Found:
    return find(desired, gpus or seen(*FOUR), MINORS, before)


def instances(desired: Desired, found: Found) -> dict[str, Instance]:
    return {each.name: each for each in of(desired, found.known)}


def test_minor_numbers_are_joined_by_uuid_and_never_by_index() -> None:
    found = deployed(PER_GPU)

    assert found.known is not None
    assert [(each.index, each.minor, each.instance) for each in found.known] == [
        (0, 3, "0"),
        (1, 2, "1"),
        (2, 1, "2"),
        (3, 0, "3"),
    ]


def test_a_second_deploy_writes_the_same_record() -> None:
    for desired in (PER_GPU, Desired(), Desired(daemons="gpu", compute_mode="exclusive_process")):
        first = deployed(desired)
        assert first.known is not None
        now = seen(*(each._replace(compute_mode=_mode(desired)) for each in FOUR))
        second = find(desired, now, MINORS, first.known)
        assert (second.record, second.restored) == (first.record, ())


def _mode(desired: Desired) -> str:
    return "Exclusive_Process" if desired.compute_mode else "Default"


def test_a_gpu_that_is_gone_stays_in_the_record_with_all_others_as_they_were() -> None:
    before = deployed(PER_GPU).known
    assert before is not None
    left = (FOUR[0], FOUR[2]._replace(number="1"), FOUR[3]._replace(number="2"))  # the rest is numbered anew

    found = deployed(PER_GPU, before, seen(*left))

    assert found.known == before
    assert "GPU 1 (" in found.messages[0]
    assert "remove /etc/mpsfleet/gpus.json" in found.messages[0]


def test_a_gpu_in_trouble_keeps_its_name_in_the_record() -> None:
    before = deployed(PER_GPU).known
    assert before is not None

    assert deployed(PER_GPU, before, seen(FOUR[0], LOST, *FOUR[2:])).known == before
    fresh = deployed(PER_GPU, (), seen(FOUR[0], LOST, *FOUR[2:]))
    assert fresh.record is None
    assert "a GPU in trouble" in str(fresh.problem)


def test_gpus_that_cannot_be_read_forbid_what_depends_on_them_and_nothing_else() -> None:
    silent = seen(outcome="timeout")

    assert "they cannot be read" in str(deployed(PER_GPU, (), silent).problem)
    assert deployed(Desired(), (), silent) == Found(None, None)
    before = deployed(PER_GPU).known
    assert before is not None
    assert deployed(PER_GPU, before, silent).known == before


def test_a_gpu_in_mig_mode_is_refused_where_it_is_named_and_left_alone_where_all_are_meant() -> None:
    rows = seen(FOUR[0]._replace(mig="Enabled"), *FOUR[1:])

    assert "GPU 0 is in MIG mode" in str(deployed(Desired(mps_gpus=(0, 1)), (), rows).problem)
    all_of_them = deployed(Desired(), (), rows)
    assert all_of_them.problem is None
    (instance,) = instances(Desired(), all_of_them).values()
    assert instance.gpus == tuple(each.uuid for each in FOUR[1:])


def test_a_server_for_all_users_is_refused_where_driver_or_gpu_cannot_have_one() -> None:
    asked = Desired(daemons="gpu", shares=(Share((0, 1), multi_user=True),))
    new, old = seen(*FOUR)._replace(driver="580.95.05"), seen(*FOUR)._replace(driver="550.163.01")
    pascal = new._replace(gpus=(FOUR[0], FOUR[1]._replace(name="Tesla P100-PCIE-16GB"), *FOUR[2:]))

    assert [each.multi_user for each in instances(asked, deployed(asked, gpus=new)).values()] == [
        True,
        True,
        False,
        False,
    ]
    assert deployed(asked, gpus=new).problem is None
    assert "multi_user needs driver 580 or later, and this node has 550.163.01" in str(
        deployed(asked, gpus=old).problem
    )
    assert "leave GPU 1 out of it" in str(deployed(asked, gpus=pascal).problem)
    assert deployed(PER_GPU, gpus=old).problem is None
    nobody = Gpus((), "timeout", driver="550.163.01")
    assert "multi_user needs driver 580" in str(deployed(Desired(multi_user=True), gpus=nobody).problem)


def test_a_compute_mode_is_remembered_and_put_back_when_it_is_asked_for_no_more() -> None:
    exclusive = Desired(daemons="gpu", compute_mode="exclusive_process")
    before = deployed(exclusive).known
    assert before is not None
    assert {each.compute_mode for each in before} == {"Default"}
    now = seen(*(each._replace(compute_mode="Exclusive_Process") for each in FOUR))

    found = deployed(PER_GPU, before, now)

    assert [each.compute_mode for each in found.restored] == ["Default"] * 4
    assert found.known is not None
    assert {each.compute_mode for each in found.known} == {""}


def test_shares_lie_over_the_nodes_own_settings_and_the_last_one_wins() -> None:
    desired = Desired(
        daemons="gpu",
        memory_limit_mib=8192,
        shares=(Share(("A100",), 50.0), Share((3,), None, 512), Share((FOUR[2].uuid,), 25.0, None, 1)),
    )

    found = instances(desired, deployed(desired))

    assert [each.active_thread_percentage for each in found.values()] == [50.0, 50.0, 25.0, 50.0]
    assert [each.memory_limits_mib for each in found.values()] == [(8192,), (8192,), (8192,), (512,)]
    assert [each.client_priority for each in found.values()] == [0, 0, 1, 0]


def test_the_articles_directory_gets_the_index_of_its_gpu() -> None:
    desired = Desired(daemons="gpu", pipe_directory="/tmp/nvidia-mps", mps_gpus=(1, 3))  # noqa: S108  # the article's own

    found = instances(desired, deployed(desired))

    assert [each.pipe_directory for each in found.values()] == ["/tmp/nvidia-mps_1", "/tmp/nvidia-mps_3"]  # noqa: S108
    assert [each.log_directory for each in found.values()] == ["/var/log/nvidia-mps/1", "/var/log/nvidia-mps/3"]


card = st.builds(
    Card,
    st.integers(0, 64),
    st.text(max_size=40),
    st.integers(-1, 64),
    st.text(max_size=20),
    st.text(max_size=40),
    st.sampled_from(["Enabled", "Disabled", "[N/A]"]),
    st.sampled_from(["", "node", "0"]),
    st.sampled_from(["", "Default"]),
)


@given(st.lists(card, max_size=9))
def test_what_is_written_is_read(found: list[Card]) -> None:
    assert parse(text(tuple(found)).encode()) == tuple(found)


@given(st.binary() | st.recursive(st.none() | st.integers() | st.text(), lambda it: st.lists(it) | st.dictionaries(st.text(), it)).map(lambda it: json.dumps({"schema": 1, "gpus": it}).encode()))  # fmt: skip
def test_garbage_is_a_value_error_and_nothing_else(content: bytes) -> None:
    try:
        parse(content)
    except ValueError:
        return
