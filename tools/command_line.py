"""The command line as values, read from the parsers themselves; and as reference page, manual page and completion."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, NamedTuple

from mpsfleet import __version__, cli
from mpsfleet.codes import CODES, DRAIN_WORDS, RESET
from mpsfleet.node import audit
from mpsfleet.node import verbs as node_verbs
from mpsfleet.sim import cli as sim_cli
from mpsfleet.slurm import arguments as slurm_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EXIT_CODES = (
    ("0", "ok: well, or done"),
    ("1", "warning: jobs run; something should be looked at"),
    ("2", "critical: jobs fail or the node is unsafe; or a step was taken and is not in effect"),
    ("3", "unknown: it could not be asked, the configuration is invalid, or mpsfleet itself failed"),
    ("64", "wrong usage"),
    ("75", "refused: a precondition does not hold; nothing was changed"),
)
PLACES = {
    "node": "On a GPU node, as root",
    "slurm": "On the Slurm controller",
    "sim": "A simulated fleet, without root",
    "": "Anywhere",
}


class Word(NamedTuple):
    """One option or operand: as it is typed, what it takes, and what it is for."""

    name: str  # "--code", or "NODE" for an operand
    takes: str  # "CODE"; "" for a switch
    what: str
    is_optional: bool = True
    is_repeated: bool = False
    choices: tuple[str, ...] = ()

    @property
    def is_option(self) -> bool:
        """Whether it begins with a dash."""
        return self.name.startswith("-")

    @property
    def spelled(self) -> str:
        """The word with what it takes."""
        return f"{self.name} {self.takes}" if self.takes else self.name

    @property
    def in_usage(self) -> str:
        """The word as it stands in a line of usage."""
        text = f"{self.spelled}…" if self.is_repeated else self.spelled
        return f"[{text}]" if self.is_optional else text


class Verb(NamedTuple):
    """One command of the program."""

    room: str  # "node" | "slurm" | "sim" | ""
    name: str
    what: str
    words: tuple[Word, ...]

    @property
    def usage(self) -> str:
        """The command with all it takes."""
        operands = [each.in_usage for each in self.words if not each.is_option]
        options = [each.in_usage for each in self.words if each.is_option]
        return " ".join(filter(None, ["mpsfleet", self.room, self.name, *operands, *options]))


def commands() -> tuple[Verb, ...]:
    """Return every command, in the order of the rooms."""
    return (*_node(), *_slurm(), *_sim(), _explain(), _version())


def _node() -> Iterator[Verb]:
    for name in cli.NODE_VERBS:
        if name == "audit":  # its words are read without argparse: it is the path that every minute takes
            words = (
                Word("--json", "", "one line of JSON"),
                Word("--nagios", "", "a line with performance data for Nagios and its like, then a line a finding"),
                Word("--config", "-", "judge against the node.toml on standard input"),
                Word("--record", "DIR", "keep every answer, and the report, in a new directory; not under sudo"),
                Word("--record-names", "", "with --record: keep names of machines and people as they are"),
                Word("--replay", "DIR", "audit a recorded node; reads nothing else, and needs no root"),
            )
            typed = set(re.findall(r"--[a-z-]+", audit.USAGE))
            if typed != {each.name for each in words}:
                message = f"the audit's own usage names {sorted(typed)}; say so in tools/command_line.py."
                raise ValueError(message)
            yield Verb("node", name, "Say what is wrong, and change nothing.", words)
        else:
            parser = node_verbs._parser(name)  # noqa: SLF001  the one source of its options
            yield Verb("node", name, parser.description or "", _words(parser))


def _slurm() -> Iterator[Verb]:
    for name, parser in slurm_arguments._parsers()[1].items():  # noqa: SLF001  same
        yield Verb("slurm", name, parser.description or "", _words(parser))


def _sim() -> Iterator[Verb]:
    for action in sim_cli._parser()._actions:  # noqa: SLF001  same
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  argparse shows its words in no other way
            for each in action._choices_actions:  # noqa: SLF001  same
                what = each.help or ""
                yield Verb("sim", each.dest, f"{what[:1].upper()}{what[1:]}.", _words(action.choices[each.dest]))


def _explain() -> Verb:
    what = "What a finding code, or a whole drain reason, means and what to do. Without one: all codes."
    codes = (*(each.code for each in CODES), RESET)
    return Verb("", "explain", what, (Word("CODE", "", "a finding code or a drain reason", choices=codes),))


def _version() -> Verb:
    return Verb("", "--version", "The version.", (Word("--json", "", "with the digest of the sources"),))


def _words(parser: argparse.ArgumentParser) -> tuple[Word, ...]:
    return tuple(_word(each) for each in parser._actions if "--help" not in each.option_strings)  # noqa: SLF001


def _word(action: argparse.Action) -> Word:
    choices = tuple(map(str, action.choices or ()))
    if action.dest == "code":
        choices = tuple(sorted(DRAIN_WORDS))
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    what = " ".join((action.help or "").split()).replace("%(default)s", str(action.default))
    if not action.option_strings:
        is_optional, is_repeated = action.nargs in ("*", "?"), action.nargs in ("*", "+", argparse.REMAINDER)
        return Word(metavar, "", what, is_optional, is_repeated, choices)
    takes = "" if action.nargs == 0 else metavar
    return Word(max(action.option_strings, key=len), takes, what, not action.required, choices=choices)


# The reference page

_PAGE_HEAD = """\
# Command line

Written by `./dev docs` from the program's own parsers. Every command has `--help`.

`mpsfleet --root DIR …` works on the node, or for `slurm` on the controller, that lies under DIR: an image, or a
simulated node. DIR is absolute; under sudo it is refused. `--debug` adds the traceback of a failure. The
[exit codes](exit-codes.md) are the same for all commands. What `--json` prints: [JSON](json.md).

In a checkout, `man docs/man/mpsfleet.8` shows the manual page, and `source docs/completion/mpsfleet.bash` gives bash
the completion of commands, options and finding codes.
"""


def page() -> str:
    """Return the reference page in Markdown."""
    parts = [_PAGE_HEAD]
    for room, verbs in _rooms():
        parts.append(f"\n## {PLACES[room]}\n")
        parts += [_section(each) for each in verbs]
    return "".join(parts)


def _section(verb: Verb) -> str:
    title = " ".join(filter(None, ["mpsfleet", verb.room, verb.name]))
    rows = "".join(f"| `{_cell(each.spelled)}` | {_cell(each.what)} |\n" for each in verb.words if each.what)
    table = f"\n| | |\n| --- | --- |\n{rows}" if rows else ""
    return f"\n### {title}\n\n{verb.what}\n\n```text\n{verb.usage}\n```\n{table}"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _rooms() -> Iterator[tuple[str, list[Verb]]]:
    every = commands()
    for room in PLACES:
        yield room, [each for each in every if each.room == room]


# The manual page

_MANUAL_HEAD = """\
.\\" Written by ./dev docs from the program's own parsers.
.TH MPSFLEET 8 "" "mpsfleet {version}" "System administration"
.SH NAME
mpsfleet \\- keep NVIDIA MPS healthy on the GPU nodes of a Slurm cluster
.SH SYNOPSIS
.B mpsfleet
[\\fB\\-\\-root\\fR \\fIDIR\\fR] \\fICOMMAND\\fR [\\fIOPTIONS\\fR]
.SH DESCRIPTION
Deploys the MPS control daemon on a node, audits it, says in one sentence what is wrong and what to do, resets it
without harming a running job, and keeps Slurm's view true. An audit changes nothing; every acting command has
.BR \\-\\-dry\\-run .
.SH OPTIONS
.TP
\\fB\\-\\-root\\fR \\fIDIR\\fR
Work on the node, or the controller, that lies under DIR (absolute): an image, or a simulated node.
.TP
.B \\-\\-debug
Add the traceback of a failure.
.TP
.B \\-\\-help
Show the commands; each command has its own.
"""
_MANUAL_TAIL = """\
.SH FILES
.TP
.I /etc/mpsfleet/node.toml
What the node should be.
.TP
.I /etc/mpsfleet/off
Where this file is, nothing is changed; audits still answer.
"""


def manual() -> str:
    """Return the manual page, for section 8."""
    parts = [_MANUAL_HEAD.format(version=__version__), ".SH COMMANDS\n"]
    for room, verbs in _rooms():
        parts.append(f".SS {_roff(PLACES[room])}\n")
        for verb in verbs:
            parts.append(f".TP\n.B {_roff(verb.usage)}\n{_roff(verb.what)}\n.RS\n")
            parts += [f".TP\n.B {_roff(each.spelled)}\n{_roff(each.what)}\n" for each in verb.words if each.what]
            parts.append(".RE\n")
    parts.append('.SH "EXIT STATUS"\n')
    parts += [f".TP\n.B {code}\n{_roff(meaning)}\n" for code, meaning in EXIT_CODES]
    return "".join((*parts, _MANUAL_TAIL))


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


# Completion

_COMPLETION = """\
# Completion of mpsfleet's commands for bash. Written by ./dev docs from the program's own parsers.
# Install it as /usr/share/bash-completion/completions/mpsfleet, or source it.

_mpsfleet_words() {{
    case "$1" in
{words}
    esac
}}

_mpsfleet_values() {{
    case "$1" in
{values}
    esac
}}

_mpsfleet() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD - 1]}}" start=1 path=""
    COMPREPLY=()
    if [[ "${{COMP_WORDS[1]}}" == "--root" ]]; then
        start=3
        if ((COMP_CWORD == 2)); then
            mapfile -t COMPREPLY < <(compgen -d -- "$current")
            return
        fi
    fi
    if ((COMP_CWORD > start)); then path="${{COMP_WORDS[start]}}"; fi
    if ((COMP_CWORD > start + 1)) && [[ "$path" =~ ^({rooms})$ ]]; then path+=" ${{COMP_WORDS[start + 1]}}"; fi
    local words
    words="$(_mpsfleet_values "$path $previous")"
    if [[ "$words" == "FILE" ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
    fi
    if [[ -z "$words" ]]; then words="$(_mpsfleet_words "$path")"; fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o filenames -F _mpsfleet mpsfleet
"""


def completion() -> str:
    """Return bash's completion of the commands, their options and the values that are known beforehand."""
    every = commands()
    rooms = [room for room in PLACES if room]
    after: dict[str, list[str]] = {"": [*rooms, *(each.name for each in every if not each.room), "--root", "--help"]}
    for room in rooms:
        after[room] = [each.name for each in every if each.room == room]
    values: dict[str, list[str]] = {}
    for verb in every:
        path = f"{verb.room} {verb.name}".strip()
        after[path] = [*(each.name for each in verb.words if each.is_option), "--help"]
        for word in verb.words:
            if not word.is_option:
                after[path] += word.choices
            elif word.takes:
                values[f"{path} {word.name}"] = _values(word)
    return _COMPLETION.format(words=_cases(after.items()), values=_cases(values.items()), rooms="|".join(rooms))


def _values(word: Word) -> list[str]:
    if word.choices:
        return list(word.choices)
    if word.takes == "-":
        return ["-"]
    return ["FILE"] if word.takes.startswith(("FILE", "DIR", "PATH")) else [""]


def _cases(table: Iterable[tuple[str, list[str]]]) -> str:
    return "\n".join(f'        "{key}") echo "{" ".join(words)}" ;;' for key, words in table if words != [""])
