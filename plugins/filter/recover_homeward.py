# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(recover_homeward). Documentation is in recover_homeward.yml."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.decide import homeward

Body = Mapping[str, t.Any]


def recover_homeward(displaced: Sequence[Body], host: str, facts: Mapping[str, t.Optional[Body]]) -> dict[str, list[dict[str, t.Any]]]:
    """Return from where displaced domains can be moved home."""
    try:
        return homeward(host, displaced, facts)
    except (AttributeError, KeyError, TypeError) as error:
        raise AnsibleFilterError(f"recover_homeward: domains or facts have not the expected form ({type(error).__name__}: {error}).") from error


class FilterModule:
    """Ansible's way to the filter."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        """Return it by name."""
        return {"recover_homeward": recover_homeward}
