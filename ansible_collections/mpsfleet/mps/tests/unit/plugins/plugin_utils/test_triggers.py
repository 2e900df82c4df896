# SPDX-License-Identifier: Apache-2.0

"""The variables trigger_drain and trigger_undrain, as people set them."""

from __future__ import annotations

import pytest

from ansible_collections.mpsfleet.mps.plugins.plugin_utils.triggers import is_wanted


@pytest.mark.parametrize("value", [True, "true", "True", "yes", "YES", "on", "1", 1, "y", "t", " true "])
def test_these_ask_for_drains(value: object) -> None:
    assert is_wanted("trigger_undrain", value) is True


@pytest.mark.parametrize("value", [False, None, "", "false", "False", "no", "off", "0", 0, "n", "f", "None"])
def test_these_do_not(value: object) -> None:
    assert is_wanted("trigger_undrain", value) is False


@pytest.mark.parametrize("value", ["maybe", "ture", "2", 2, 1.0, ["true"], {"a": 1}, "{{ x }}"])
def test_all_else_is_an_error(value: object) -> None:
    with pytest.raises(ValueError, match=r"trigger_undrain is .*it must be true or false"):
        is_wanted("trigger_undrain", value)
