# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reservations of cold moves: the destination is verified and booked like that of a live move, by the rules that matter for how the guest arrives."""

from __future__ import annotations

import os
import typing as t
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import SAVE, SHUTDOWN, Before, ColdMove
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._cold.request import ColdRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import MoveJob
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.reserve import CandidateJudge, Reservations
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.filters.base import Filter
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.filters.cpu import CpuAtStart
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import DEFAULT_FILTERS

# These concern the job of a live move.
_OF_JOBS = ("max_moves", "traits")
# What prevents QEMU from sending its memory prevents it from saving it too, and does not matter for a guest that is off.
_OF_MEMORY = ("migratable",)
# A domain that stays off uses no capacity and no devices of its host.
_OFF_RULES = ("not_source", "up", "enabled", "machine_type", "storage", "boot_files", "firmware", "tpm", "resource_maps", "labels")
SAVE_FILTERS: t.Final[tuple[Filter, ...]] = tuple(rule for rule in DEFAULT_FILTERS if rule.name not in _OF_JOBS)
START_FILTERS: t.Final[tuple[Filter, ...]] = tuple(
    CpuAtStart() if rule.name == CpuAtStart.name else rule for rule in SAVE_FILTERS if rule.name not in _OF_MEMORY
)
OFF_FILTERS: t.Final[tuple[Filter, ...]] = tuple(rule for rule in DEFAULT_FILTERS if rule.name in _OFF_RULES)


def filters_for(request: ColdRequest) -> tuple[Filter, ...]:
    """Return the rules by which the destination of this move is judged."""
    if request.stays_off:
        return OFF_FILTERS
    return SAVE_FILTERS if request.method == SAVE or request.saved else START_FILTERS


class ColdReservations(Reservations):
    """Verifies destinations and opens records, for the cold moves of one source host."""

    def make_record(self, job: MoveJob, judge: CandidateJudge, host: str) -> MoveRecord:
        """Return the record of a cold move to that host, as it is opened."""
        request, info = t.cast(ColdRequest, job.request), job.domain.source_info
        record = super().make_record(job, judge, host)
        cold = ColdMove(
            start=request.start,
            shutdown_wait_seconds=request.shutdown_wait_seconds if request.method == SHUTDOWN else ABSENT,
            image=_name_image(request, str(record.id)),
            resumes_as=request.saved.resumes_as if request.saved else ABSENT,
            renaming=request.renamings.get(request.uris[host], ABSENT),
        )
        return replace(
            record,
            type=s.COLD_MIGRATION,
            method=request.method,
            cold=cold,
            before=Before(state=info.view.state, reason=info.view.reason, persistent=True, autostart=info.autostart, at_destination=False),
        )

    def booked_request(self, job: MoveJob, judge: CandidateJudge, host: str) -> JsonObject:
        """Return what the record reserves at that host: nothing for a domain that stays off."""
        return {} if t.cast(ColdRequest, job.request).stays_off else super().booked_request(job, judge, host)

    def choose_streams(self, job: MoveJob, judge: CandidateJudge, host: str) -> None:
        """Choose nothing: a cold move has no connections of QEMU."""


def _name_image(request: ColdRequest, record_id: str) -> str | Absent:
    """Return the path of the saved memory: in the folder that both hosts share, or next to the managed-save image, which is held there during the move."""
    if request.saved:
        return os.path.join(os.path.dirname(request.saved.path), f"kvmfleet-{record_id}.memory")
    return os.path.join(request.save_folder, f"kvmfleet-{record_id}.save") if request.save_folder else ABSENT
