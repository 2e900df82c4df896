# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the documentation of all modules shares: the carried program, check mode, where the module runs."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragments for ``extends_documentation_fragment``."""

    DOCUMENTATION = r"""
options:
  program:
    description:
      - The program, packed. Set by the action plugin where the target lacks it; leave it out.
    type: str
  program_digest:
    description:
      - The sha256 of the program that the collection carries. Set by the action plugin; leave it out.
    type: str
  root:
    description:
      - The directory under which the node, or the controller, lies, such as the root of an image. Empty is the target
        itself.
      - Set by the action plugin from the variable C(mps_root) of the host where the module runs; leave it out.
    type: str
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed, or would change in check mode, when in diff mode.
    support: none
requirements:
  - Python 3.9 or newer on the target
"""
