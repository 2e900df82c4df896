"""The Ansible collection: built with the program inside, checked as a site gets it, from the built tarball."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from outcome import FAILED, PASSED, REPOSITORY, SKIPPED, Outcome, run

SOURCE = REPOSITORY / "ansible_collections" / "mpsfleet" / "mps"
PROGRAM = REPOSITORY / "build" / "mpsfleet.pyz"
BUILD = REPOSITORY / "build"
HOME = BUILD / "home"  # caches of the Ansible tools; a person's own home stays as it is
INSTALLED = BUILD / "ansible"  # ANSIBLE_COLLECTIONS_PATH of demo and lab
_ABSENT = Outcome(SKIPPED, "the collection has no galaxy.yml yet")
_NOT_BUILT = Outcome(FAILED, "the collection was not built", exit_code=1)


def tarball() -> Path | None:
    """Return the built collection, or None."""
    return next(iter(sorted(BUILD.glob("mpsfleet-mps-*.tar.gz"))), None)


def build() -> Outcome:
    """Put the program into the collection, build the tarball into build/, and install it into build/ansible."""
    if not (SOURCE / "galaxy.yml").exists():
        return _ABSENT
    if not PROGRAM.exists():
        return Outcome(FAILED, "build/mpsfleet.pyz is missing; `./dev pyz` makes it", exit_code=1)
    for old in BUILD.glob("mpsfleet-mps-*.tar.gz"):
        old.unlink()
    files = SOURCE / "files"
    files.mkdir(exist_ok=True)
    shutil.copy2(PROGRAM, files / "mpsfleet.pyz")
    built = run(
        ["ansible-galaxy", "collection", "build", "--force", "--output-path", str(BUILD), str(SOURCE)], surroundings()
    )
    return built if built.status != PASSED else install(INSTALLED)


def install(folder: Path) -> Outcome:
    """Install the built tarball under `folder`/ansible_collections, without looking for anything elsewhere."""
    built = tarball()
    if built is None:
        return _NOT_BUILT
    words = ["install", "--force", "--offline", "--collections-path", str(folder), str(built)]
    return run(["ansible-galaxy", "collection", *words], {**surroundings(), "ANSIBLE_COLLECTIONS_PATH": str(folder)})


def lint() -> Outcome:
    """Lint roles, playbooks and modules with ansible-lint's strictest profile."""
    if not (SOURCE / "galaxy.yml").exists():
        return _ABSENT
    return run(["ansible-lint", "--offline", "--profile", "production"], surroundings(), SOURCE)


def sanity() -> Outcome:
    """Run ansible-test's sanity checks."""
    return _ansible_test("sanity")


def units() -> Outcome:
    """Run the collection's unit tests under ansible-test."""
    if not (SOURCE / "tests" / "unit").exists():
        return Outcome(SKIPPED, "the collection has no unit tests yet")
    outcome = _ansible_test("units")
    if outcome.status == PASSED and not outcome.closing:  # ansible-test is content with "All targets skipped"
        return Outcome(FAILED, "ansible-test ran no test", exit_code=1)
    return outcome


def _ansible_test(kind: str) -> Outcome:
    """Run one kind of ansible-test on what the tarball holds.

    Outside the checkout, since ansible-test asks git which files there are and `build/` is ignored there.
    """
    if not (SOURCE / "galaxy.yml").exists():
        return _ABSENT
    with tempfile.TemporaryDirectory(prefix="mpsf.") as folder:
        installed = install(Path(folder))  # from the tarball
        if installed.status != PASSED:
            return installed
        bootstrap_pip_offline()
        root = Path(folder) / "ansible_collections" / "mpsfleet" / "mps"
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return run(["ansible-test", kind, "--python", python, "--color", "no"], surroundings(), root)


def bootstrap_pip_offline() -> None:
    """Give ansible-test a pip bootstrap; it would download one, from a place that not every site reaches."""
    cache = HOME / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for wanted in _wanted_pips():
        script = cache / f"get_pip_{wanted.replace('.', '_')}.py"
        script.write_text("import ensurepip\nensurepip.bootstrap(upgrade=True)\n", encoding="ascii")


def _wanted_pips() -> list[str]:
    """Return the pip versions that this ansible-test asks for, read from its own source."""
    package = find_spec("ansible_test")
    if package is None or package.origin is None:
        return []
    source = Path(package.origin).parent / "_internal" / "python_requirements.py"
    return re.findall(r"pip='([\d.]+)'", source.read_text(encoding="utf-8"))


def surroundings() -> dict[str, str]:
    """Return the environment of the Ansible tools: nothing of a person's own configuration."""
    HOME.mkdir(parents=True, exist_ok=True)
    configuration = HOME / "ansible.cfg"  # empty, and in the place of those in /etc and in the working directory
    configuration.touch()
    return {
        "HOME": str(HOME),
        "ANSIBLE_HOME": str(HOME / ".ansible"),
        "ANSIBLE_CONFIG": str(configuration),
        "ANSIBLE_COLLECTIONS_PATH": str(INSTALLED),
        "ANSIBLE_NOCOLOR": "1",
        "PYTHONWARNINGS": "ignore:DSA is deprecated",  # ansible-core 2.19 with cryptography 51, before each play
    }
