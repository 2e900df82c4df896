# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables `trigger_drain` and `trigger_undrain`, as people set them: by command or YAML, or not at all."""

from __future__ import annotations

from typing import Any

from ansible_collections.mpsfleet.mps.plugins.plugin_utils.printable import printable

_WORDS = {
    **dict.fromkeys(("true", "yes", "on", "1", "y", "t"), True),
    **dict.fromkeys(("false", "no", "off", "0", "n", "f", "", "none", "null"), False),
}


def is_wanted(name: str, value: Any) -> bool:
    """Return whether a trigger asks for something. ValueError, one sentence, where it says neither yes nor no."""
    if value is None or isinstance(value, (bool, int, str)):
        known = _WORDS.get(str(value).strip().lower())
        if known is not None:
            return known
    message = f'{name} is "{printable(value, 40)}"; it must be true or false.'
    raise ValueError(message)
