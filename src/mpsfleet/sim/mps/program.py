"""The simulator's lasting programs, as command lines: a module run by the fleet's interpreter under a given name."""

from __future__ import annotations

from mpsfleet.sim import interpreter
from mpsfleet.sim.place import Place


def argv_of(root: str, name: str, module: str, *arguments: str) -> tuple[str, list[str]]:
    """Return what to execute and its words: it runs `main(arguments)` of the module, and the kernel shows `name`."""
    parent = interpreter.package_parent()
    code = f"import sys; sys.path.insert(0, {parent!r}); from {module} import main; sys.exit(main(sys.argv[1:]))"
    path = interpreter.path(Place(root).fleet, name)
    # The whole path as the first word too: by a bare name the interpreter would not find its own modules.
    return path, [path, interpreter.OPTIONS, "-c", code, *arguments]
