# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run in a machine: opens a record for each of some domains in a ledger that another control node writes at the same time; prints what became of each.

Arguments: the folder with C(ansible_collections), the ledger, the name of this control node, the number of domains.
"""

from __future__ import annotations

import json
import sys
import uuid

sys.path.insert(0, sys.argv[1])

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger


def main(location: str, me: str, count: int) -> None:
    ledger = FileLedger(location, create=True)
    opened, unseen = [], []
    for number in range(count):
        domain = DomainRef(str(uuid.UUID(int=number + 1)), f"d{number}")
        try:
            ledger.open_record(new_record(s.LIVE_MIGRATION, domain, HostRef("m1", None, None), HostRef("m2", None, None), {}, me))
            opened.append(number)
        except Conflict:
            pass
        # Whoever had it: now there is a record of it, and everybody has to see that.
        if domain.uuid not in {record.domain.uuid for record in ledger.list_records()}:
            unseen.append(number)
    print(json.dumps({"opened": opened, "unseen": unseen, "problems": ledger.problems}))


if __name__ == "__main__":
    main(sys.argv[2], sys.argv[3], int(sys.argv[4]))
