# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One domain on its way through an evacuation, and what all of them share."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuate_spec import AS_RECORDED, RUNNING
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h

from .._ledger.store import Body, Ledger, Stored
from .._settings import Settings
from .source import Candidate, Source

Phase = Callable[[str, Mapping[str, t.Any]], Body]


@dataclass(frozen=True)
class Wish:
    """The options of one task."""

    source: str
    domains: t.Optional[Sequence[str]]
    fencing: t.Optional[Sequence[t.Any]]
    force_down: t.Optional[Mapping[str, t.Any]]
    accept_silent: Sequence[str]
    force: bool
    state: str
    parallel: int
    lock_wait_seconds: t.Optional[int]
    accept_fresh: Sequence[str] = ()
    accept_locked: t.Optional[Mapping[str, t.Any]] = None


@dataclass
class Context:
    """What stays the same for all domains of one task; C(warnings) grows.

    :arg here: inventory name of the host that takes the domains.
    :arg phase: runs a phase of the module there.
    :arg in_parent: whether the process that started this one still lives.
    """

    ledger: Ledger
    settings: Settings
    here: str
    uri: str
    by: str
    wish: Wish
    phase: Phase
    in_parent: Callable[[], bool]
    warnings: list[str] = field(default_factory=list)


@dataclass
class Job:
    """A domain that may be on the dead host.

    :arg stored: its record, once there is one.
    :arg rejoin: the record was C(pre-migrating) before this task.
    :arg older: a record of another host that also is off, which this evacuation takes the place of.
    :arg lost: why it cannot be started before its host returns.
    :arg files: that it needs beside its disks and that other hosts were proved to see, as they were saved.
    :arg fresh: of these that only its host had, those that a start may make afresh.
    :arg passed: by the scheduler, with its warnings.
    """

    candidate: Candidate
    source: Source
    wanted: str
    stored: t.Optional[Stored] = None
    rejoin: bool = False
    older: t.Optional[Body] = None
    lost: list[str] = field(default_factory=list)
    files: list[Body] = field(default_factory=list)
    fresh: list[Body] = field(default_factory=list)
    error: t.Optional[KvmfleetError] = None
    changed: bool = False
    prediction: t.Optional[Body] = None

    @property
    def uuid(self) -> str:
        """The domain's UUID."""
        return self.candidate.uuid

    @property
    def name(self) -> str:
        """The domain's name."""
        return str(self.candidate.document["name"])

    @property
    def saved(self) -> Body:
        """What C(protect) saved of it; empty where it never did."""
        saved = self.candidate.document.get("protected")
        return saved if isinstance(saved, dict) else {}

    @property
    def disks(self) -> list[Body]:
        """The disks as C(protect) saved them. An earlier version said only with the domain's needs which of them are C(shareable)."""
        shared = {disk["target"] for disk in self.saved["request"].get("disks") or () if disk.get("shareable")}
        return [{"shareable": disk["target"] in shared, **disk} for disk in self.saved["disks"]]

    @property
    def is_open(self) -> bool:
        """Whether nothing speaks against its start so far."""
        return self.error is None and not self.lost

    @property
    def record(self) -> t.Optional[Body]:
        """Its record as the ledger has it, or as check mode predicts it."""
        return self.stored.record if self.stored else self.prediction

    @property
    def rank(self) -> tuple[int, int, str]:
        """The more important first, then the larger, as the planner has it."""
        given = self.saved.get("request")
        request = given if isinstance(given, dict) else {}
        return -_number(request.get("priority")), -_number(request.get("memory_mib")), self.uuid

    def as_entry(self) -> Body:
        """Return the domain as it is listed: never with its definition."""
        return {"uuid": self.uuid, "name": self.name, "state": self.saved.get("state"), "saved_at": self.saved.get("at")}


def wanted_state(saved: t.Any, option: str) -> str:
    """Return the state that the domain is to have: that of the option, else the one that was seen last."""
    if option != AS_RECORDED:
        return h.RUNNING if option == RUNNING else h.SHUTOFF
    # Of a document that says neither, nothing is started.
    return str(saved.get("state")) if isinstance(saved, dict) else h.SHUTOFF


def _number(value: t.Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
