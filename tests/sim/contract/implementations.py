"""Who is asked: NVIDIA's own control daemon of several drivers, and the simulated one that plays the same driver."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "lab"))

from clusterlab import mps_package  # noqa: E402 - the lab is no installed package
from clusterlab.errors import LabError  # noqa: E402
from clusterlab.locks import locked  # noqa: E402

REQUIRE_VARIABLE = "MPSFLEET_REQUIRE_LAB"
ALWAYS = 535  # the driver of Debian 12, which may not be missing where the lab is required
WAIT_S = 60.0


class Implementation(NamedTuple):
    """One control daemon."""

    kind: str  # "NVIDIA" or "simulated"
    version: int  # the driver's
    suite: str = ""  # Debian's, whose package brings it

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.kind} {self.version}"

    @property
    def is_real(self) -> bool:
        """Whether it is NVIDIA's own."""
        return self.kind == "NVIDIA"


IMPLEMENTATIONS = (
    Implementation("NVIDIA", 470, "bullseye"),
    Implementation("simulated", 470),
    Implementation("NVIDIA", 535, "bookworm"),
    Implementation("simulated", 535),
    Implementation("NVIDIA", 550, "trixie"),
    Implementation("NVIDIA", 555, "experimental"),
    Implementation("simulated", 550),
)


class NotHere(Exception):
    """Why NVIDIA's daemon of a driver cannot be asked here."""


@functools.cache
def package(suite: str) -> mps_package.MpsPackage:
    """Return NVIDIA's package, fetched once from Debian's archive. NotHere where it cannot be had."""
    cached = mps_package.cached_mps_package(suite)
    if cached is not None and os.access(cached.layer / mps_package.CONTROL_BINARY, os.X_OK):
        return cached
    missing = [tool for tool in ("apt-get", "dpkg", "dpkg-deb") if shutil.which(tool) is None]
    if missing:
        raise NotHere(f"NVIDIA's daemon of {suite} is fetched with {' and '.join(missing)}, which is not here")
    if os.geteuid() != 0:  # the lab's cache is root's; the user's own does as well
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        vars(mps_package)["CACHE"] = Path(home) / "mpsfleet-lab"
    return fetched(suite)


def fetched(suite: str) -> mps_package.MpsPackage:
    """Fetch it; when one could not be fetched, no other is tried."""
    if _FAILED:
        raise NotHere(_FAILED[0])
    try:
        with locked(vars(mps_package)["CACHE"] / "lock", "building the lab's base tree", wait_s=WAIT_S):
            return mps_package.ensure_mps_package(suite)
    except (LabError, OSError) as error:
        _FAILED.append(f"NVIDIA's daemon of {suite} cannot be fetched: {error}")
        raise NotHere(_FAILED[0]) from error


_FAILED: list[str] = []


def control_binary(implementation: Implementation) -> str:
    """Return NVIDIA's program on this machine. NotHere where it cannot be had or executed."""
    if os.uname().machine != "x86_64":
        raise NotHere(f"Debian's package is for x86_64, and this is {os.uname().machine}")
    return str(package(implementation.suite).layer / mps_package.CONTROL_BINARY)


def release(implementation: Implementation) -> str:
    """Return the driver release that was asked, "" where it could not be had."""
    try:
        return package(implementation.suite).driver_version
    except NotHere:
        return ""
