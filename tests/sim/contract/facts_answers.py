"""Facts about what commands answer: to root and to a user, by driver version, alone and several in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.facts import fact
from contract.subject import NOBODY, Said

if TYPE_CHECKING:
    from contract.subject import Subject

ABOUT = "Answers"
RULE = "Control deamon settings can only be modified by the user started it or by the root user."
NEVER_THERE = ("help", "version", "lspart", "sm_partition", "server", "GET_SERVER_LIST", "")


def unknown(command: str) -> str:
    return f'Unknown command "{command.partition(" ")[0]}"\n'


def answers(subject: Subject, expected: dict[str, str], since: int = 470) -> None:
    """Ask one command at a time; a driver before `since` knows none of them."""
    for command, answer in expected.items():
        said = subject.ask(f"{command}\n")
        assert (command, said) == (command, Said(0, answer if subject.version >= since else unknown(command)))


@fact(
    ABOUT, "idle: `get_server_list` and `get_device_client_list` answer nothing, the percentage is 100.0", is_quiet=True
)
def is_idle(subject: Subject) -> None:
    answers(
        subject,
        {"get_server_list": "", "get_default_active_thread_percentage": "100.0\n", "get_device_client_list": ""},
    )


@fact(ABOUT, 'an unknown word: `Unknown command "x"`, with 0; v3 verbs are unknown', is_quiet=True)
def knows_no_other_word(subject: Subject) -> None:
    for word in NEVER_THERE:
        assert subject.ask(f"{word}\n") == Said(0, unknown(word))
    assert subject.ask("foo bar\n") == Said(0, unknown("foo"))


@fact(
    ABOUT, "several lines in one call are answered in order, and an unknown word between them delimits", is_quiet=True
)
def is_asked_several_things(subject: Subject) -> None:
    said = subject.ask("get_default_active_thread_percentage\nnext\nget_server_list\nnext\n\nget_client_list 7\n")
    assert said == Said(0, f"100.0\n{unknown('next')}{unknown('next')}{unknown('')}Server 7 not found\n")


@fact(ABOUT, "blanks around a command and a missing last newline do not matter; no command at all is 0", is_quiet=True)
def is_lenient(subject: Subject) -> None:
    for text in (" get_default_active_thread_percentage\n", "get_default_active_thread_percentage  \n"):
        assert subject.ask(text) == Said(0, "100.0\n")
    assert subject.ask("get_default_active_thread_percentage") == Said(0, "100.0\n")
    assert subject.ask("") == Said(0)


@fact(ABOUT, "a command given as words on the command line is not carried out; only 555 says so", is_quiet=True)
def ignores_arguments(subject: Subject) -> None:
    said = subject.call("start_server", "-uid", "0")
    if subject.version < 555:
        assert said == Said(0)
    else:
        assert said.rc == 1
        assert said.out.startswith("CUDA MPS Control")
    assert subject.ask("get_server_list\n") == Said(0)


@fact(ABOUT, "a server that is not there: `Server N not found`, with 0", is_quiet=True)
def finds_no_server(subject: Subject) -> None:
    answers(
        subject,
        {
            "get_client_list 12": "Server 12 not found\n",
            "get_client_list": "Server 0 not found\n",
            "get_device_client_list 12": "Server 12 not found\n",
            "get_active_thread_percentage 12": "Server 12 not found\n",
            "set_active_thread_percentage 12 50": "Server 12 not found\n",
            "shutdown_server 12": "Server 12 not found\n",
            "shutdown_server 12 -f": "Server 12 not found\n",
            "shutdown_server -f 12": "Server 0 not found\n",
            "shutdown_server": "Server 0 not found\n",
        },
    )


@fact(ABOUT, "`ps`: `Server not found` when idle; unknown on 470", is_quiet=True)
def has_ps(subject: Subject) -> None:
    answers(subject, {"ps": "Server not found\n", "ps -p 12": "Server 12 not found\nServer 12 not found\n\n"}, 535)


@fact(ABOUT, "`get_server_status`: from 550 on", is_quiet=True)
def has_status(subject: Subject) -> None:
    answers(
        subject,
        {"get_server_status 12": "Server 12 not found\n", "get_server_status": "A server PID is required\n"},
        550,
    )


@fact(ABOUT, "`terminate_client` of no server answers three lines; unknown on 470", is_quiet=True)
def has_terminate(subject: Subject) -> None:
    answers(subject, {"terminate_client 1 2": "Server 1 not found\nServer 1 not found!\n1\n"}, 535)


@fact(ABOUT, "`start_server` without a user id says so", is_quiet=True)
def needs_a_user_id(subject: Subject) -> None:
    wanted = "A user id (UID) is required to start a new server\n"
    answers(subject, {"start_server": wanted, "start_server -uid": wanted})


@fact(ABOUT, "a percentage is printed back with one decimal; an invalid one changes nothing, with 0, and is logged")
def sets_a_percentage(subject: Subject) -> None:
    subject.start()
    answers(subject, {f"set_default_active_thread_percentage {word}": f"{now}\n" for word, now in (
        ("50", "50.0"), ("12.55", "12.6"), ("50x", "50.0"), ("500", "50.0"), ("0", "50.0"), ("x", "50.0"), ("-1", "50.0"),
        ("", "50.0"), ("100", "100.0"), ("0.04", "0.0"),
    )})  # fmt: skip
    subject.eventually(lambda: "Invalid percentage, expected between (0.0, 100.0]" in subject.control_log())


@fact(ABOUT, "the environment's CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is the default from the start; an invalid one is not")
def is_started_with_a_percentage(subject: Subject) -> None:
    for given, now in (("37.5", "37.5"), ("50x", "50.0"), ("0", "100.0"), ("x", "100.0"), ("", "100.0")):
        subject.start(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=given)
        assert (given, subject.ask("get_default_active_thread_percentage\n")) == (given, Said(0, f"{now}\n"))
        assert subject.ask("quit\n") == Said(0)
        subject.eventually(lambda: not subject.lives(subject.daemon()))


@fact(
    ABOUT,
    "pinned memory limits per device: set without a word; printed in M, from 1G on in whole G, cut down; unknown on 470",
)
def has_memory_limits(subject: Subject) -> None:
    subject.start()
    answers(subject, {"get_default_device_pinned_mem_limit 0": ""}, 535)
    for limit, printed in (("1G", "1G\n"), ("512M", "512M\n"), ("1536M", "1G\n"), ("5", "5M\n"), ("x", "")):
        answers(subject, {f"set_default_device_pinned_mem_limit 0 {limit}": ""}, 535)
        answers(subject, {"get_default_device_pinned_mem_limit 0": printed}, 535)
    answers(subject, {"get_default_device_pinned_mem_limit 1": ""}, 535)
    for command in ("set_device_pinned_mem_limit 12 0 1G", "get_device_pinned_mem_limit 12 0"):
        answers(subject, {command: "Server 12 not found\n"}, 535)


@fact(ABOUT, "the default client priority is 0 or 1, anything else is refused in words; unknown on 470")
def has_priorities(subject: Subject) -> None:
    subject.start()
    answers(subject, {"get_default_client_priority": "0\n", "set_default_client_priority 1": ""}, 535)
    refused = "Invalid priority value - must be 0 or 1!\n"
    answers(subject, {"set_default_client_priority 7": refused, "get_default_client_priority": "1\n"}, 535)


@fact(ABOUT, "a user reads what root reads", is_quiet=True, needs_root=True)
def answers_a_user(subject: Subject) -> None:
    said = subject.ask("get_default_active_thread_percentage\nnext\nget_server_list\n", uid=NOBODY)
    assert said == Said(0, f"100.0\n{unknown('next')}")


@fact(ABOUT, "a user may set the default percentage, limits and priority up to 535; from 550 on privileges are refused",
      needs_root=True)  # fmt: skip
def is_set_by_a_user(subject: Subject) -> None:
    subject.start()
    refusal = f"Insufficient privileges for UID {NOBODY}. {RULE}\n"
    said = subject.ask("set_default_active_thread_percentage 33\n", uid=NOBODY)
    assert said == Said(0, refusal if subject.version >= 550 else "33.0\n")
    now = "100.0\n" if subject.version >= 550 else "33.0\n"
    assert subject.ask("get_default_active_thread_percentage\n") == Said(0, now)
    for command in ("set_default_device_pinned_mem_limit 0 1G", "set_default_client_priority 1"):
        known = refusal if subject.version >= 550 else ""
        expected = known if subject.version >= 535 else unknown(command)
        assert subject.ask(f"{command}\n", uid=NOBODY) == Said(0, expected)
