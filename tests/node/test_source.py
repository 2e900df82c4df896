"""What a deploy installs: the running zipapp, else the one that a pip package carries, and never what lies in a checkout."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from mpsfleet import program
from mpsfleet.errors import MpsfleetError
from mpsfleet.node import act

if TYPE_CHECKING:
    from pathlib import Path


def test_a_checkout_has_none_and_says_how_to_make_one() -> None:
    with pytest.raises(MpsfleetError, match=r"plain files.*`\./dev pyz`"):
        act.source()


def test_a_package_carries_it_beside_its_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / program.CARRIED).write_bytes(b"zip")
    monkeypatch.setattr(program, "__file__", str(tmp_path / "program.py"))
    assert act.source() == (b"zip", hashlib.sha256(b"zip").hexdigest())
