# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One request on its way through a run, and what the run's parts share."""

from __future__ import annotations

import typing as t
import uuid as uuid_module
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden, InvalidArgument, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.decide import Decision
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.mirror import Mirror
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.remote import SourceHost
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings

Facts = dict[str, t.Any]


@dataclass
class Context:
    """What stays the same for all moves of one task; C(warnings) grows, and C(missing): moves that hosts remember and the ledger is behind.

    :arg uri: of the source's own libvirt.
    :arg by: who acts, for histories.
    """

    ledger: Ledger
    settings: Settings
    source: SourceHost
    uri: str
    by: str
    run_id: str = field(default_factory=lambda: str(uuid_module.uuid4()))
    warnings: list[str] = field(default_factory=list)
    missing: list[Facts] = field(default_factory=list)


@dataclass
class Job:
    """One request, what was decided about it, and what became of it."""

    request: MoveRequest
    decision: Decision | None = None
    domain: Facts = field(default_factory=dict)
    order: Facts | None = None
    mirror: Mirror | None = None
    watcher: t.Mapping[str, t.Any] | None = None
    record: schema.Record | None = None
    error: KvmfleetError | None = None
    moved: bool = False

    @property
    def uuid(self) -> str:
        """The domain's UUID, once it is known."""
        return str(self.mirror.record["domain"]["uuid"]) if self.mirror else str(self.domain["info"]["uuid"])

    @property
    def domain_uuid(self) -> str | None:
        """The domain's UUID; null for a name that nobody knows."""
        return str(self.domain["info"]["uuid"]) if self.domain.get("found") else self.request.uuid

    @property
    def was_at_source(self) -> bool:
        """Whether the domain was active on the source when it was surveyed: what had ended before this task changes nothing."""
        return bool(self.domain["found"] and self.domain["info"]["view"]["active"])


def guarded(job: Job, step: t.Callable[[Job], None]) -> None:
    """Run a step for one of several moves, and keep its error beside it: the others go on. Bad input ends the task."""
    if job.error:
        return
    try:
        step(job)
    except (InvalidArgument, Forbidden):
        raise
    except KvmfleetError as error:
        job.error = error
