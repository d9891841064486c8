# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The timeline of an evacuation: only times of the record, and no stage that the record does not have."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Detection, HistoryLine
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.timeline import Timeline, read_timeline

KVM1, KVM2 = HostRef("kvm1", "id-1", None), HostRef("kvm2", "id-2", None)


def at(seconds: float) -> str:
    return f"2026-11-21T03:{int(seconds) // 60:02d}:{seconds % 60:06.3f}Z"


def evacuated(*events: tuple[float, str], evidence: float | None = 26.0, detection: tuple[float, float] | None = (0.0, 20.0)) -> MoveRecord:
    record = new_record(s.EVACUATION, DomainRef("u-1", "web1"), KVM1, KVM2, {}, "ann")
    return dataclasses.replace(
        record,
        status=s.DONE,
        history=tuple(HistoryLine(at(seconds), status) for seconds, status in events),
        evidence=(
            {"kind": "silence", "host": "kvm1", "at": at(21)},
            {"kind": "fence_agent", "host": "kvm9", "host_id": "id-9", "status": "off", "at": at(3)},
            *([{"kind": "fence_agent", "host": "kvm1", "host_id": "id-1", "status": "off", "at": at(evidence)}] if evidence is not None else []),
        ),
        detection=Detection(at(detection[0]), at(detection[1]), "event source") if detection else ABSENT,
    )


def known(record: MoveRecord) -> Timeline:
    timeline = read_timeline(record)
    assert timeline is not None
    return timeline


def test_each_stage_ends_where_the_next_one_begins() -> None:
    timeline = known(evacuated((26.2, s.ACCEPTED), (26.5, s.PRE_MIGRATING), (29.0, s.DONE), (600.0, s.COMPLETED)))
    assert timeline.stages == {"detection": 20.0, "evidence": 6.0, "start": 0.5, "verification": 2.5}
    assert timeline.text == "detection 20.0 s, evidence 6.0 s, start 0.5 s, verification 2.5 s: 29.0 s"
    assert timeline.as_json() == {
        "detection_seconds": 20.0,
        "evidence_seconds": 6.0,
        "start_seconds": 0.5,
        "verification_seconds": 2.5,
        "total_seconds": 29.0,
        "text": timeline.text,
    }


def test_an_evacuation_by_a_person_has_the_stages_that_exist() -> None:
    timeline = known(evacuated((26.5, s.PRE_MIGRATING), (29.0, s.DONE), detection=None))
    assert timeline.text == "start 0.5 s, verification 2.5 s: 3.0 s"
    assert (timeline.detection_seconds, timeline.evidence_seconds) == (None, None)
    assert known(evacuated((26.5, s.PRE_MIGRATING), (29.0, s.DONE), detection=None, evidence=None)).text == "verification 2.5 s: 2.5 s"


def test_a_clock_that_was_set_back_leaves_the_stage_out() -> None:
    timeline = known(evacuated((26.5, s.PRE_MIGRATING), (29.0, s.DONE), detection=(0.0, 40.0)))
    assert timeline.stages == {"detection": 40.0, "start": 0.5, "verification": 2.5}
    assert timeline.total_seconds == 29.0


def test_a_repeated_start_counts_from_its_first_time() -> None:
    assert known(evacuated((26.5, s.PRE_MIGRATING), (90.0, s.ERROR), (95.0, s.PRE_MIGRATING), (96.0, s.DONE))).verification_seconds == 69.5


def test_what_was_not_started_has_none() -> None:
    assert read_timeline(evacuated((26.2, s.ACCEPTED), (26.5, s.CONFLICT))) is None
    assert read_timeline(dataclasses.replace(evacuated((26.5, s.PRE_MIGRATING), (29.0, s.DONE)), type=s.LIVE_MIGRATION)) is None


def test_a_time_that_is_none_is_not_known() -> None:
    record = evacuated((26.5, s.PRE_MIGRATING), (29.0, s.DONE))
    broken = dataclasses.replace(record, evidence=({"status": "off", "host_id": "id-1", "at": t.cast(t.Any, 7)},))
    assert known(broken).stages == {"detection": 20.0, "verification": 2.5}
