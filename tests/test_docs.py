"""The documentation: links lead somewhere, pages from the sources are current, keys, codes and JSON are the program's."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mpsfleet import errors
from mpsfleet.node import desired, model
from mpsfleet.node.render import json as node_json
from mpsfleet.slurm import (
    drains,
    drift_fleet,
    drift_kinds,
    drift_lines,
    gres,
    lines,
    nodes,
    presence,
    reports,
    states,
    steps,
    verdict,
)
from mpsfleet.slurm.lint import judge_cluster, slurm_conf, told, wanted
from mpsfleet.slurm.lint import render as lint_render
from mpsfleet.slurm.render import node_json as slurm_node
from mpsfleet.slurm.render import outcome_json

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tools"))
import docs_site  # noqa: E402  needs the path above

DOCS = REPOSITORY / "docs"
REFERENCE = DOCS / "reference"
COMPLETION = DOCS / "completion" / "mpsfleet.bash"
PAGES = (
    REPOSITORY / "README.md",
    REPOSITORY / "CHANGELOG.md",
    REPOSITORY / "lab" / "README.md",
    docs_site.COLLECTION / "README.md",
    *sorted(DOCS.rglob("*.md")),
)
MAY_LACK = {DOCS / f"{page}.md" for section in docs_site.NAVIGATION for page in section.may_lack}  # a run writes them
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
NAMED_IN_SOURCES = re.compile(r"docs/[a-z0-9/-]+\.(?:md|bash|8)")


def prose(page: Path) -> str:
    """Give a page's text without its blocks of code."""
    return FENCE.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """Give the names under which a page's headings can be linked, as GitHub and Sphinx make them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def leads_nowhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve() if path else page
    if there in MAY_LACK and not there.exists():
        return False
    return not there.exists() or bool(anchor and anchor not in anchors(there))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert [target for target in LINK.findall(prose(page)) if leads_nowhere(page, target)] == []


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_of_the_site_links_only_to_pages_of_the_site(page: Path) -> None:
    inside = [(page.parent / target.partition("#")[0]).resolve() for target in LINK.findall(prose(page))]
    assert [each for each in inside if DOCS not in each.parents] == []


def test_every_page_is_in_the_navigation() -> None:
    placed = {page for section in docs_site.NAVIGATION for page in section.pages} - set(docs_site.BROUGHT)
    may_lack = {page for section in docs_site.NAVIGATION for page in section.may_lack}
    there = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    there = {each for each in there if each != "index" and not re.match(r"decisions/\d|findings/(?!index)", each)}
    assert placed - may_lack <= there <= placed


def test_every_decision_is_listed_under_its_title() -> None:
    listed = re.findall(r"^- \[(.*)\]\((.*)\)$", (DOCS / "decisions" / "index.md").read_text("utf-8"), re.MULTILINE)
    files = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    assert listed == [(each.read_text("utf-8").splitlines()[0].lstrip("# "), each.name) for each in files]


def test_pages_named_in_the_sources_are_there() -> None:
    suffixes = {".py", ".yml", ".toml", ".md", ""}
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [REPOSITORY / each for each in listed.stdout.splitlines()]
    sources = [each for each in files if each.suffix in suffixes and each.is_file() and each != Path(__file__)]
    named = {page for each in sources for page in NAMED_IN_SOURCES.findall(each.read_text("utf-8", errors="replace"))}
    missing = {page for page in named if not (REPOSITORY / page).exists() and REPOSITORY / page not in MAY_LACK}
    assert missing == set()


def test_pages_from_the_sources_are_current() -> None:
    result = subprocess.run(
        [sys.executable, REPOSITORY / "tools" / "docs.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_the_example_of_node_toml_is_valid_and_names_every_key() -> None:
    page = (REFERENCE / "node-toml.md").read_text("utf-8")
    example = page.partition("```toml\n")[2].partition("```")[0]
    value, mistakes = desired.parse(example)
    assert mistakes == ()
    without_default = {"gpus_expected", "node_name", "cluster", "memory_limit_mib", "compute_mode", "audit_minutes"}
    defaults = desired.Desired()._asdict()
    told = {key: each for key, each in value._asdict().items() if key not in {*without_default, "shares"}}
    assert told == {key: defaults[key] for key in told}
    named = set(re.findall(r"^(\w+) = ", example.partition("[[share]]")[0], re.MULTILINE)) - {"schema"}
    assert named == {key for keys in desired._KEYS.values() for key in keys}


def test_the_example_of_shares_is_valid_and_names_every_key() -> None:
    example = (REFERENCE / "node-toml.md").read_text("utf-8").partition("## Shares\n\n```toml\n")[2].partition("```")[0]
    value, mistakes = desired.parse(f'schema = 1\n[mps]\ndaemons = "gpu"\n{example}')
    assert mistakes == ()
    assert None not in value.shares[0]
    assert set(re.findall(r"^(\w+) = ", example, re.MULTILINE)) == set(desired._SHARE)


def test_every_key_of_node_toml_has_its_line_and_every_variable_is_the_roles() -> None:
    page = (REFERENCE / "node-toml.md").read_text("utf-8")
    keys = {f"{table}.{key}".lstrip(".") for table, keys in desired._KEYS.items() for key in keys}
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (?:`(\w+)`)? ?\|", page, re.MULTILINE))
    specs = (docs_site.COLLECTION / "roles" / "mps" / "meta" / "argument_specs.yml").read_text("utf-8")
    assert keys | {"share"} == set(rows)
    assert [each for each in rows.values() if each and f"\n      {each}:\n" not in specs] == []


def test_every_exit_code_is_explained() -> None:
    page = (REFERENCE / "exit-codes.md").read_text("utf-8")
    explained = set(map(int, re.findall(r"^\| (\d+) \|", page, re.MULTILINE)))
    codes = {errors.OK, errors.WARNING, errors.CRITICAL, errors.UNKNOWN, errors.USAGE, errors.REFUSED}
    assert codes <= explained


def example(heading: str) -> Any:
    """Give the first block of JSON below a heading of the page on JSON."""
    page = (REFERENCE / "json.md").read_text("utf-8")
    return json.loads(page.partition(f"## {heading}\n")[2].partition("```json\n")[2].partition("```")[0])


def shape(value: Any) -> Any:
    """Give a value's members and their order, without what is in them; a list is as its first element."""
    if isinstance(value, dict):
        return {key: None if key == "evidence" else shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return None


NODE = nodes.Node(
    "n2",
    states.parse("IDLE+DRAIN"),
    reason=nodes.Reason("mpsfleet: reset", "root", None),
    gres=gres.parse("mps:a100:400"),
    partitions=("gpu",),
)
REPORT = model.report(
    "n2", (model.finding("daemon-wedged", "daemon node", "it is stopped", origin="node", pid=1),)
)._replace(mps=model.Mps((("node", False),), ((0, "nvidia_a100-sxm4-40gb", "node", 1),), 1, 1))


def test_the_reports_json_is_as_shown() -> None:
    assert shape(example("The report of a node")) == shape(json.loads(node_json.report(REPORT)))


def test_the_acting_commands_json_is_as_shown() -> None:
    change = model.Change("nvidia-mps.service", "start", "it is inactive")
    made = json.loads(
        node_json.outcome(model.Outcome("apply", "n2", dry_run=False, changes=(change,), report=model.report("n2", ())))
    )
    assert list(example("What an acting command did")) == list(made)
    assert shape(example("What an acting command did")["changes"]) == shape(made["changes"])


def test_the_json_of_slurms_nodes_is_as_shown() -> None:
    assert shape(example("Slurm's nodes")["nodes"][0]) | {"flags": None} == shape(slurm_node(NODE)) | {"flags": None}


def test_the_json_of_a_drain_is_as_shown() -> None:
    outcome = steps.Outcome("n2", drains.Action.DRAIN, "why", changed=True, before=NODE, after=NODE)
    assert shape(example("A drain or an undrain")) == shape(outcome_json(outcome))


def test_the_reports_of_a_fleet_can_be_read_as_shown() -> None:
    first, second = reports.read(json.dumps(example("The reports of a fleet")))
    assert isinstance(first.report, reports.Report)
    assert second.error == "unreachable: no route to host"


def test_the_verdicts_json_is_as_shown() -> None:
    given = reports.HostReport("n2", "n2", reports.parse_report(node_json.report(REPORT)))
    fleet = verdict.judge((given,), verdict.SlurmView("lab", nodes.NodeTable((NODE,), ())), "root")
    assert shape(example("The verdict on a fleet")) == shape(lines.as_json(fleet, changed=True))


def test_the_json_of_the_lint_is_as_shown() -> None:
    text = "GresTypes=gpu\nNodeName=n1 Gres=gpu:1,mps:100\n"
    conf = slurm_conf.parse("/s/slurm.conf", text, lambda _: None)
    nodes_told = told.tell(conf, None, None)
    found = tuple(judge_cluster.judge(conf, nodes_told, judge_cluster.Site()))
    changed = wanted.changes(conf, nodes_told, wanted.Want("mps", 100, {}, is_multi_user=True))
    assert shape(example("The check of Slurm's files")) == shape(
        lint_render.as_json(conf, None, nodes_told, found, changed)
    )


def completions(*typed: str) -> list[str]:
    """Give what bash offers after these words, the last of which is being typed."""
    script = f'source "{COMPLETION}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _mpsfleet; printf "%s\\n" "${{COMPREPLY[@]}}"'
    result = subprocess.run(
        ["bash", "-uec", script, "bash", "mpsfleet", *typed], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("no",), ["node"]),
        (("node", "re"), ["remove", "reset"]),
        (("node", "reset", "--d"), ["--dry-run"]),
        (("node", "apply", "--config", ""), ["-"]),
        (("slurm", "drain", "n1", "--code", "gpu-l"), ["gpu-lost"]),
        (("slurm", "un"), ["undrain"]),
        (("explain", "daemon-we"), ["daemon-wedged"]),
        (("--root", "/", "node", "aud"), ["audit"]),
        (("node", "audit", "--nothing"), []),
    ],
)
def test_bash_completes(typed: tuple[str, ...], offered: list[str]) -> None:
    assert completions(*typed) == offered


def test_the_json_of_drift_is_as_shown() -> None:
    told = presence.Presence((presence.Instance("node", serves=False),), (), None, None)
    given = reports.HostReport("n2", "n2", reports.Report("n2", "ok", "0.1.0", (), told))
    away = reports.HostReport("n4", "n4", None, "unreachable")
    node = dataclasses.replace(NODE, state=states.parse("IDLE"), gres=gres.parse("gpu:4,mps:400"))
    table = nodes.NodeTable((node, dataclasses.replace(node, name="n4")), ())
    shown = example("Drift")
    assert drift_lines.as_json(drift_fleet.compare(table, (given, away))) == shown


def test_every_kind_of_drift_is_explained() -> None:
    page = (REPOSITORY / "docs/how-to/find-drift.md").read_text("utf-8")
    rows = [f"| `{each.word}` | {each.severity} | {each.about} |" for each in drift_kinds.KINDS]
    assert [each for each in page.splitlines() if each.startswith("| `")] == rows
