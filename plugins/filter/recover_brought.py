# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(recover_brought). Documentation is in recover_brought.yml."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.result import moved_home

Body = Mapping[str, t.Any]


def recover_brought(moves: Sequence[Body], results: Sequence[Body], check_mode: bool = False) -> dict[str, list[dict[str, t.Any]]]:
    """Return which domains have come home, and why others have not."""
    try:
        return moved_home(moves, results, check_mode)
    except (AttributeError, KeyError, TypeError) as error:
        raise AnsibleFilterError(f"recover_brought: moves or results have not the expected form ({type(error).__name__}: {error}).") from error


class FilterModule:
    """Ansible's way to the filter."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        """Return it by name."""
        return {"recover_brought": recover_brought}
