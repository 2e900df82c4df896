"""Fixtures of the contract, and its table: `--contract-table FILE` writes what was equal and what was not."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
FACTS = ("facts_life", "facts_files", "facts_answers", "facts_servers")
pytest.register_assert_rewrite(*(f"contract.{each}" for each in (*FACTS, "subject")))

from contract.implementations import IMPLEMENTATIONS, Implementation, NotHere, control_binary  # noqa: E402 - this folder is no installed package
from contract.subject import Subject  # noqa: E402
from contract.table import Results  # noqa: E402

from mpsfleet.sim import interpreter  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from contract.facts import Fact

RESULTS = pytest.StashKey[Results]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--contract-table", metavar="FILE", help="write the contract's table, a page in Markdown")


def pytest_configure(config: pytest.Config) -> None:
    # The daemon ends a server by SIGINT, which a shell's background job ignores and hands on to all it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[RESULTS] = Results()
    config.pluginmanager.register(Recorder(config.stash[RESULTS]), "contract-recorder")


class Recorder:
    """Hears how each fact came out."""

    def __init__(self, results: Results) -> None:
        self._results = results

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = dict(report.user_properties)
        if "contract" in found and (report.when == "call" or report.outcome != "passed"):
            about, sentence, implementation = str(found["contract"]).split("|", 2)
            self._results.note((about, sentence), implementation, report.outcome)


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--contract-table", None)
    if path and not hasattr(session.config, "workerinput"):
        Path(path).write_text(session.config.stash[RESULTS].page(), encoding="utf-8")


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda each: each.name.replace(" ", "-"), scope="module")
def implementation(request: pytest.FixtureRequest) -> Implementation:
    found: Implementation = request.param
    return found


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """Give a short directory for all daemons' own, with the simulator's interpreter."""
    path = Path(tempfile.mkdtemp(prefix="mpsc.", dir="/tmp"))
    path.chmod(0o711)
    (path / "fleet.json").write_text("{}", encoding="utf-8")
    interpreter.install(str(path))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture(scope="module")
def running(implementation: Implementation, folder: Path) -> Iterator[Subject | None]:
    """Give a daemon that runs for all facts that leave it as it was; None where NVIDIA's is not here."""
    try:
        subject = Subject(implementation, folder)
    except NotHere:
        yield None
        return
    try:
        subject.start()
        yield subject
    finally:
        subject.close()


@pytest.fixture
def subject(
    implementation: Implementation,
    fact: Fact,
    running: Subject | None,
    folder: Path,
    record_property: Callable[[str, object], None],
) -> Iterator[Subject]:
    """Give the daemon's surroundings; skips with the reason where the fact cannot be shown."""
    record_property("contract", f"{fact.about}|{fact.sentence}|{implementation.name}")
    is_root = os.geteuid() == 0 and shutil.which("setpriv") is not None
    if not is_root and (fact.needs_real_user or (fact.needs_root and implementation.is_real)):
        pytest.skip("another real user is needed: run it as root, with setpriv")
    if running is None:
        try:
            control_binary(implementation)
        except NotHere as error:
            pytest.skip(str(error))
    if fact.is_quiet and running is not None:
        yield running
        return
    fresh = Subject(implementation, folder)
    try:
        yield fresh
    finally:
        fresh.close()
