"""The command line: the first two words choose the room, which is imported only then.

Every failure ends here as one sentence on stderr and an exit code; a traceback is shown only with `--debug`. Nothing
but `sys` is imported before a verb is known: each module would cost every audit of every node its start-up time.
"""

from __future__ import annotations

import sys

from mpsfleet import __version__
from mpsfleet.errors import OK, UNKNOWN, USAGE, MpsfleetError, UsageError

TYPE_CHECKING = False  # typing itself costs 10 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

INTERRUPTED = 130  # the shell's number for SIGINT
READER_GONE = 141  # the shell's number for SIGPIPE
DEBUG = "--debug"
ROOT = "--root"
_SENTENCE = 2000  # characters of one sentence; more is cut

NODE_VERBS = ("audit", "apply", "remove", "reset", "quiesce", "unquiesce", "acknowledge", "prepare")
COMMANDS = ("node", "slurm", "sim", "explain")
_HIDDEN = ("run-daemon", "settle")  # called by our own unit file, not by people
_OPTIONS = ("--help", "--version")

HELP = """\
usage: mpsfleet COMMAND [OPTIONS]

mpsfleet keeps NVIDIA MPS healthy on the GPU nodes of a Slurm cluster.

On a node, as root:
  mpsfleet node audit      say what is wrong, and change nothing
  mpsfleet node apply      deploy or repair what /etc/mpsfleet/node.toml asks for
  mpsfleet node reset      stop the daemon, clean its directories, start it and verify; the node must be drained
  mpsfleet node quiesce    stop the daemons and keep them stopped, for work on the driver; unquiesce ends that
  mpsfleet node acknowledge  say that the fatal GPU errors in the kernel log are seen to
  mpsfleet node remove     take away all that apply put there
  mpsfleet node prepare    create the directories (the unit file calls this)

On the Slurm controller:
  mpsfleet slurm nodes     what Slurm believes about its GPU nodes
  mpsfleet slurm drain     drain a node with our reason
  mpsfleet slurm undrain   undrain a node whose drain is ours
  mpsfleet slurm verdict   judge the reports of many nodes, and drain where that is asked for
  mpsfleet slurm drift     compare what Slurm registers with what runs on the nodes
  mpsfleet slurm lint      check slurm.conf and gres.conf against each other and against a node's GPUs

For a rehearsal, without root:
  mpsfleet sim up 4        a simulated fleet; `mpsfleet sim --help` tells the rest

Anywhere:
  mpsfleet explain [CODE]  what a finding code or a drain reason means, and what to do
  mpsfleet --version       add --json for a program

`mpsfleet --root DIR node …` works on the node under DIR, an image or a simulated node. Each command has its --help.
--dry-run shows what an acting command would do; --debug adds the traceback of a failure. Exit codes: 0 ok, 1 warning,
2 critical or not in effect, 3 unknown, 64 wrong usage, 75 refused.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code; no exception leaves."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = DEBUG in words
    words = [each for each in words if each != DEBUG]
    try:
        root, words = _root(words)
        status = _dispatch(words, root)
        sys.stdout.flush()  # a reader that has gone shows here, not at the interpreter's exit
    except MpsfleetError as error:
        return _say(str(error), error.exit_code, debug=debug)
    except KeyboardInterrupt:
        return _say("interrupted.", INTERRUPTED, debug=False)
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as stop:  # argparse ends with 2 for a wrong option; here 2 means critical
        return _status_of(stop.code)
    except Exception as error:  # noqa: BLE001  the last door: a person gets a sentence, whatever broke
        doing = " ".join(words[:2]) or "starting"
        text = (
            f"internal error while running `{doing}`: {type(error).__name__}: {error} "
            f"(this is a defect; run again with {DEBUG} and report what it prints)."
        )
        return _say(text, UNKNOWN, debug=debug)
    else:
        return status


def _root(words: list[str]) -> tuple[str, list[str]]:
    """Take `--root DIR` off the front: the node, or the controller, that lies under that directory."""
    if words[:1] != [ROOT]:
        return "", words
    import os

    path = words[1] if len(words) > 1 else ""
    if not path.startswith("/") or not os.path.isdir(path):
        raise UsageError(f"{ROOT} takes the absolute path of a directory: the root of an image or a simulated node.")
    if "SUDO_UID" in os.environ:
        raise UsageError(f"{ROOT} is not accepted under sudo: root does not follow a path of the caller's.")
    return path.rstrip("/"), words[2:]


def _dispatch(words: list[str], root: str) -> int:
    if not words:
        message = "say what to do, for example `mpsfleet node audit`; `mpsfleet --help` lists the commands."
        raise UsageError(message)
    command, rest = words[0], words[1:]
    if command == "node":
        return _node(rest, root)
    if command == "slurm":
        from mpsfleet.slurm import cli as slurm

        return slurm.main(rest, root=root)
    if command == "sim":
        return _sim(rest)
    if command == "explain":
        from mpsfleet import explain

        return explain.main(rest)
    if command in ("--help", "-h", "help"):
        sys.stdout.write(HELP)
        return OK
    if command == "--version":
        return _version(rest)
    raise unknown_word("command", command, (*COMMANDS, *_OPTIONS))


def _sim(words: list[str]) -> int:
    try:
        from mpsfleet.sim import cli as sim
    except ModuleNotFoundError as error:
        if error.name != "mpsfleet.sim":
            raise
        message = "the simulated fleet is not in this file, which is made for nodes; it is in the pip package mpsfleet."
        raise UsageError(message) from None
    return sim.main(words)


def _node(words: list[str], root: str) -> int:
    if not words:
        message = f"`mpsfleet node` needs one of {', '.join(NODE_VERBS)}."
        raise UsageError(message)
    verb, rest = words[0], words[1:]
    if verb == "audit":
        from mpsfleet.node import audit

        return audit.main(rest, root)
    if verb == "hook":  # called by our own hooks, not by people
        from mpsfleet.node import hooks

        return hooks.main(rest, root)
    if verb in NODE_VERBS or verb in _HIDDEN:
        from mpsfleet.node import verbs

        return verbs.main(verb, rest, root)
    if verb in ("--help", "-h"):
        sys.stdout.write(HELP)
        return OK
    raise unknown_word("node command", verb, NODE_VERBS)


def unknown_word(kind: str, word: str, known: Sequence[str]) -> UsageError:
    """Return the error for a word that is not one of `known`; it names the nearest right one."""
    from difflib import get_close_matches

    from mpsfleet.show import show

    near = get_close_matches(word, known, n=1)
    hint = f"; did you mean `{near[0]}`?" if near else "."
    return UsageError(f"there is no {kind} `{show(word, 40)}` (known: {', '.join(known)}){hint}")


def _version(words: list[str]) -> int:
    if not words:
        sys.stdout.write(f"mpsfleet {__version__}\n")
        return OK
    if words != ["--json"]:
        raise unknown_word("option of --version", words[0], ("--json",))
    from mpsfleet.program import source_digest

    digest = source_digest()
    shown = "null" if digest is None else f'"{digest}"'
    sys.stdout.write(f'{{"version": "{__version__}", "schema": 1, "digest": {shown}}}\n')
    return OK


def _say(sentence: str, exit_code: int, *, debug: bool) -> int:
    if debug:
        from traceback import print_exc

        print_exc()
    from mpsfleet.show import show

    text = show(" ".join(sentence.split()), _SENTENCE)  # a file's text or a process's name may be in it
    _quietly(lambda: sys.stderr.write(f"mpsfleet: {text}\n"))
    return exit_code


def _reader_gone() -> int:
    import os

    # The interpreter flushes stdout once more at its end and would complain there.
    _quietly(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()))
    return READER_GONE


def _quietly(write: Callable[[], object]) -> None:
    try:
        write()
    except (OSError, ValueError):  # stderr closed, or not a file: the exit code still speaks
        return


def _status_of(code: object) -> int:
    if code is None:
        return OK
    if isinstance(code, int):
        return USAGE if code == 2 else code  # noqa: PLR2004  argparse's own number
    return UNKNOWN
