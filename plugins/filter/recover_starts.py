# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(recover_starts). Documentation is in recover_starts.yml."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.decide import starts

Body = Mapping[str, t.Any]


def recover_starts(
    to_start: Sequence[Body],
    host: str,
    facts: Mapping[str, t.Optional[Body]],
    documents: Sequence[Body] = (),
    records: Sequence[Body] = (),
    entries: Sequence[Body] = (),
    accept_silent: Sequence[str] = (),
) -> dict[str, list[dict[str, t.Any]]]:
    """Return which of these domains may be started on their host."""
    try:
        return starts(host, to_start, facts, documents, records, entries, accept_silent)
    except (AttributeError, KeyError, TypeError) as error:
        raise AnsibleFilterError(f"recover_starts: domains, facts or records have not the expected form ({type(error).__name__}: {error}).") from error


class FilterModule:
    """Ansible's way to the filter."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        """Return it by name."""
        return {"recover_starts": recover_starts}
