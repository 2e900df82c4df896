"""The wheel carries the program as one file, `mpsfleet/mpsfleet.pyz`, which `mpsfleet node apply` puts on a node.

An editable install has none: there `./dev pyz` makes it, and nothing is written into the sources.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # the name that hatchling looks for
    """Builds the zipapp before a wheel, and lays it into it."""

    _folder = ""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the zipapp apart and name it to hatchling; `version` is "standard" or "editable"."""
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root) / "tools"))
        from build_pyz import build
        from mpsfleet.program import CARRIED

        self._folder = tempfile.mkdtemp(prefix="mpsf.")
        made = Path(self._folder) / CARRIED
        made.write_bytes(build())
        made.chmod(0o644)
        build_data["force_include"][str(made)] = f"mpsfleet/{CARRIED}"

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        """Take the folder away again."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
