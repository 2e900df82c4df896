"""The budget of drains: what is over it is told and not done, whatever order the reports come in."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.slurm.test_slurm_verdict import finding, judge, known, reported, view

from mpsfleet.slurm import budget, gres, lines, trigger
from mpsfleet.slurm.budget import USUAL, Budget, Limit
from mpsfleet.slurm.drains import Action, our_reason

if TYPE_CHECKING:
    from tests.slurm.conftest import FakeSlurm

    from mpsfleet.slurm.nodes import Node
    from mpsfleet.slurm.verdict import FleetVerdict

OURS = "mpsfleet: gpu-lost"
NO_LIMIT = Limit(100, is_percent=True)


def drained_by_it(fleet: FleetVerdict) -> list[str]:
    return [each.host for each in fleet.hosts if each.decision.action is Action.DRAIN]


def broken(*names: str, slurm: list[Node], limits: Budget = USUAL) -> FleetVerdict:
    return budget.within(judge([reported(each, finding()) for each in names], view(*slurm)), limits)


@pytest.mark.parametrize(
    ("text", "nodes", "most"),
    [("3", 8, 3), ("0", 8, 0), ("25%", 8, 2), ("25%", 9, 3), ("1%", 8, 1), ("0%", 8, 0), ("100%", 8, 8), ("5", 2, 5)],
)
def test_a_limit_is_a_number_or_a_percentage_rounded_up(text: str, nodes: int, most: int) -> None:
    assert budget.limit(text).of(nodes) == most


@pytest.mark.parametrize("text", ["", "-1", "1.5", "101%", "%", "25 %", "all", "9999999", "²"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"neither a number|more than 100%"):
        budget.limit(text)


@pytest.mark.parametrize(
    ("nodes", "cluster", "partition"), [(0, 3, 3), (4, 3, 3), (8, 3, 4), (16, 4, 8), (400, 100, 200)]
)
def test_usually_it_is_a_quarter_of_the_cluster_and_half_of_a_partition(
    nodes: int, cluster: int, partition: int
) -> None:
    assert (USUAL.cluster.of(nodes), USUAL.partition.of(nodes)) == (cluster, partition)


def test_six_of_eight_nodes_at_once_stop_at_the_budget_which_says_so() -> None:
    names = [f"n{number}" for number in range(1, 9)]
    fleet = broken(*names[:6], slurm=[known(each) for each in names])

    assert drained_by_it(fleet) == ["n1", "n2", "n3"]
    [told] = [each for each in lines.grouped(fleet) if "no drain" in each]
    assert told.startswith(
        "n[4-6]: no drain: The budget is spent: of the cluster's GPU nodes, mpsfleet keeps at most 3 "
    )


def test_what_is_drained_by_us_already_counts_and_what_others_drained_does_not() -> None:
    ours = [known("n1", "IDLE+DRAIN", OURS), known("n2", "MIXED+DRAIN", "mpsfleet: reset")]
    theirs = [known("n3", "IDLE+DRAIN", "Kill task failed"), known("n4", "IDLE+DRAIN", f"{OURS} : reboot issued")]
    fleet = broken("n5", "n6", "n7", slurm=[*ours, *theirs, known("n5"), known("n6"), known("n7")])

    assert drained_by_it(fleet) == ["n5"]


def test_nodes_without_gpus_make_the_budget_no_larger() -> None:
    slurm = [known(f"c{number}", gres=()) for number in range(100)] + [known(f"n{number}") for number in range(8)]
    assert len(drained_by_it(broken(*(f"n{number}" for number in range(8)), slurm=slurm))) == 3


@pytest.mark.parametrize("name", ["gpu", "mps", "shard"])
def test_a_gpu_node_is_one_by_any_of_its_gres(name: str) -> None:
    slurm = [known(f"n{number:02}", gres=gres.parse(f"{name}:4")) for number in range(40)]
    assert len(drained_by_it(broken(*(each.name for each in slurm), slurm=slurm))) == 10


def test_a_partition_has_a_budget_of_its_own() -> None:
    slurm = [known(f"a{number}", partitions=("small", "all")) for number in range(4)]
    slurm += [known(f"b{number}", partitions=("all",)) for number in range(12)]
    limits = Budget(NO_LIMIT, Limit(50, is_percent=True), NO_LIMIT)
    fleet = broken(*(each.name for each in slurm), slurm=slurm, limits=limits)

    assert sorted(drained_by_it(fleet)) == ["a0", "a1", *(f"b{number}" for number in range(6))]
    why = {each.host: each.decision.why for each in fleet.hosts}
    assert "of the GPU nodes of partition small, mpsfleet keeps at most 2 " in why["a2"]
    assert "of the GPU nodes of partition all, mpsfleet keeps at most 8 " in why["b9"]
    assert why["b9"].endswith("or raise mps_max_drained_partition.")


def test_the_worst_code_comes_first() -> None:
    slurm = [known(each) for each in ("n1", "n2")]
    reports = [reported("n1", finding("gpu-lost")), reported("n2", finding("daemon-absent"))]
    for order in (reports, reports[::-1]):
        fleet = budget.within(judge(order, view(*slurm)), Budget(Limit(1), NO_LIMIT))
        assert drained_by_it(fleet) == ["n2"]  # codes.py has it first


@pytest.mark.parametrize(
    "names",
    [
        ("n1", "n2", "n10"),
        ("n09", "n10", "n011"),
        ("r1n10", "r2n9", "r10n1"),
        ("a", "a1", "b"),
        ("n07", "n7"),
        ("9" * 5000, "1" + "0" * 5000),
    ],
)
def test_equal_codes_come_by_the_numbers_in_their_names(names: tuple[str, ...]) -> None:
    nodes = [f"k{place}" for place in range(len(names))]
    reports = [reported(each, finding(), node=node)._replace(node=node) for each, node in zip(names[::-1], nodes)]
    fleet = judge(reports, view(*map(known, nodes)))
    for most in range(len(names)):
        assert set(drained_by_it(budget.within(fleet, Budget(Limit(most), NO_LIMIT)))) == set(names[:most])


def test_over_the_budget_nothing_is_written(slurm: FakeSlurm) -> None:
    for each in ("n1", "n2"):
        slurm.add(each)
    fleet = broken("n1", "n2", slurm=[known("n1"), known("n2")], limits=Budget(Limit(1), NO_LIMIT))
    after = trigger.carry_out(fleet, slurm.door(), "root")

    assert (trigger.done_count(after), trigger.wanted_count(after)) == (1, 1)
    assert [words[1] for words in slurm.updates()] == ["NodeName=n1"]


PARTITIONS = ("p", "q", "r")
NODES = st.lists(
    st.tuples(st.sampled_from(["IDLE", "IDLE+DRAIN", "MIXED"]), st.sampled_from([OURS, "theirs", None]),
              st.frozensets(st.sampled_from(PARTITIONS)), st.booleans()),
    max_size=24,
)  # fmt: skip
LIMITS = st.builds(Limit, st.integers(0, 100), st.booleans(), st.integers(0, 4))


@given(NODES, LIMITS, LIMITS, st.randoms(use_true_random=False))
def test_it_is_never_exceeded_and_twice_decides_the_same(nodes, cluster, partition, random) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    slurm = [
        known(f"n{number}", state, reason, partitions=tuple(sorted(places)))
        for number, (state, reason, places, _) in enumerate(nodes)
    ]
    reports = [
        reported(f"n{number}", *([finding()] if is_broken else [])) for number, (*_, is_broken) in enumerate(nodes)
    ]
    limits = Budget(cluster, partition, NO_LIMIT)
    judged = judge(reports, view(*slurm))
    fleet = budget.within(judged, limits)

    wanted, allowed = set(drained_by_it(judged)), set(drained_by_it(fleet))
    assert allowed <= wanted
    assert budget.within(fleet, limits) == fleet
    random.shuffle(reports)
    assert set(drained_by_it(budget.within(judge(reports, view(*slurm)), limits))) == allowed
    now = {each.name for each in slurm if our_reason(each) is not None}
    counted, total = collections.Counter[str](), collections.Counter[str]()
    for each in slurm:
        for place in ("", *each.partitions):
            total[place] += 1
            counted[place] += each.name in allowed
    for place, added in counted.items():
        before = sum(each.name in now and place in ("", *each.partitions) for each in slurm)
        most = (partition if place else cluster).of(total[place])
        assert added == 0 or before + added <= most
    for name in wanted - allowed:  # and none is kept back while there is room
        places = ("", *next(each.partitions for each in slurm if each.name == name))
        assert any(
            sum(each.name in now | allowed and place in ("", *each.partitions) for each in slurm)
            >= (partition if place else cluster).of(total[place])
            for place in places
        )
