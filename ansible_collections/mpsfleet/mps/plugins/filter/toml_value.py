# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter `toml_value`, with which the role's template writes node.toml."""

from __future__ import annotations

from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.mpsfleet.mps.plugins.plugin_utils import toml

DOCUMENTATION = r"""
name: toml_value
short_description: Write a value as TOML
version_added: 0.1.0
description:
  - Writes a text, number, boolean or list of GPUs as a value of a TOML file, with everything escaped that TOML wants
    escaped.
author:
  - mpsfleet authors (!UNKNOWN)
positional: kind
options:
  _input:
    description: The value.
    type: raw
    required: true
  kind:
    description:
      - What the value must be. V(number) and V(boolean) also read a value in quotes, V(string) also a number.
      - V(gpus) is a list that names GPUs by index, UUID or model. An index may be in quotes.
    type: str
    choices: [as it is, string, number, boolean, gpus]
    default: as it is
"""

EXAMPLES = r"""
- name: Show a line of TOML
  ansible.builtin.debug:
    msg: active_thread_percentage = {{ '50' | mpsfleet.mps.toml_value('number') }}
"""

RETURN = r"""
_value:
  description: The value as TOML text.
  type: str
"""


def toml_value(value: Any, kind: str = "as it is") -> str:
    """Return the value as TOML text; AnsibleFilterError where it is not of that kind."""
    try:
        return toml.toml_value(value, kind)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The collection's filter."""

    def filters(self) -> dict[str, Callable[..., str]]:
        """Return the filter by its name."""
        return {"toml_value": toml_value}
