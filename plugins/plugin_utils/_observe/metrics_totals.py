# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Totals over all ended moves and evacuations.

Each record is counted once. The control node stores what was counted, so that only new records are read and no counter decreases.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import typing as t
from collections.abc import Iterator
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, Maybe, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Result
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .._ledger.archive_notes import describe_archived
from .._ledger.file.folder import Folder, hold_file_lock
from .._ledger.ledger import Ledger
from .._ledger.rules import is_uuid
from .timeline import STAGES, Timeline, read_timeline

DURATION_MS = (1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000)
# 90 s is the goal of a fleet that evacuates by itself.
EVACUATION_MS = (1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 90_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000)
DOWNTIME_MS = (10, 20, 50, 100, 200, 300, 500, 1_000, 2_000, 5_000, 10_000, 30_000)


@dataclass(frozen=True)
class SavedHistogram:
    """A L(Histogram) as it was saved."""

    bounds_ms: tuple[int, ...]
    counts: tuple[int, ...]
    sum_ms: int


@dataclass(frozen=True)
class SavedTotals:
    """L(Totals) as they were saved. An earlier version has not counted the stages of evacuations; its totals are continued, because no counter may fall."""

    moves: t.Mapping[str, int]
    cancelled: t.Mapping[str, int]
    modes: t.Mapping[str, int]
    forced: int
    transferred_bytes: int
    durations: SavedHistogram
    downtimes: SavedHistogram
    evacuations: t.Mapping[str, int]
    evacuation_stages: Maybe[t.Mapping[str, SavedHistogram]] = ABSENT
    evacuation_durations: Maybe[SavedHistogram] = ABSENT


@dataclass
class Histogram:
    """:arg counts: the number of values up to each bound and above the previous one; the last is the number above all bounds."""

    bounds_ms: tuple[int, ...]
    counts: list[int]
    sum_ms: int = 0

    @classmethod
    def without_values(cls, bounds_ms: tuple[int, ...]) -> Histogram:
        """Return a histogram without values."""
        return cls(bounds_ms, [0] * (len(bounds_ms) + 1))

    def add(self, value_ms: int) -> None:
        """Count one value."""
        self.counts[bisect.bisect_left(self.bounds_ms, value_ms)] += 1
        self.sum_ms += value_ms

    def as_dict(self) -> JsonObject:
        """Return the histogram in JSON types."""
        return {"bounds_ms": list(self.bounds_ms), "counts": self.counts, "sum_ms": self.sum_ms}

    @classmethod
    def from_saved(cls, saved: SavedHistogram, bounds_ms: tuple[int, ...]) -> Histogram:
        """Return the saved histogram. Raises C(ValueError) unless it has these bounds."""
        if saved.bounds_ms != bounds_ms or len(saved.counts) != len(bounds_ms) + 1:
            raise ValueError("other bounds")
        return cls(bounds_ms, list(saved.counts), saved.sum_ms)


MOVE_OUTCOMES = (s.COMPLETED, s.FAILED, s.CANCELLED, s.CONFLICT)
EVACUATION_OUTCOMES = (s.DONE, s.FAILED, s.CONFLICT)
MOVE_MODES = ("pre-copy", "post-copy", "paused")
OTHER_REASON = "other"
REASONS = (*s.CANCEL_REASONS, OTHER_REASON)


def _zero_counts(words: t.Iterable[str]) -> t.Callable[[], dict[str, int]]:
    return lambda: dict.fromkeys(words, 0)


@dataclass
class Totals:
    """:arg moves: by outcome; C(evacuations) likewise, where one that has started its domain is C(done), whatever the state of its tombstone.

    :arg cancelled: moves by reason.
    :arg modes: completed moves by mode.
    :arg evacuation_stages: of the timelines of evacuations that have started their domain, by stage.
    :arg evacuation_durations: the sums of these timelines.
    """

    moves: dict[str, int] = field(default_factory=_zero_counts(MOVE_OUTCOMES))
    cancelled: dict[str, int] = field(default_factory=_zero_counts(REASONS))
    modes: dict[str, int] = field(default_factory=_zero_counts(MOVE_MODES))
    forced: int = 0
    transferred_bytes: int = 0
    durations: Histogram = field(default_factory=lambda: Histogram.without_values(DURATION_MS))
    downtimes: Histogram = field(default_factory=lambda: Histogram.without_values(DOWNTIME_MS))
    evacuations: dict[str, int] = field(default_factory=_zero_counts(EVACUATION_OUTCOMES))
    evacuation_stages: dict[str, Histogram] = field(default_factory=lambda: {stage: Histogram.without_values(EVACUATION_MS) for stage in STAGES})
    evacuation_durations: Histogram = field(default_factory=lambda: Histogram.without_values(EVACUATION_MS))

    def add(self, record: MoveRecord) -> None:
        """Count a closed record, or an evacuation that is C(done). No record may be given twice."""
        if record.type == s.EVACUATION:
            self.evacuations[_evacuation_outcome(record)] += 1
            self._add_timeline(read_timeline(record))
            return
        self.moves[record.status] += 1
        self.forced += bool(record.forced)
        self.transferred_bytes += record.result.bytes or 0
        if record.status == s.CANCELLED:
            reason = record.reason or OTHER_REASON
            self.cancelled[reason if reason in REASONS else OTHER_REASON] += 1
        if record.status == s.COMPLETED:
            self._add_completed(record.result)

    def _add_timeline(self, timeline: t.Optional[Timeline]) -> None:
        if timeline is None:
            return
        for stage, seconds in timeline.stages.items():
            self.evacuation_stages[stage].add(round(seconds * 1000))
        if timeline.total_seconds is not None:
            self.evacuation_durations.add(round(timeline.total_seconds * 1000))

    def _add_completed(self, result: Result) -> None:
        if result.mode and result.mode in MOVE_MODES:
            self.modes[result.mode] += 1
        for histogram, value_ms in ((self.durations, result.elapsed_ms), (self.downtimes, result.downtime_ms)):
            if value_ms is not None:
                histogram.add(value_ms)

    def as_dict(self) -> JsonObject:
        """Return the totals in JSON types."""
        histograms = {name: getattr(self, name).as_dict() for name in ("durations", "downtimes", "evacuation_durations")}
        stages = {stage: histogram.as_dict() for stage, histogram in self.evacuation_stages.items()}
        return {**self.__dict__, **histograms, "evacuation_stages": stages}

    @classmethod
    def from_saved(cls, saved: SavedTotals) -> Totals:
        """Return the saved totals. Raises C(ValueError) for totals of another version."""
        totals = cls(
            forced=saved.forced,
            transferred_bytes=saved.transferred_bytes,
            durations=Histogram.from_saved(saved.durations, DURATION_MS),
            downtimes=Histogram.from_saved(saved.downtimes, DOWNTIME_MS),
        )
        if saved.evacuation_durations:
            totals.evacuation_durations = Histogram.from_saved(saved.evacuation_durations, EVACUATION_MS)
        for stage, one in (saved.evacuation_stages or {}).items():
            if stage not in STAGES:
                raise ValueError(f"another stage, {stage}")
            totals.evacuation_stages[stage] = Histogram.from_saved(one, EVACUATION_MS)
        for name in ("moves", "cancelled", "modes", "evacuations"):
            counts, known = getattr(totals, name), getattr(saved, name)
            if set(known) != set(counts):
                raise ValueError(f"other {name}")
            counts.update(known)
        return totals


def is_countable(record: MoveRecord) -> bool:
    """Whether the record has ended: its outcome can no longer change."""
    return record.status in s.CLOSED | s.TOMBSTONE


def _evacuation_outcome(record: MoveRecord) -> str:
    return s.DONE if record.status in (s.COMPLETED, s.DONE) else record.status


_TALLY_SCHEMA = 1
_LOCK_SECONDS = 60.0
# From this number on, it is faster to read all closed records in their order than to read these one by one.
_MANY_RECORDS = 200


@dataclass
class Tally:
    """:arg counted: the ids of the records in C(totals)."""

    totals: Totals = field(default_factory=Totals)
    counted: set[str] = field(default_factory=set)

    def catch_up(self, ledger: Ledger, open_records: t.Iterable[MoveRecord]) -> None:
        """Count the records that have ended since: closed records, and evacuations that are C(done)."""
        for record in (*_closed_since(ledger, self.counted), *open_records):
            if is_countable(record) and record.record_id not in self.counted:
                self.totals.add(record)
                self.counted.add(record.record_id)

    @classmethod
    def from_saved(cls, data: bytes, ledger_id: str) -> t.Optional[Tally]:
        """Return the saved tally of that ledger; None if it is of another ledger or version, or damaged."""
        try:
            saved = json.loads(data)
            if saved["schema"] == _TALLY_SCHEMA and saved["ledger_id"] == ledger_id and all(map(is_uuid, saved["counted"])):
                return cls(Totals.from_saved(decode(SavedTotals, saved["totals"])), set(saved["counted"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        return None

    def text(self, ledger_id: str) -> bytes:
        """Return the text that L(from_saved) reads."""
        saved = {"schema": _TALLY_SCHEMA, "ledger_id": ledger_id, "totals": self.totals.as_dict(), "counted": sorted(self.counted)}
        return json.dumps(saved, separators=(",", ":")).encode("ascii")


def count_records(ledger: Ledger, open_records: list[MoveRecord], folder: str) -> t.Optional[Totals]:
    """Return the totals of the ledger as it is now, and keep them in the folder; if they cannot be kept, C(ledger.problems) has a message.

    None if they are not known: records that were counted are in an archive, and the folder cannot be read. Without them, the counters would fall.
    """
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with Folder.open_path(folder) as root, hold_file_lock(root, f"{ledger.ledger_id}.lock", True, _LOCK_SECONDS):
            return _update_tally(ledger, open_records, root)
    except OSError as error:
        totals = predict_totals(ledger, open_records, folder, may_begin=False)
        left_out = "" if totals else " They are not known without those of records that were archived, so none were written."
        ledger.report_problem(f"The counters cannot be stored in {folder}: {error.strerror or error}.{left_out}")
        return totals


def predict_totals(ledger: Ledger, open_records: list[MoveRecord], folder: str, may_begin: bool = True) -> t.Optional[Totals]:
    """Return the totals that L(count_records) would return, and store nothing.

    :arg may_begin: whether the counters may begin without the archived records if nothing is kept in the folder.
    """
    tally: t.Optional[Tally] = None
    try:
        with Folder.open_path(folder) as root:
            tally = _read_kept(ledger, root)
    except FileNotFoundError:
        tally = Tally() if may_begin else None
    except OSError:
        pass
    if tally is None and describe_archived(ledger, None):
        return None
    tally = tally or Tally()
    tally.catch_up(ledger, open_records)
    return tally.totals


def _update_tally(ledger: Ledger, open_records: list[MoveRecord], root: Folder) -> Totals:
    tally = _read_tally(ledger, root)
    before = len(tally.counted)
    tally.catch_up(ledger, open_records)
    if len(tally.counted) != before:
        root.write_file(_file_name(ledger), tally.text(ledger.ledger_id))
    return tally.totals


def _read_tally(ledger: Ledger, root: Folder) -> Tally:
    try:
        return _read_kept(ledger, root)
    except FileNotFoundError:
        return Tally()


def _read_kept(ledger: Ledger, root: Folder) -> Tally:
    """Return the tally in the folder. One that is damaged, or of another version, begins anew, with a problem if it had archived records. Raises OSError."""
    name = _file_name(ledger)
    tally = Tally.from_saved(root.read_file(name), ledger.ledger_id)
    if tally is None and describe_archived(ledger, None):
        ledger.report_problem(
            f"The counters in {name} are damaged, or of another version. They begin anew without those of records that were archived, so they fall once."
        )
    return tally or Tally()


def _file_name(ledger: Ledger) -> str:
    return f"{ledger.ledger_id}.json"


def _closed_since(ledger: Ledger, known: set[str]) -> Iterator[MoveRecord]:
    """Yield the closed records that are not known; one that cannot be read is left to the next time."""
    fresh = ledger.list_closed_ids() - known
    if len(fresh) >= _MANY_RECORDS:
        yield from (record for record in ledger.list_records(statuses=sorted(s.CLOSED)) if record.record_id.lower() in fresh)
        return
    for record_id in sorted(fresh):
        with contextlib.suppress(NotFound, NotSupported):
            yield ledger.read_record(record_id).record
