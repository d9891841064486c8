# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The timeline of an evacuated domain: how long it took to detect the death of its host, to prove it, to begin the start, and to see the domain run.

All times are those that the record has. They are of the clock of the control node and only shown: a stage whose end is before its beginning is not known.
"""

from __future__ import annotations

import datetime
import itertools
import typing as t
from dataclasses import fields

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import parse_timestamp
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

STAGES = (DETECTION, EVIDENCE, START, VERIFICATION) = ("detection", "evidence", "start", "verification")


@dataclass(frozen=True)
class Timeline:
    """The seconds of each stage; null for one that is not known.

    :arg detection_seconds: from the last sign of the host until it was judged to be gone; null if no detection was stated.
    :arg evidence_seconds: from there until the evidence that the host is off, as it was confirmed right before the start.
    :arg start_seconds: from there until the start was recorded, C(pre-migrating).
    :arg verification_seconds: from there until the domain was seen in its wanted state, C(done).
    :arg total_seconds: from the first to the last of these times.
    """

    detection_seconds: t.Optional[float]
    evidence_seconds: t.Optional[float]
    start_seconds: t.Optional[float]
    verification_seconds: t.Optional[float]
    total_seconds: t.Optional[float]

    @property
    def stages(self) -> dict[str, float]:
        """The known stages, in order."""
        known = {stage: getattr(self, f"{stage}_seconds") for stage in STAGES}
        return {stage: seconds for stage, seconds in known.items() if seconds is not None}

    def as_json(self) -> dict[str, Json]:
        """Return it as JSON, with its line."""
        return {**{one.name: getattr(self, one.name) for one in fields(self)}, "text": self.text}

    @property
    def text(self) -> str:
        """The stages on one line, e.g. C(detection 20.1 s, evidence 6.0 s, start 0.3 s, verification 2.3 s: 28.7 s)."""
        parts = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in self.stages.items())
        return parts if self.total_seconds is None else f"{parts}: {self.total_seconds:.1f} s"


def read_timeline(record: MoveRecord) -> t.Optional[Timeline]:
    """Return the timeline of an evacuation whose domain was started; None for any other record."""
    times = _list_times(record) if record.type == s.EVACUATION else ()
    if not times or times[-1] is None:
        return None
    detection, evidence, start, verification = (_seconds_between(*pair) for pair in itertools.pairwise(times))
    first = next(one for one in times if one is not None)
    return Timeline(detection, evidence, start, verification, _seconds_between(first, times[-1]) if first is not times[-1] else None)


def _list_times(record: MoveRecord) -> tuple[t.Optional[datetime.datetime], ...]:
    """Return when the host was heard from last, detected, off by evidence, and when the domain's start was recorded and verified."""
    detection = record.detection or None
    return (
        parse_timestamp(detection.silent_since) if detection else None,
        parse_timestamp(detection.detected_at) if detection else None,
        parse_timestamp(_evidence_time(record)),
        parse_timestamp(next((line.at for line in record.history if line.status == s.PRE_MIGRATING), None)),
        parse_timestamp(next((line.at for line in record.history if line.status == s.DONE), None)),
    )


def _evidence_time(record: MoveRecord) -> Json:
    return next((one.get("at") for one in record.evidence if _is_about_source(one, record)), None)


def _is_about_source(evidence: JsonObject, record: MoveRecord) -> bool:
    return evidence.get("status") == "off" and evidence.get("host_id") == record.source.host_id


def _seconds_between(earlier: t.Optional[datetime.datetime], later: t.Optional[datetime.datetime]) -> t.Optional[float]:
    seconds = (later - earlier).total_seconds() if earlier and later else -1.0
    return round(seconds, 3) if seconds >= 0 else None
