"""Build the program as one file: `build/mpsfleet.pyz`, a zipapp of sources that a node runs without pip.

Equal sources give equal bytes on every machine: names are sorted, times and modes are fixed, nothing is compressed and
nothing is compiled. The pure-Python tomli travels with it, for nodes whose Python (3.9, 3.10) has no tomllib.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "src" / "mpsfleet"
TARGET = REPOSITORY / "build" / "mpsfleet.pyz"

sys.path.insert(0, str(REPOSITORY / "src"))  # so that it runs with any Python, before anything is installed
from mpsfleet.program import CARRIED, add_member, shebang  # noqa: E402  needs the path above

INTERPRETER = "/usr/bin/python3"
# Rooms of the administrator's machine, installed by pip; and this very file, where a wheel was unpacked.
NOT_FOR_NODES = ("fleet", "sim", CARRIED)
TOMLI = "2.5.0"
# Over name, NUL, text, NUL of each *.py, sorted: what is bundled is what was reviewed, wherever it came from.
TOMLI_SHA256 = "f2fef1800bba0033da1857cb58c6b08d19528235c7b3858bd11c7d18be293bf4"
_LICENSES = ("licenses/LICENSE", "LICENSE")  # where wheels keep it, in or beside dist-info/licenses
_SURROUNDINGS = {"TZ": "Pacific/Chatham", "PYTHONHASHSEED": "7", "LC_ALL": "C", "SOURCE_DATE_EPOCH": "1"}


class BuildError(Exception):
    """One sentence: what could not be built, and what to do."""


def main(argv: list[str]) -> int:
    """Build, or with `--check` build twice in different surroundings and compare. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Build mpsfleet as one file for nodes.")
    parser.add_argument("--check", action="store_true", help="build twice, compare the bytes, keep nothing")
    parser.add_argument("--output", type=Path, default=TARGET, help="default: build/mpsfleet.pyz")
    options = parser.parse_args(argv)
    try:
        program = build()
        if options.check:
            return _check(program)
        _publish(program, options.output)
    except BuildError as error:
        sys.stderr.write(f"build_pyz: {error}\n")
        return 1
    print(f"{options.output}  {len(program)} bytes  sha256 {hashlib.sha256(program).hexdigest()}")
    return 0


def build() -> bytes:
    """Return the bytes of the zipapp. BuildError where the package or tomli is not to be had."""
    target = io.BytesIO()
    target.write(shebang(INTERPRETER))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(_members()):
            add_member(archive, name, data)
    return target.getvalue()


def _members() -> Iterator[tuple[str, bytes]]:
    yield "__main__.py", (PACKAGE / "__main__.py").read_bytes()
    yield "LICENSE", (REPOSITORY / "LICENSE").read_bytes()
    for path in PACKAGE.rglob("*"):
        name = path.relative_to(PACKAGE)
        made = any(part.startswith((".", "__pycache__")) for part in name.parts)  # by an editor, a checker, Python
        if path.is_file() and not made and path.suffix != ".pyc" and name.parts[0] not in NOT_FOR_NODES:
            yield f"mpsfleet/{name.as_posix()}", path.read_bytes()
    yield from _tomli()


def _tomli() -> Iterator[tuple[str, bytes]]:
    """Yield tomli's sources and license, from this environment where it is the pinned version, else from a wheel."""
    found = _installed_tomli() or _wheel_tomli()
    sources = {name: data for name, data in found.items() if name.endswith(".py")}
    text = b"".join(Path(name).name.encode() + b"\0" + data + b"\0" for name, data in sorted(sources.items()))
    if hashlib.sha256(text).hexdigest() != TOMLI_SHA256:
        message = f"tomli {TOMLI} here differs from the one that was reviewed; reinstall it from its wheel."
        raise BuildError(message)
    yield from found.items()


def _installed_tomli() -> dict[str, bytes] | None:
    try:
        tomli = importlib.metadata.distribution("tomli")
    except importlib.metadata.PackageNotFoundError:
        return None
    if tomli.version != TOMLI:
        return None
    # A wheel that holds compiled modules still has each one's source beside it.
    files = {str(each): Path(str(each.locate())) for each in tomli.files or ()}
    return _chosen({name: path.read_bytes() for name, path in files.items() if path.suffix != ".so"})


def _wheel_tomli() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        pure = ["--only-binary=:all:", "--platform=any", "--implementation=py", "--abi=none", "--python-version=3.9"]
        result = subprocess.run(
            [*pip, *pure, "--dest", folder, f"tomli=={TOMLI}"], capture_output=True, text=True, check=False
        )
        wheels = sorted(Path(folder).glob("tomli-*.whl"))
        if result.returncode or not wheels:
            last = (result.stderr.strip().splitlines() or ["no wheel came"])[-1]
            message = (
                f"needs tomli {TOMLI}, which is not installed here and which pip could not download ({last}); "
                f"run `./dev pyz`, or `python3 -m pip install tomli=={TOMLI}`."
            )
            raise BuildError(message)
        with zipfile.ZipFile(wheels[0]) as wheel:
            return _chosen({name: wheel.read(name) for name in wheel.namelist()})


def _chosen(files: dict[str, bytes]) -> dict[str, bytes]:
    """Keep tomli's Python sources, and its license under one name."""
    chosen = {name: data for name, data in files.items() if name.startswith("tomli/") and name.endswith(".py")}
    for name, data in files.items():
        if ".dist-info/" in name and name.partition(".dist-info/")[2] in _LICENSES:
            chosen["tomli/LICENSE"] = data
    if "tomli/LICENSE" not in chosen:
        message = f"tomli {TOMLI} here comes without its license file, which must travel with it."
        raise BuildError(message)
    return chosen


def _publish(program: bytes, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f".{target.name}.{os.getpid()}")
    new.write_bytes(program)
    new.chmod(0o755)
    new.replace(target)


def _check(program: bytes) -> int:
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "mpsfleet.pyz"
        subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--output", str(other)],
            env={**os.environ, **_SURROUNDINGS},
            cwd=folder,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        again = other.read_bytes()
    if again != program:
        message = "two builds of the same sources differ; something in the build depends on its surroundings."
        raise BuildError(message)
    print(f"reproducible: two builds gave sha256 {hashlib.sha256(program).hexdigest()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
