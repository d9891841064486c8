# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(ledger_query). Documentation is in ledger_query.yml."""

from __future__ import annotations

from collections.abc import Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import run_query


def ledger_query(records: Json, expression: Json) -> Json:
    """Return what the JMESPath expression selects. Raises C(AnsibleFilterError) with a sentence."""
    try:
        return run_query(records, expression)
    except KvmfleetError as error:
        raise AnsibleFilterError(f"kvmfleet.migration.ledger_query: {error}") from None


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[[Json, Json], Json]]:
        """Return the filters by name."""
        return {"ledger_query": ledger_query}
