# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(drain_text). Documentation is in drain_text.yml."""

from __future__ import annotations

from collections.abc import Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain import saved_plan


def drain_text(plan: Json) -> str:
    """Return the plan as one line for a variable."""
    try:
        return saved_plan.pack_plan(saved_plan.read_plan(plan))
    except InvalidArgument as error:
        raise AnsibleFilterError(f"drain_text: {error}") from None


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[[Json], str]]:
        """Return the filters by name."""
        return {"drain_text": drain_text}
