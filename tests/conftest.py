"""What holds for all tests: a report or an outcome that the program makes is as the published schema says."""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from hypothesis import settings

import report_schema
from mpsfleet.node.model import Report
from mpsfleet.node.render import json as render

if TYPE_CHECKING:
    import pytest


# A run starts Python some hundred times. Without byte code each start would compile all that it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("shared-machine", deadline=None)  # how long an example takes says more of what else runs
settings.load_profile("shared-machine")


def _is_made_as_published(make: Any) -> Any:
    """Have every report that is made in this process checked where it is made, whoever makes it."""

    @functools.wraps(make)
    def made(*given: Any, **named: Any) -> Any:
        value = make(*given, **named)
        report_schema.require(json.loads(render.report(value)))
        return value

    return made


def pytest_configure(config: pytest.Config) -> None:
    del config
    Report.__new__ = _is_made_as_published(Report.__new__)  # type: ignore[method-assign]


def pytest_unconfigure(config: pytest.Config) -> None:
    del config
    Report.__new__ = Report.__new__.__wrapped__  # type: ignore[method-assign,attr-defined]
