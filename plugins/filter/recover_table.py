# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(recover_table). Documentation is in recover_table.yml."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.result import problems, result_lines


def recover_table(result: Mapping[str, Mapping[str, t.Any]], only_problems: bool = False) -> list[str]:
    """Return a recovery's result as lines of text."""
    try:
        return [line for own in result.values() for line in problems(own)] if only_problems else result_lines(result)
    except (AttributeError, KeyError, TypeError) as error:
        raise AnsibleFilterError(f"recover_table: this is not recover_host_result ({type(error).__name__}: {error}).") from error


class FilterModule:
    """Ansible's way to the filter."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        """Return it by name."""
        return {"recover_table": recover_table}
