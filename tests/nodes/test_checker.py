"""The checker refuses what no node can be: each row changes a recording by hand into something impossible."""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path
from typing import Any, Callable

import checker
import pytest
import recorded_node
from commands_checked import objects

Change = Callable[[Any, Any], object]  # of answers and document
PIPE = "/run/nvidia-mps/node"
SMI = "nvidia-smi: --query-gpu="
FAR = 4_000_000


@functools.cache
def read(name: str) -> tuple[recorded_node.About, Any, Any]:
    folder = recorded_node.FOLDER / name
    document, report = (json.loads((folder / each).read_text()) for each in ("answers.json", "report.json"))
    return recorded_node.about(folder), document, report


def changed(name: str, change: Change) -> list[str]:
    """Return the problems of a recorded node after a change."""
    about, document, report = copy.deepcopy(read(name))
    change(document["answers"], document)
    assert document != read(name)[1], "the row changed nothing"
    return checker.problems(about, document, report)


def first(answers: Any, kind: str, **where: Any) -> Any:
    """Return the first value of a class in a recording, with those members."""
    return next(each for each in objects(answers, kind) if all(each.get(key) == where[key] for key in where))


def command(answers: Any, start: str) -> Any:
    """Return the answer of the command whose question begins so."""
    return next(given[0] for question, given in answers.items() if question.startswith(start))


def without_socket(answers: Any, _: Any) -> None:
    found = first(answers[f"directories.look {PIPE}"], "model.Directory")
    found["names"] = [each for each in found["names"] if each["name"] != "control_privileged"]


def without_listener(answers: Any, _: Any) -> None:
    del answers[f"mps.peer {PIPE} control_privileged"]


def peer_is_nobody(answers: Any, _: Any) -> None:
    first(answers, "model.Peer").pop("comm")


def peer_is_not_listed(answers: Any, _: Any) -> None:
    first(answers, "model.Peer")["pid"] += 1


def server_is_no_process(answers: Any, _: Any) -> None:
    found = command(answers, "nvidia-cuda-mps-control of")
    found["out"] = found["out"].replace('next"\nUnknown', 'next"\n4242\nUnknown', 1)


def server_is_a_word(answers: Any, _: Any) -> None:
    found = command(answers, "nvidia-cuda-mps-control of")
    found["out"] = found["out"].replace('next"\nUnknown', 'next"\nnone\nUnknown', 1)


def status_of_a_reached_daemon(answers: Any, _: Any) -> None:
    command(answers, "nvidia-cuda-mps-control of")["rc"] = 1


def success_of_an_unreached_daemon(answers: Any, _: Any) -> None:
    command(answers, "nvidia-cuda-mps-control of").update(out="Cannot find MPS control daemon process\n")


def answered_without_end(answers: Any, _: Any) -> None:
    command(answers, "nvidia-cuda-mps-control of").update(rc=None, state="S")


def ended_out_of_sight(answers: Any, _: Any) -> None:
    command(answers, SMI).update(rc=None, out="")


def systemd_without_end(answers: Any, _: Any) -> None:
    command(answers, "systemctl").update(rc=None, state="S")


def answer_of_nothing(answers: Any, _: Any) -> None:
    command(answers, SMI).update(missing=True)


def index_twice(answers: Any, _: Any) -> None:
    found = command(answers, SMI)
    found["out"] = found["out"].replace("\n1, ", "\n0, ")


def uuid_twice(answers: Any, _: Any) -> None:
    found = command(answers, SMI)
    found["out"] = found["out"].replace("000000000001,", "000000000000,")


def bus_twice(answers: Any, _: Any) -> None:
    found = command(answers, SMI)
    found["out"] = found["out"].replace("00000000:0B:00.0", "00000000:07:00.0")


def row_too_short(answers: Any, _: Any) -> None:
    found = command(answers, SMI)
    found["out"] = found["out"].replace(", Disabled", "", 1)


def no_rows(answers: Any, _: Any) -> None:
    command(answers, SMI)["out"] = ""


def success_of_a_failure(answers: Any, _: Any) -> None:
    command(answers, SMI)["err"] = "Failed to initialize NVML: Unknown Error\n"


def another_driver(answers: Any, _: Any) -> None:
    answers["gpu.driver_version"] = ["550.163.01"]


def runs_without_process(answers: Any, _: Any) -> None:
    found = command(answers, "systemctl")
    found["out"] = "MainPID=0\n" + found["out"].partition("\n")[2]


def runs_as_another(answers: Any, _: Any) -> None:
    found = command(answers, "systemctl")
    found["out"] = "MainPID=4242\n" + found["out"].partition("\n")[2]


def inactive_with_process(answers: Any, _: Any) -> None:
    found = command(answers, "systemctl")
    found["out"] = found["out"].replace("ActiveState=active", "ActiveState=inactive")


def begun_in_the_future(answers: Any, _: Any) -> None:
    command(answers, "systemctl")["out"] += f"InactiveExitTimestampMonotonic={FAR}000000\n"


def clock_backwards(answers: Any, _: Any) -> None:
    answers["units.now_s"].append(answers["units.now_s"][0] - 1)


def started_afterwards(answers: Any, _: Any) -> None:
    for each in objects(answers, "model.Process"):
        each["start"] = FAR * 100


def server_too_young(answers: Any, _: Any) -> None:
    first(answers, "servers_facts.Server")["age_s"] += 600


def strike_to_come(answers: Any, _: Any) -> None:
    first(answers, "servers_facts.Past")["strikes_s"][0] = -5.0


def strikes_reversed(answers: Any, _: Any) -> None:
    first(answers, "servers_facts.Past")["strikes_s"].reverse()


def event_after_the_last(answers: Any, _: Any) -> None:
    first(answers, "kernel_facts.Event")["sequence"] += 5


def job_to_come(answers: Any, document: Any) -> None:
    first(answers, "jobs.Job")["start"] = document["clock"] + 60


def started_twice(answers: Any, _: Any) -> None:
    first(answers, "model.Daemon")["process"]["start"] -= 1


def own_parent(answers: Any, _: Any) -> None:
    for each in objects(answers, "model.Process"):
        each["ppid"] = each["pid"]


def daemon_is_not_listed(answers: Any, _: Any) -> None:
    first(answers, "model.Daemon")["process"]["pid"] = 4242


def daemon_of_another(answers: Any, _: Any) -> None:
    first(answers, "model.Daemon")["process"]["uid"] = 2001


def holder_is_nobody(answers: Any, _: Any) -> None:
    answers["host_state.lock_holder 65024 17"] = [{"$": "host_facts.Holder", "pid": 4242, "uid": 0}]


def holder_untold(answers: Any, _: Any) -> None:
    answers["host_state.lock_holder 65024 17"] = [{"$": "host_facts.Holder"}]


def wrong_parents(answers: Any, _: Any) -> None:
    first(answers, "model.Directory", path=PIPE)["parents"].pop(1)


def names_in_a_link(answers: Any, _: Any) -> None:
    first(answers, "model.Directory", path=PIPE)["kind"] = "link"


def name_twice(answers: Any, _: Any) -> None:
    names = first(answers, "model.Directory", path=PIPE)["names"]
    names[1]["name"] = names[0]["name"]


def inode_twice(answers: Any, _: Any) -> None:
    names = first(answers, "model.Directory", path=PIPE)["names"]
    names[1]["inode"] = names[0]["inode"]


def path_of_a_person(answers: Any, _: Any) -> None:
    answers["steps.scontrol"] = [str(Path("/", "home", "somebody", "bin", "scontrol"))]


def strange_question(answers: Any, _: Any) -> None:
    answers["weather.tomorrow"] = [True]


def strange_program(answers: Any, _: Any) -> None:
    answers["lspci: -n"] = [{"$": "host.children.Answer", "rc": 0, "out": "", "err": ""}]


def no_answer(answers: Any, _: Any) -> None:
    answers["probe.probe_user"] = []


def strange_member(_: Any, document: Any) -> None:
    document["host"] = "n1"


def another_schema(_: Any, document: Any) -> None:
    document["schema"] = 2


def another_day(_: Any, document: Any) -> None:
    document["clock"] -= 9 * 86400


ROWS: list[tuple[str, Change, str]] = [
    ("well-535", without_socket, f"a daemon answered, and there is no socket in {PIPE}"),
    ("well-535", without_listener, f"a daemon answered, and nobody listens in {PIPE}"),
    ("well-535", peer_is_nobody, "listens on a socket and has no entry in /proc"),
    ("well-535", peer_is_not_listed, "listens on a socket by MPS's name and is not among those of that name"),
    ("well-535", server_is_no_process, "server 4242 is no process, and was not found to be dead"),
    ("well-535", server_is_a_word, "none is no server"),
    ("well-535", status_of_a_reached_daemon, "exit status 1 though all was answered"),
    ("well-535", success_of_an_unreached_daemon, "exit status 0 though no daemon was reached"),
    ("well-535", answered_without_end, "it did not end in time, and answered all the same"),
    ("well-535", ended_out_of_sight, "it did not end in time, and what it did then is not told"),
    ("well-535", systemd_without_end, "it did not end in time, and answered all the same"),
    ("well-535", answer_of_nothing, "a program that is not there answered"),
    ("well-535", index_twice, "an index comes twice, or before a lower one"),
    ("well-535", uuid_twice, "two GPUs have the same uuid"),
    ("well-535", bus_twice, "two GPUs have the same pci.bus_id"),
    ("well-535", row_too_short, "a row has not 9 cells"),
    ("well-535", no_rows, "exit status 0 and no row"),
    ("well-535", success_of_a_failure, "exit status 0 though it failed"),
    ("well-535", another_driver, "nvidia-smi names driver 535.261.03, and 550.163.01 is loaded"),
    ("well-535", runs_without_process, "nvidia-mps.service runs and has no process"),
    ("well-535", runs_as_another, "nvidia-mps.service runs as process 4242, which is none with MPS's name"),
    ("well-535", inactive_with_process, "nvidia-mps.service is inactive and has process"),
    ("well-535", begun_in_the_future, "InactiveExitTimestampMonotonic of nvidia-mps.service lies in the future"),
    ("well-535", clock_backwards, "the clock of units.now_s runs backwards"),
    ("well-535", started_afterwards, "started after the audit"),
    ("server-fault", server_too_young, "s old, which its start contradicts"),
    ("crash-loop", strike_to_come, "a strike lies in the future, or after a later one"),
    ("crash-loop", strikes_reversed, "a strike lies in the future, or after a later one"),
    ("xid", event_after_the_last, "an event of the kernel log comes after its last record"),
    ("job-bypasses-mps", job_to_come, "job 1 began after the audit"),
    ("well-535", started_twice, "started twice"),
    ("well-535", own_parent, "is its own parent"),
    ("well-535", daemon_is_not_listed, "process 4242 has MPS's name and is not among those of that name"),
    ("well-535", daemon_of_another, "is not of the node's owner"),
    ("well-535", holder_is_nobody, "holds a lock or a connection and has no entry in /proc"),
    ("well-535", holder_untold, "it is not said who or why that cannot be told"),
    ("well-535", wrong_parents, f"the directories above {PIPE} are not /, /run/nvidia-mps"),
    ("well-535", names_in_a_link, f"{PIPE} holds names and is a link"),
    ("well-535", name_twice, f"{PIPE} holds a name twice"),
    ("well-535", inode_twice, f"{PIPE} holds two files of one link each with the same inode"),
    ("server-fault", path_of_a_person, "/home is no place of a node"),
    ("well-535", strange_question, "no audit asks `weather.tomorrow`"),
    ("well-535", strange_program, "no audit asks `lspci: -n`"),
    ("well-535", no_answer, "`probe.probe_user` has no answer"),
    ("well-535", strange_member, "answers.json is not what --record writes: host"),
    ("well-535", another_schema, "answers.json is not what --record writes: another schema"),
    ("well-535", another_day, "and the recording's clock"),
]


@pytest.mark.parametrize(("name", "change", "problem"), ROWS, ids=[each[1].__name__ for each in ROWS])
def test_what_no_node_can_be_is_refused(name: str, change: Change, problem: str) -> None:
    assert any(problem in each for each in changed(name, change)), changed(name, change)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"source": " "}, "about.toml names no source"),
        ({"done": ""}, "about.toml does not say what was done"),
        ({"invented": True}, "what was changed by hand is said, and only then"),
        ({"changed": "a pid"}, "what was changed by hand is said, and only then"),
        ({"verdict": "fine"}, "no verdict is called fine"),
        ({"findings": (("daemon-tired", "daemon node"),)}, "no finding is called daemon-tired"),
        ({"mps": "390"}, "driver 390 is not simulated"),
        ({"fault": "gpu-sad"}, "`mpsfleet sim faults` has no gpu-sad"),
        ({"date": "yesterday"}, "yesterday is no date"),
        ({"program": "0.0.1"}, "about.toml says 0.0.1, and mpsfleet"),
        ({"verdict": "warn"}, "report.json holds"),
    ],
)
def test_what_about_toml_cannot_say_is_refused(values: dict[str, Any], problem: str) -> None:
    about, document, report = read("well-535")
    assert any(problem in each for each in checker.problems(about._replace(**values), document, report))


def test_a_real_node_is_recorded_under_a_name_of_its_own() -> None:
    about, document, report = copy.deepcopy(read("well-535"))
    report["node"] = "gpu17"
    assert checker.problems(about, document, report) == ["the node is called gpu17, not node1"]


@pytest.mark.parametrize("key", ["source", "done", "program", "date", "mps", "verdict"])
def test_about_toml_says_all_that_it_must(key: str) -> None:
    said = {each: "x" for each in ("source", "done", "program", "date", "mps", "verdict") if each != key}
    with pytest.raises(ValueError, match=f"does not say {key}"):
        recorded_node.understood(said)


def test_about_toml_says_nothing_that_means_nothing() -> None:
    with pytest.raises(ValueError, match="has sauce, which means nothing"):
        recorded_node.understood({"sauce": "simulated node"})
