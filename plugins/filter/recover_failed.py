# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(recover_failed). Documentation is in recover_failed.yml."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.result import failed_items


def recover_failed(results: Sequence[Mapping[str, t.Any]], what: str) -> list[dict[str, t.Any]]:
    """Return of which domains a loop's task failed, and why."""
    try:
        return failed_items(results, what)
    except (AttributeError, KeyError, TypeError) as error:
        raise AnsibleFilterError(f"recover_failed: these are not results of a loop over domains ({type(error).__name__}: {error}).") from error


class FilterModule:
    """Ansible's way to the filter."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        """Return it by name."""
        return {"recover_failed": recover_failed}
