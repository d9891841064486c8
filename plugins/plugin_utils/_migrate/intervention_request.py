# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The request of a task that aborts a move, forces it, or changes its bandwidth."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MAX_BANDWIDTH_MIB
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import canonical_uuid
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import check_domain_name
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.rules import check_uuid

# The acts, as the module on the host knows them.
ABORT, FORCE_COMPLETE, BANDWIDTH = "abort", "force_complete", "bandwidth"


class InterventionOptions(t.TypedDict, total=False):
    """The options of both modules."""

    uri: str
    ledger: str | None
    name: str | None
    uuid: str | None
    id: str | None
    wait_seconds: int
    missing_ok: bool
    bandwidth_mib: int | None
    complete: bool


@dataclass(frozen=True)
class InterventionRequest:
    """What a task asks for.

    :arg id: the record of the one move that is meant.
    """

    act: str
    name: str | None
    uuid: str | None
    id: str | None
    wait_seconds: int
    missing_ok: bool = False
    bandwidth_mib: int | None = None

    @property
    def label(self) -> str:
        """The domain, or its move, for messages."""
        return str(self.name or self.uuid or f"of record {self.id}")


def read_intervention(options: InterventionOptions, act: str) -> InterventionRequest:
    """Return the request in a task's options. Raises L(InvalidArgument); no host was queried yet."""
    name, uuid, record_id, wait_seconds = options["name"], options["uuid"], options["id"], options["wait_seconds"]
    if name is not None and uuid is not None:
        raise InvalidArgument("name and uuid are mutually exclusive.", "Give one of them. Nothing was changed.")
    if name is None and uuid is None and record_id is None:
        raise InvalidArgument("name, uuid and id are missing.", "Give the domain, or the ID of the record of its migration. Nothing was changed.")
    check_domain_name(name)
    if wait_seconds < 0:
        raise InvalidArgument(f"wait_seconds is {wait_seconds}.", "Give a number of seconds, or 0.")
    bandwidth = options.get("bandwidth_mib")
    if bandwidth is not None and not 0 <= bandwidth <= MAX_BANDWIDTH_MIB:
        raise InvalidArgument(f"bandwidth_mib is {bandwidth}.", f"Give a whole number from 0 (no cap) to {MAX_BANDWIDTH_MIB}.")
    if act == FORCE_COMPLETE and not options["complete"]:
        if bandwidth is None:
            raise InvalidArgument("complete is false and no bandwidth_mib is given: there is nothing to do.")
        act = BANDWIDTH
    known_id = None if record_id is None else check_uuid(record_id, "id")
    return InterventionRequest(act, name, canonical_uuid(uuid), known_id, wait_seconds, bool(options.get("missing_ok")), bandwidth)
