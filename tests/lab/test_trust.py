"""Eight nodes of a real Slurm: nobody's drain but ours is touched, and whatever else happens, nothing by mistake."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from conftest import LEDGER
from controller_runs import CERTAIN, PROGRAM, TRIGGERS, VERDICT, Site, decisions, why

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Cluster

OURS = f"mpsfleet: {CERTAIN}"
THEIRS = "fan is broken, do not touch"
ALL = tuple(f"n{number}" for number in range(1, 9))


@pytest.fixture(scope="session")
def eight_deployed(eight: Cluster) -> Site:
    """Provide eight nodes, each with its daemon."""
    site = Site(eight)
    site.deploy()
    put_right(site)  # in a lab that was up before
    return site


@pytest.fixture
def site(eight_deployed: Site) -> Iterator[Site]:
    """Provide the eight nodes, all well, none drained, and no ledger yet."""
    yield eight_deployed
    put_right(eight_deployed)


def put_right(site: Site) -> None:
    """Undo what a test has done."""
    site.cluster.mend("ctl")
    site.cluster.must("ctl", "rm", "-rf", LEDGER)
    site.wait_for_slurm()
    site.mend(*site.names)
    drained = ",".join(site.drains())
    if drained:
        site.slurm("update", f"NodeName={drained}", "State=RESUME")
    site.wait_for_slurm()


def drain(site: Site, node: str, reason: str = THEIRS) -> None:
    site.slurm("update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")


@pytest.mark.smoke
def test_six_of_eight_broken_at_once_stop_at_the_budget_and_all_come_back(site: Site) -> None:
    site.break_(*ALL[:6])
    answer = site.run(*TRIGGERS)
    again = site.run(*TRIGGERS)

    assert site.drains() == dict.fromkeys(ALL[:3], OURS)
    assert decisions(answer) == dict.fromkeys(ALL[:3], "drain")
    assert decisions(again) == {}
    for each in (answer, again):
        told = [line for line in each["lines"] if "The budget is spent" in line]
        assert len(told) == 1
        assert told[0].startswith(
            "n[4-6]: no drain: The budget is spent: of the cluster's GPU nodes, mpsfleet keeps at most 3 "
        )

    site.mend(*ALL)
    first, second = site.act("--max-drained", "0"), site.act("--max-drained", "0")  # the way back is not bound by it
    assert (decisions(first), decisions(second)) == ({}, dict.fromkeys(ALL[:3], "undrain"))
    assert site.drains() == {}


def test_a_sound_fleet_is_left_as_it_is(site: Site) -> None:
    answer = site.act()
    assert (answer["verdict"], answer["changed"], answer["troubles"]) == ("ok", False, [])
    assert answer["lines"] == ["n[1-8]: ok", "8 hosts: 8 ok; verdict ok."]


def test_an_administrators_drain_is_left_alone_in_every_order_of_events(site: Site) -> None:
    drain(site, "n1")  # before the fault
    site.break_("n1", "n2", "n3")
    site.act()
    assert site.drains() == {"n1": THEIRS, "n2": OURS, "n3": OURS}

    drain(site, "n2")  # over our drain
    site.slurm("update", "NodeName=n3", "State=RESUME")  # against our drain
    answer = site.act()
    assert site.drains() == {"n1": THEIRS, "n2": THEIRS}
    assert "is left as they have it" in why(answer, "n3")
    assert "for another reason, which is left alone" in why(answer, "n2")

    site.mend("n1", "n2", "n3")
    for _ in range(3):
        assert decisions(site.act()) == {}
    assert site.drains() == {"n1": THEIRS, "n2": THEIRS}

    site.slurm("update", "NodeName=n1,n2", "State=UNDRAIN")
    site.wait_for_slurm()
    site.act()
    site.break_("n2", "n3")  # a new fault, after the node was well, is ours to drain again
    site.act()
    assert site.drains() == {"n2": OURS, "n3": OURS}
    assert site.history("n3") == ["drained", "released", "drained"]


WITH_A_HAND = """#!/bin/sh
# an administrator who drains n1 at just that moment
real=/usr/bin/scontrol.real
case "$*" in *"show node n1"*) [ -e /run/hand ] || { : >/run/hand; $real update NodeName=n1 State=DRAIN "Reason=%s"; } ;; esac
exec $real "$@"
"""


def test_a_drain_set_between_our_reading_of_the_fleet_and_our_step_is_respected(site: Site) -> None:
    site.break_("n1", "n2")
    given = site.reports()
    root = site.cluster.lab.root("ctl")
    site.cluster.must("ctl", "mv", "/usr/bin/scontrol", "/usr/bin/scontrol.real")
    try:
        (root / "usr/bin/scontrol").write_text(WITH_A_HAND % THEIRS)
        (root / "usr/bin/scontrol").chmod(0o755)
        answer = site.act(of=given)
    finally:
        site.cluster.must("ctl", "mv", "/usr/bin/scontrol.real", "/usr/bin/scontrol")
        site.cluster.must("ctl", "rm", "-f", "/run/hand")

    assert site.drains() == {"n1": THEIRS, "n2": OURS}
    assert decisions(answer) == {"n2": "drain"}
    assert THEIRS in why(answer, "n1")


def test_a_reason_to_which_a_reboot_added_is_not_ours(site: Site) -> None:
    site.break_("n1")
    site.act()
    site.mend("n1")
    site.slurm("reboot", "ASAP", "n1")
    end = time.monotonic() + 10
    while site.drains()["n1"] == OURS and time.monotonic() < end:
        time.sleep(0.2)
    changed = site.drains()["n1"]
    assert changed.startswith(f"{OURS} : reboot ")
    for _ in range(2):
        assert decisions(site.act()) == {}

    site.slurm("update", "NodeName=n1", "State=RESUME")  # a machine of the lab keeps its boot time, so this ends it
    drain(site, "n1", changed)
    for _ in range(3):
        assert decisions(site.act()) == {}
    assert site.drains() == {"n1": changed}
    assert site.history("n1") == ["drained", "released"]


def test_a_node_that_flaps_is_handed_over(site: Site) -> None:
    for _ in range(2):
        site.break_("n1")
        site.act("--strikes", "3")
        assert site.drains() == {"n1": OURS}
        site.mend("n1")
        site.act()
        answer = site.act()
        if site.drains():
            assert "It was drained twice in a week, so it stays out 30 minutes more." in why(answer, "n1")
            site.cluster.must("ctl", "python3", "-IS", PROGRAM, "slurm", "undrain", "n1")
    site.wait_for_slurm()
    site.break_("n1")
    answer = site.act()

    assert site.drains() == {"n1": "mpsfleet: flapping"}
    site.mend("n1")
    for _ in range(3):
        answer = site.act()
        assert decisions(answer) == {}
    assert "a person is to find out why" in why(answer, "n1")
    assert site.history("n1") == ["drained", "undrained", "drained", "undrained", "drained"]
    told = site.cluster.must("ctl", "python3", "-IS", PROGRAM, "slurm", "history")
    assert told.startswith("n1: 3 drains in the last 7 days; well in its last 3 audits\n")
    site.cluster.must("ctl", "python3", "-IS", PROGRAM, "slurm", "undrain", "n1")
    assert site.drains() == {}


def test_a_fault_that_moves_on_stops_at_the_hours_limit(site: Site) -> None:
    for node in ("n1", "n2", "n3"):
        site.break_(node)
        assert decisions(site.run(*TRIGGERS)) == {node: "drain"}
        site.mend(node)
        site.cluster.must("ctl", "python3", "-IS", PROGRAM, "slurm", "undrain", node)
    site.break_("n4")
    answer = site.run(*TRIGGERS)

    assert site.drains() == {}
    assert "drains at most 3 of the cluster's GPU nodes in an hour, and has drained 3" in why(answer, "n4")


@pytest.mark.parametrize("fault", ["slurmctld-stopped", "slurmctld-hung", "munge"])
def test_a_slurm_that_cannot_be_asked_changes_nothing(site: Site, fault: str) -> None:
    site.break_("n1")
    site.act("--trigger-drain")
    site.mend("n1")
    site.break_("n2")
    given = site.reports()
    if fault == "munge":
        site.cluster.must("ctl", "systemctl", "stop", "munge")
    else:
        site.cluster.break_("ctl", fault)
    begin = time.monotonic()
    answers = [site.act(of=given) for _ in range(3 if fault == "munge" else 1)]
    seconds = (time.monotonic() - begin) / len(answers)
    site.cluster.must("ctl", "systemctl", "start", "munge")
    site.cluster.mend("ctl")
    site.wait_for_slurm()

    assert {each["slurm"]["asked"] for each in answers} == {False}
    assert {each["changed"] for each in answers} == {False}
    assert seconds < 15
    assert site.drains() == {"n1": OURS}
    site.act(of=given)
    assert site.drains() == {"n1": OURS, "n2": OURS}  # and n1 is not back yet: it was found well once


def test_slurmctld_is_restarted_between_runs_and_nothing_is_lost(site: Site) -> None:
    site.break_("n1")
    drain(site, "n2")
    site.act()
    site.cluster.must("ctl", "systemctl", "restart", "slurmctld")
    site.wait_for_slurm()
    assert site.drains() == {"n1": OURS, "n2": THEIRS}
    assert decisions(site.act()) == {}

    site.mend("n1")
    site.act()
    site.cluster.must("ctl", "systemctl", "restart", "slurmctld")
    site.wait_for_slurm()
    assert decisions(site.act()) == {"n1": "undrain"}
    assert site.drains() == {"n2": THEIRS}


def test_a_restart_of_slurmctld_while_a_run_acts_drains_nobody_elses_node(site: Site) -> None:
    site.break_("n1", "n2", "n3")
    given = site.reports()
    with site.start_run(*TRIGGERS, of=given) as run:
        site.cluster.must("ctl", "systemctl", "restart", "slurmctld")
        run.communicate(timeout=120)
    site.wait_for_slurm()
    assert set(site.drains()) <= {"n1", "n2", "n3"}
    site.act(of=given)
    assert site.drains() == dict.fromkeys(("n1", "n2", "n3"), OURS)


def test_two_runs_at_once_act_once(site: Site) -> None:
    site.break_(*ALL[:6])
    given = site.reports()
    with site.start_run(*TRIGGERS, of=given) as one, site.start_run(*TRIGGERS, of=given) as other:
        answers = [json.loads(each.communicate(timeout=120)[0]) for each in (one, other)]

    assert sorted(len(decisions(each)) for each in answers) == [0, 3]
    assert site.drains() == dict.fromkeys(ALL[:3], OURS)
    assert [site.history(each) for each in ALL[:4]] == [["drained"]] * 3 + [[]]


def test_two_clusters_in_one_inventory_are_not_mixed_up(site: Site) -> None:
    site.break_("n1", "n2")
    given = site.reports("n1", "n2", "n3")
    for host, cluster in zip(given["hosts"], ("lab", "other", "other")):
        host["cluster"] = cluster
        host["host"] = f"{cluster}-{host['node']}"
    answer = site.act(of=given)

    assert site.drains() == {"n1": OURS}
    told = {each["host"]: each["message"] for each in answer["hosts"] if each["verdict"] == "unknown"}
    assert set(told) == {"other-n2", "other-n3"}
    assert "in cluster other, and slurmctld is lab's" in told["other-n2"]
    refused = site.act("--cluster", "other", of=given)
    assert (refused["slurm"]["asked"], refused["slurm"]["cluster"]) == (False, "lab")


def test_a_lost_ledger_is_made_up_from_slurms_reasons(site: Site) -> None:
    site.break_("n1")
    site.act()
    site.cluster.must("ctl", "rm", "-rf", LEDGER)
    assert site.history("n1") == []
    site.mend("n1")
    assert decisions(site.act()) == {}
    assert site.history("n1") == ["found"]
    assert decisions(site.act()) == {"n1": "undrain"}


HOLD = (
    "import socket, time; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
    " s.connect('/run/nvidia-mps/node/control'); time.sleep(60)"
)


def test_what_a_user_causes_drains_nothing_however_often_it_is_seen(site: Site) -> None:
    site.cluster.must("n1", "sh", "-c", f'(setsid python3 -IS -c "{HOLD}" >/dev/null 2>&1 &)', user="alice")
    time.sleep(0.5)
    answers = [site.act("--drain-after", "1") for _ in range(4)]
    site.cluster.exec("n1", ("pkill", "-u", "alice", "-f", "nvidia-mps/node/control"))

    assert {each["verdict"] for each in answers} == {"critical"}
    assert "a user's doing" in why(answers[-1], "n1")
    assert site.drains() == {}


HOSTILE = "\x1b[31mred\x1b[0m \u202e gnp.exe \x07 \r [root@2026-01-01T00:00:00]"


def test_a_reason_with_escapes_is_shown_harmless_and_left_alone(site: Site) -> None:
    drain(site, "n1", HOSTILE)
    drain(site, "n2", f"{OURS}\u202e")
    site.break_("n1", "n2")
    given = json.dumps(site.reports())
    text = site.cluster.exec("ctl", (*(each for each in VERDICT if each != "--json"), *TRIGGERS), stdin=given).stdout
    listed = site.cluster.must("ctl", "python3", "-IS", PROGRAM, "slurm", "nodes")

    assert all(line.isprintable() for line in (text + listed).splitlines())
    assert set(site.drains()) == {"n1", "n2"}
    assert "n1: no drain: " in text


NAMES = (
    "ALL",
    "n[1-8]",
    "n[2-3],n5",
    "n2,n3",
    "n2 n3",
    "-a",
    "--all",
    "n9",
    "N2",
    "",
    " n2",
    "n2\n",
    "n2;id",
    "$(id)",
    "../n2",
)


def test_a_report_cannot_choose_whom_it_drains(site: Site) -> None:
    site.break_("n1")
    [sick] = site.reports("n1")["hosts"]
    called = [{"host": f"h{number}", "node": "n4", "report": {**sick["report"], "node": name}, "error": None}
              for number, name in enumerate(NAMES)]  # fmt: skip
    mapped = [{"host": f"m{number}", "node": name, "report": {**sick["report"], "node": name}, "error": None}
              for number, name in enumerate(NAMES)]  # fmt: skip
    for host in (*called, *mapped):
        site.act("--max-drained", "100%", "--max-drained-partition", "100%", of={"schema": 1, "hosts": [host]})
    assert site.drains() == {}
