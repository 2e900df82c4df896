"""The fleet's own interpreter: a copy, under the names that the kernel shall show, and small programs that it runs.

The product tells a control daemon by the name of its executable, so the simulated one must be executed from a file of
that name. A copy in the fleet's directory (one file with several hard links) gives that without root, makes every first
line of a program short, and marks each process of the fleet as the fleet's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig

from mpsfleet.errors import MpsfleetError

PYTHON = "python3"
NAMES = (PYTHON, "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "slurmstepd", "systemd")
OPTIONS = "-IS"  # nothing of the environment or of site packages
_TRY_S = 10.0


def path(fleet: str, name: str = PYTHON) -> str:
    """Return the path of the fleet's interpreter under one of its names."""
    return f"{fleet}/bin/{name}"


def package_parent() -> str:
    """Return the directory from which `mpsfleet` is imported; it must be a plain folder."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if not os.path.isdir(here):
        message = (
            "`mpsfleet sim` runs from an installed package (pip install mpsfleet) or a checkout, not from one file"
        )
        raise MpsfleetError(message)
    return here


def install(fleet: str) -> None:
    """Copy the running interpreter into the fleet. MpsfleetError where the copy does not start."""
    os.mkdir(f"{fleet}/bin", 0o755)
    source = os.path.realpath(getattr(sys, "_base_executable", sys.executable) or sys.executable)
    try:
        shutil.copyfile(source, path(fleet))
    except OSError as error:
        raise MpsfleetError(
            f"{source} cannot be copied into {fleet} ({error.strerror or error}); use another Python, for example "
            "/usr/bin/python3"
        ) from None
    os.chmod(path(fleet), 0o755)  # noqa: S103  # a program
    for name in NAMES[1:]:
        os.link(path(fleet), path(fleet, name))
    if _starts(fleet):
        return
    # An interpreter that was built to be moved finds its library and its modules beside itself.
    os.symlink(sysconfig.get_config_var("LIBDIR") or f"{sys.base_prefix}/lib", f"{fleet}/lib")
    if not _starts(fleet):
        raise MpsfleetError(f"a copy of {source} does not start; use another Python, for example /usr/bin/python3")


def _starts(fleet: str) -> bool:
    try:
        done = subprocess.run(
            (path(fleet), OPTIONS, "-c", "import json, socket"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            check=False,
            timeout=_TRY_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def write_program(fleet: str, place: str, module: str, *arguments: str) -> None:
    """Write an executable that runs `main` of a module of the simulator with `arguments` and its own command line."""
    words = "".join(f"{each!r}, " for each in arguments)
    text = (
        f"#!{path(fleet)} {OPTIONS}\n"
        f"import sys\n"
        f"sys.path.insert(0, {package_parent()!r})\n"
        f"from {module} import main\n"
        f"sys.exit(main([{words}*sys.argv[1:]]))\n"
    )
    with open(place, "w", encoding="utf-8") as stream:
        stream.write(text)
    os.chmod(place, 0o755)  # noqa: S103  # a program
