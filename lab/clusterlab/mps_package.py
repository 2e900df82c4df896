"""NVIDIA's own MPS package: apt fetches it from Debian's non-free component into the cache; it is not ours to ship."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, NamedTuple

from clusterlab.commands import must
from clusterlab.errors import LabError, LabUnavailableError
from clusterlab.mirror import KEYRING, debian_mirror
from clusterlab.naming import CACHE
from clusterlab.terminal import say

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = "nvidia-cuda-mps"
STAMP = "stamp.json"
CONTROL_BINARY = "usr/bin/nvidia-cuda-mps-control"
SERVER_BINARY = "usr/bin/nvidia-cuda-mps-server"


class MpsPackage(NamedTuple):
    """The package as fetched: its Debian version, its file's checksums, and the folder it was unpacked into."""

    version: str
    md5: str
    sha256: str
    layer: Path

    @property
    def driver_version(self) -> str:
        """The driver release it belongs to, such as 535.261.03."""
        return self.version.rsplit("-", 1)[0]


def cached_mps_package(suite: str) -> MpsPackage | None:
    """Return the suite's unpacked package, None if it was not fetched yet."""
    folder = CACHE / suite / "mps"
    if not (folder / STAMP).is_file():
        return None
    stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    return MpsPackage(stamp["version"], stamp["md5"], stamp["sha256"], folder / "layer")


def ensure_mps_package(suite: str) -> MpsPackage:
    """Return the suite's MPS package, fetching and unpacking it when it is not cached.

    The caller holds the cache's lock. Raises LabUnavailableError where the archive cannot be asked or lacks it.
    """
    cached = cached_mps_package(suite)
    if cached is not None:
        return cached
    folder = CACHE / suite / "mps"
    partial = folder.with_name("mps.partial")
    for left_over in (folder, partial):
        if left_over.exists():
            shutil.rmtree(left_over)
    say(f"fetching {PACKAGE} for {suite} (NVIDIA's own, from Debian's non-free component)")
    try:
        file = _download(suite, partial)
    except LabError as error:
        raise LabUnavailableError(f"NVIDIA's MPS package cannot be had for {suite}: {error}") from error
    layer = partial / "layer"
    must(("dpkg", "-x", str(file), str(layer)), f"unpacking {file.name}", timeout_s=60)
    # Debian has the server in sbin; NVIDIA's own packages, and so most sites, in bin beside the control program.
    server = layer / SERVER_BINARY
    if not server.exists():
        server.symlink_to("../sbin/nvidia-cuda-mps-server")
    if not (layer / CONTROL_BINARY).is_file() or not server.is_file():
        raise LabError(f"{file.name} does not hold {CONTROL_BINARY} and a server")
    content = file.read_bytes()
    version = must(("dpkg-deb", "-f", str(file), "Version"), f"reading {file.name}", timeout_s=30).strip()
    stamp = {
        "version": version,
        "md5": hashlib.md5(content, usedforsecurity=False).hexdigest(),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    (partial / STAMP).write_text(json.dumps(stamp), encoding="utf-8")
    partial.rename(folder)
    return MpsPackage(stamp["version"], stamp["md5"], stamp["sha256"], folder / "layer")


def _download(suite: str, folder: Path) -> Path:
    """Fetch the .deb with apt, which checks its signature, from lists of our own: the host's stay as they are."""
    for part in ("lists/partial", "cache/archives/partial", "file"):
        (folder / part).mkdir(parents=True)
    source = folder / "mps.sources"
    source.write_text(
        f"Types: deb\nURIs: {debian_mirror()}\nSuites: {suite}\n"
        f"Components: main contrib non-free\nSigned-By: {KEYRING}\n",
        encoding="utf-8",
    )
    options = (
        "-oDir::Etc::sourceparts=-",
        f"-oDir::Etc::sourcelist={source}",
        f"-oDir::State::Lists={folder / 'lists'}",
        f"-oDir::Cache={folder / 'cache'}",
        "-oAPT::Sandbox::User=root",
        "-oAPT::Get::List-Cleanup=0",
    )
    # apt-get update ends with 0 when an archive cannot be reached; Error-Mode=any makes it say so.
    must(
        ("apt-get", *options, "-oAPT::Update::Error-Mode=any", "update"),
        "asking the archive for non-free",
        timeout_s=200,
    )
    must(
        ("apt-get", *options, "download", PACKAGE),
        f"downloading {PACKAGE}",
        timeout_s=120,
        cwd=str(folder / "file"),
    )
    files = tuple((folder / "file").glob("*.deb"))
    if len(files) != 1:
        raise LabError(f"apt-get download {PACKAGE} left {len(files)} files")
    for part in ("lists", "cache"):
        shutil.rmtree(folder / part)
    return files[0]
