"""The simulator's lasting programs, as command lines: a module run by the fleet's interpreter under a given name.

Where the fleet keeps its interpreter is `mpsfleet.sim.interpreter`'s to say; that module starts processes itself, and
its imports would make every simulated daemon 15 ms slower to start.
"""

from __future__ import annotations

import os

_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def argv_of(root: str, name: str, module: str, *arguments: str) -> tuple[str, list[str]]:
    """Return what to execute and its words: it runs `main(arguments)` of the module, and the kernel shows `name`."""
    code = f"import sys; sys.path.insert(0, {_PACKAGES!r}); from {module} import main; sys.exit(main(sys.argv[1:]))"
    path = f"{os.path.dirname(root)}/bin/{name}"
    return path, [path, "-IS", "-c", code, *arguments]  # by the first word Python finds its library: a whole path
