# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(drain_table). Documentation is in drain_table.yml."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.table import plan_lines, result_lines


def drain_table(document: Mapping[str, t.Any]) -> list[str]:
    """Return a plan, or a result by host, as lines of text."""
    try:
        return plan_lines(document) if "moves" in document else result_lines(document)
    except (AttributeError, KeyError, TypeError) as error:
        raise AnsibleFilterError(f"drain_table: this is neither a drain's plan nor its result ({type(error).__name__}: {error}).") from error


class FilterModule:
    """Ansible's way to the filter."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        """Return it by name."""
        return {"drain_table": drain_table}
