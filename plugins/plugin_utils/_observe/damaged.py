# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What was damaged in the ledger and not replaced since. Only the task that sets a document aside reads it; those that show the fleet name it until then."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotSupported

from .._ledger.ledger import Ledger


def damaged_lines(ledger: Ledger, domains: Iterable[str]) -> Iterator[str]:
    """Yield a line on each record and domain that was set aside, and on the brake. The ledger itself reports hosts.

    :arg domains: UUIDs of the domains whose document was damaged.
    """
    for record_id in ledger.list_damaged_records():
        yield (
            f"The record {record_id} was damaged and set aside, and may have been open: what its domain needs is not known. Restore it from a backup, or find"
            f" out where its domain is. Then remove migrations-{record_id}-* from set_aside in the ledger."
        )
    for uuid in domains:
        yield (
            f"The document of domain {uuid} is damaged. Run kvmfleet.migration.protect on its host."
            f" If the domain no longer exists, remove domains-{uuid}-* from set_aside in the ledger."
        )
    # The ledger reports a brake of a later version.
    with contextlib.suppress(NotSupported):
        if ledger.read_brake() is None and ledger.has_damaged_brake():
            yield (
                "The state of the brake was damaged and set aside, so that no reaction to events acts. Find out on which hosts reactions have acted."
                " Then the module event_brake with state: armed begins with an empty brake."
            )
