"""Public cases about a deploy: what is written, where daemons lie, and hosts that lack something."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mpsfleet.errors import Refused
from mpsfleet.node import act, deploy, files, hook_files, table
from mpsfleet.node.actions import Action, Kind
from mpsfleet.node.desired import Desired, parse
from mpsfleet.node.host import Host
from mpsfleet.node.host.children import Answer
from mpsfleet.node.judge import judge
from mpsfleet.node.model import Change, Facts
from mpsfleet.node.probe import gpu
from mpsfleet.slurm.lint import wanted

if TYPE_CHECKING:
    from tests.cases.conftest import Row

BOTH = (Desired(), Desired(daemons="gpu"))
FOLDERS = ("run/systemd/system", "etc", "proc", "usr/bin", "tmp", "var/log")
TOOLS = {"/usr/bin/env", "/usr/bin/timeout", files.PROGRAM_LINK}
PACKAGE = "usr/bin/nvidia-cuda-mps-control"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Provide a booted node's tree, with nothing of NVIDIA's in it."""
    root = tmp_path / "n"
    for each in FOLDERS:
        (root / each).mkdir(parents=True)
    for path in (root, *root.rglob("*")):
        path.chmod(0o755)
    return Host(str(root), f"{root}/proc", os.getuid(), os.getgid())


def install(host: Host, name: str, script: str) -> None:
    path = Path(host.path(f"/{name}"))
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def test_a_deploy_says_what_the_host_lacks(deploys: Row, host: Host) -> None:
    if "nvidia_smi" in deploys:
        install(host, "usr/bin/nvidia-smi", deploys["nvidia_smi"])
    if deploys.get("package"):
        install(host, PACKAGE, "exit 1")
    text = f"schema = 1\n{deploys.get('text', '')}"
    desired, mistakes = parse(text)
    assert mistakes == ()
    start = time.monotonic()
    if "skipped" in deploys:
        outcome = deploy.apply(host, desired, text, dry_run=deploys.get("dry_run", False))
        assert outcome.changes == ()
        assert deploys["skipped"] in str(outcome.skipped)
    else:
        with pytest.raises(Refused, match=deploys["refused"]):
            deploy.apply(host, desired, text, dry_run=False)
    assert time.monotonic() - start < deploys.get("within_s", 60)
    assert not Path(host.path("/etc/mpsfleet")).exists()


def test_a_fresh_host_gets_every_folder_it_needs(fresh: Row, host: Host) -> None:
    text = f'schema = 1\n[mps]\ndaemons = "{fresh["daemons"]}"\n'
    desired, _ = parse(text)
    owned = table.wanted(desired, text, None)
    writes = tuple(
        Action(Kind.WRITE, Change(each.path, "create", ""), each.path, each.content, each.mode) for each in owned
    )
    act.run(host, desired, writes)
    assert [Path(host.path(each.path)).read_bytes() for each in owned] == [each.content for each in owned]


def test_the_units_say_it(unit: Row) -> None:
    for lines in (files.unit(each).splitlines() for each in BOTH):
        text = "\n".join(line for line in lines if not line.startswith("#"))
        assert unit.get("has", "") in text
        assert "lacks" not in unit or unit["lacks"] not in text
        if "number" in unit:
            (value,) = (line.partition("=")[2] for line in lines if line.startswith(f"{unit['number']}="))
            assert int(value) >= unit["at_least"]


def test_tmp_cleaning_leaves_the_directories(tmpfiles: Row) -> None:
    plain = Desired(daemons=tmpfiles["daemons"])
    desired = plain._replace(pipe_directory=tmpfiles.get("configured", plain.pipe_directory))
    (content,) = (each.content for each in table.wanted(desired, "", None) if each.path == files.TMPFILES_PATH)
    lines = [line for line in content.decode().splitlines() if not line.startswith("#")]
    assert lines == [f"x {each}" for each in tmpfiles["keeps"]]


def test_an_answer_of_nvidia_smi_is_no_gpus_fault(answers: Row) -> None:
    said = gpu.understand(Answer(answers["rc"], answers.get("out", ""), answers.get("err", "")), 4.0)
    facts = Facts("n1", (), (), said, None, None, deployed=True, quiesced=False, nvidia=True, owner_uid=0)
    (found,) = judge(facts, Desired()).findings
    assert found.code == answers["code"]
    assert answers["says"] in found.message
    assert answers["remedy"] in found.remedy
    assert "reset" not in found.remedy


def test_a_hook_ends_well_whatever_is_missing(hooks: Row, tmp_path: Path) -> None:
    (owned,) = (each for each in hook_files.owned() if each.path.endswith(f"/{hooks['name']}"))
    script = tmp_path / "hook.sh"
    script.write_bytes(owned.content.replace(files.PROGRAM_LINK.encode(), b"/nowhere/mpsfleet"))
    argv = ("/bin/sh", str(script))
    done = subprocess.run(argv, env=hooks["environment"], cwd="/", capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    code = "\n".join(line for line in owned.content.decode().splitlines() if not line.startswith("#"))
    assert {each.group() for each in re.finditer(r"\S*\b(env|timeout|mpsfleet)(?= )", code)} <= TOOLS


def test_the_recipe_has_this_order(recipe: Row) -> None:
    text = "\n".join(wanted.ORDER)
    places = [text.index(each) for each in recipe["words"]]
    assert places == sorted(places)
    assert not any(each in text for each in recipe["never"])
