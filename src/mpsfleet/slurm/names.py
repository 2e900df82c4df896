"""Node names: what may stand where one node is meant."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def is_literal(name: str) -> bool:
    """Tell whether a text is one node name: no list, no range, no option, and not Slurm's word for every node."""
    return bool(_NAME.fullmatch(name)) and name.upper() != "ALL"
