# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filter ledger_query: JMESPath over records."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import query


def ledger_query(records: t.Any, expression: t.Any) -> t.Any:
    """Return what the JMESPath expression selects. Raises C(AnsibleFilterError) with a sentence."""
    try:
        return query(records, expression)
    except KvmfleetError as error:
        raise AnsibleFilterError(f"kvmfleet.migration.ledger_query: {error}") from None


class FilterModule:
    """Ansible filters."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Return the filters by name."""
        return {"ledger_query": ledger_query}
