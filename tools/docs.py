"""The documentation: the pages that come from the sources, and the site (docs_site.py).

`./dev docs` writes the pages and builds the site; `--pages` only writes; `--check` only compares, and needs no tool.
"""

from __future__ import annotations

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "src"))
import command_line  # noqa: E402  needs the path above
import findings  # noqa: E402  needs the path above
import report_schema  # noqa: E402  needs the path above
from mpsfleet.codes import CODES, RESET, Code  # noqa: E402  needs the path above
from mpsfleet.sim.faults import FAULTS, Fault  # noqa: E402  needs the path above
from mpsfleet.slurm.lint.rules import RULES, Rule  # noqa: E402  needs the path above
from mpsfleet.slurm.state_table import BASES, FLAGS, JOB, Row, Step  # noqa: E402  needs the path above

DOCS = REPOSITORY / "docs"
USAGE = 64
CODES_HEAD = f"""\
# Finding codes

Written by `./dev docs` from `src/mpsfleet/codes.py`. At a prompt, `mpsfleet explain CODE` says the same; it also takes
a drain reason as `sinfo -R` shows it. A drain reason reads `mpsfleet: CODE` or `mpsfleet: CODE gpuN`;
`mpsfleet: {RESET}` is a planned reset. Each code has [a page of its own](../findings/index.md).

Severity: *critical*: jobs fail, or the node is unsafe; *unknown*: could not be asked, which is never taken for healthy
or for broken; *warn*: jobs run. Cause: *node*, *user* (what a user does), or *either*. Only a critical finding that the
node itself causes can drain, and only where drains are asked for; "if shown" means that the finding must show this
itself.

| code | severity | cause | drains | meaning | remedy |
| --- | --- | --- | --- | --- | --- |
"""


FAULTS_HEAD = """\
# Faults

Written by `./dev docs` from the simulator's own table. `mpsfleet sim break NODE FAULT` brings one about on a
[simulated fleet](../how-to/rehearse.md), and `mpsfleet sim mend NODE` undoes what a reset cannot. The lab's faults have
the same names and meanings (`lab/lab faults`).

| fault | what it is | simulated |
| --- | --- | --- |
"""


LINT_HEAD = """\
# Checking slurm.conf and gres.conf

Written by `./dev docs` from `src/mpsfleet/slurm/lint/rules.py`. `mpsfleet slurm lint` reads both files with all that
they include, checks them against each other and, with `--gpus-json`, against the GPUs of one node, and changes nothing.
Its options: [the command line](command-line.md#mpsfleet-slurm-lint); what `--json` prints:
[JSON](json.md#the-check-of-slurms-files). [Tell Slurm about MPS](../how-to/tell-slurm.md) shows it at work.

A finding names file and line, the nodes, what is wrong and what to do:

```text
slurm.conf:18: critical: SelectType is select/linear, and nodes have mps or shard. Set … [select-type]
```

The files are read as Slurm reads them: keys of any case, `\\` at the end of a line, comments from `#` (`\\#` is none),
values in double quotes, `Include`, NodeName=DEFAULT and PartitionName=DEFAULT, host lists such as `n[1-3,7]`. Programs
that the files name are not looked at. Settings that do not concern MPS are not judged.

The exit code is 0 without a warning (notes do not count), 1 with one, 2 with a critical finding, 3 where a file could
not be read. Root under sudo takes no path: it reads the usual places and standard input.

What Slurm does was seen on 22.05.8; that a daemon ends, on 24.11.5 too.

| code | severity | what Slurm does | what to do |
| --- | --- | --- | --- |
"""


STATES_HEAD = """\
# Node states of Slurm

Written by `./dev docs` from `src/mpsfleet/slurm/state_table.py`. `scontrol show nodes` prints a base state and flags,
such as `MIXED+DRAIN`: there is no state DRAINED, but a node that is IDLE with the flag DRAIN. What mpsfleet does to a
node needs its base state and every one of its flags to allow it. A word that is not here allows nothing but asking.

- **drain**: mpsfleet may drain the node. Never over a drain that is there.
- **undrain**: mpsfleet may give the node back; only where the whole reason is its own.
- **reset**: MPS on the drained node may be worked on.
- **ask**: the node is expected to answer. Where not, it is told as off and not as unknown if it could not be reached.

A **no** that comes from jobs ends with them. The words are those of Slurm 20.11 to 26.05.

"""
STATES_TABLE = "| {kind} | also | drain | undrain | reset | ask | meaning | why not |\n{line}"


def main(words: list[str]) -> int:
    """Write or compare the pages, and build the site; returns the exit code."""
    if words == ["--check"]:
        return check()
    if words not in ([], ["--pages"]):
        sys.stderr.write(f"docs: takes --check or --pages, not {' '.join(words)!r}.\n")
        return USAGE
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(REPOSITORY)}")
    return 0 if words else site()


def check() -> int:
    """Say which pages are not what the sources say, and what a code lacks; returns 1 where there is one."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        sys.stderr.write(f"docs: {path.relative_to(REPOSITORY)} is not current; run `./dev docs --pages`.\n")
    problems = findings.problems()
    sys.stderr.writelines(f"docs: {each}\n" for each in problems)
    return int(bool(stale or problems))


def pages() -> dict[Path, str]:
    """Return what the sources say, by the files that hold it."""
    return {
        DOCS / "reference" / "finding-codes.md": CODES_HEAD + "".join(_row(each) for each in CODES),
        DOCS / "reference" / "faults.md": FAULTS_HEAD + "".join(_fault_row(each) for each in FAULTS),
        DOCS / "reference" / "slurm-lint.md": LINT_HEAD + "".join(_rule_row(each) for each in RULES),
        DOCS / "reference" / "slurm-states.md": STATES_HEAD + _states("base", BASES) + "\n" + _states("flag", FLAGS),
        DOCS / "reference" / "command-line.md": command_line.page(),
        DOCS / "reference" / "report.schema.json": report_schema.text(report_schema.report()),
        DOCS / "reference" / "outcome.schema.json": report_schema.text(report_schema.outcome()),
        DOCS / "man" / "mpsfleet.8": command_line.manual(),
        DOCS / "completion" / "mpsfleet.bash": command_line.completion(),
        **findings.pages(),
    }


def _row(code: Code) -> str:
    drains = "no" if not code.drain else ("yes" if code.origin == "node" else "if shown")
    name = f"[`{code.code}`](../findings/{code.code}.md)"
    return f"| {name} | {code.severity} | {code.origin} | {drains} | {code.meaning} | {code.remedy} |\n"


def _fault_row(fault: Fault) -> str:
    return f"| `{fault.name}` | {fault.meaning} | {'no' if fault.bring_about is None else 'yes'} |\n"


def _rule_row(rule: Rule) -> str:
    severity = "note" if rule.severity == "ok" else rule.severity
    return f"| `{rule.code}` | {severity} | {rule.slurm} | {rule.remedy} |\n"


def _states(kind: str, rows: tuple[Row, ...]) -> str:
    head = STATES_TABLE.format(kind=kind, line="| --- " * 8 + "|\n")
    return head + "".join(_state_row(each) for each in rows)


def _state_row(row: Row) -> str:
    also = " ".join(f"`{each}`" for each in row.also)
    steps = " | ".join("yes" if row.allows(step) else "no" for step in Step)
    why = f"The node {row.why}." if row.why and row.why != JOB else "A job is on the node." if row.why else ""
    return f"| `{row.name}` | {also} | {steps} | {row.meaning} | {why} |\n"


def site() -> int:
    """Build the site and say where it is; returns the exit code."""
    import docs_site

    try:
        print(f"The site is in {docs_site.build().relative_to(REPOSITORY)}.")
    except docs_site.BuildError as error:
        sys.stderr.write(f"docs: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
