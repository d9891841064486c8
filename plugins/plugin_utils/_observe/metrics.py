# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The metrics by name: the current state of the ledger, and the totals.

They are written in the text format of Prometheus (version 0.0.4), as the textfile collector of the node exporter reads it. Labels have few and fixed
values: no domain, host or record is a label.
"""

from __future__ import annotations

import datetime
import os
import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import FLEET_CHECK_KINDS
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._files import publish_file
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, Internal, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .._ledger.ledger import Ledger
from .._ledger.protection import protect_time, sort_protections
from .._ledger.sights import with_protect_times
from .._ledger.unreadable_hosts import STATE_UNKNOWN
from .checked_fleet import VERDICTS, CheckedFleet, read_check
from .damaged import damaged_lines
from .metrics_totals import Histogram, Totals

MOVE_STATUSES = (s.ACCEPTED, s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY, s.ERROR)
EVACUATION_STATUSES = (s.ACCEPTED, s.PRE_MIGRATING, s.DONE, s.ERROR)


@dataclass
class PresentState:
    """Times are Unix seconds, or None.

    :arg open_moves: by status; C(open_evacuations) likewise.
    :arg hosts: by state; C(unknown) for those whose document cannot be read.
    :arg never_protected: hosts that accept domains, and that no task has protected, or at a time in the future.
    :arg newest_protect: when any host was protected last.
    :arg oldest_protect: when the host that accepts domains and was protected longest ago was protected.
    :arg oldest_open: when the oldest unsettled record was opened.
    """

    open_moves: dict[str, int]
    open_evacuations: dict[str, int]
    hosts: dict[str, int]
    never_protected: int
    protected_domains: int
    newest_protect: float | None
    oldest_protect: float | None
    oldest_open: float | None


class MaintenanceState(t.NamedTuple):
    """C(open_runs): maintenance runs and drills that have not ended; C(findings): those that need a person."""

    open_runs: int
    findings: int


def read_open_records(ledger: Ledger) -> list[MoveRecord]:
    """Return the open records; this reads no closed ones."""
    return list(ledger.list_records(statuses=sorted(s.UNSETTLED | s.TOMBSTONE)))


def read_present(ledger: Ledger, open_records: list[MoveRecord]) -> PresentState:
    """Return the present state of the ledger. What was damaged, and not replaced since, is in its problems afterwards."""
    found, domains = ledger.read_hosts(), ledger.read_domains()
    for line in damaged_lines(ledger, domains.damaged):
        ledger.report_problem(line)
    hosts, states = with_protect_times(ledger, found.entries), [host.state for host in found.all_entries]
    in_service = sort_protections(hosts)
    newest, oldest = ([at.timestamp() for at in map(protect_time, some) if at] for some in ((host for host in hosts if not host.discarded), in_service.known))
    unsettled = [_parse_time(record.created_at) for record in open_records if record.is_unsettled]
    return PresentState(
        open_moves=_count_words(MOVE_STATUSES, (record.status for record in open_records if record.type in s.MOVE_TYPES)),
        open_evacuations=_count_words(EVACUATION_STATUSES, (record.status for record in open_records if record.type == s.EVACUATION)),
        hosts=_count_words((*s.HOST_STATES, STATE_UNKNOWN), states),
        never_protected=len(in_service.never) + len(in_service.ahead),
        protected_domains=sum(document.domain.is_protected for document in domains.documents),
        newest_protect=max(newest, default=None),
        oldest_protect=min(oldest, default=None),
        oldest_open=min((moment for moment in unsettled if moment is not None), default=None),
    )


def _count_words(words: t.Sequence[str], found: t.Iterable[str]) -> dict[str, int]:
    """Return the count of each of the words; no other word becomes a label."""
    counts = dict.fromkeys(words, 0)
    for word in found:
        if word in counts:
            counts[word] += 1
    return counts


def _parse_time(text: str | None) -> float | None:
    try:
        return datetime.datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return None


Labels = t.Mapping[str, str]
Sample = tuple[str, Labels, float]


@dataclass(frozen=True)
class MetricFamily:
    """One metric with its samples: suffix of the name, labels, value."""

    name: str
    kind: str
    help: str
    samples: list[Sample]

    def format_lines(self) -> t.Iterator[str]:
        """Yield its lines."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for suffix, labels, value in self.samples:
            yield f"{self.name}{suffix}{_format_labels(labels)} {_format_number(value)}"


def single_value(name: str, kind: str, text: str, value: float | None) -> MetricFamily:
    """Return a metric without labels; without a sample for None."""
    return MetricFamily(name, kind, text, [] if value is None else [("", {}, value)])


def values_by_label(name: str, kind: str, text: str, label: str, values: t.Mapping[str, float]) -> MetricFamily:
    """Return a metric with one sample for each value of its label."""
    return MetricFamily(name, kind, text, [("", {label: word}, value) for word, value in values.items()])


def histogram_of(name: str, text: str, values: Histogram) -> MetricFamily:
    """Return a histogram in seconds."""
    return MetricFamily(name, "histogram", text, _histogram_samples(values, {}))


def histograms_by_label(name: str, text: str, label: str, values: t.Mapping[str, Histogram]) -> MetricFamily:
    """Return a histogram in seconds for each value of its label."""
    return MetricFamily(name, "histogram", text, [sample for word, one in values.items() for sample in _histogram_samples(one, {label: word})])


def _histogram_samples(values: Histogram, labels: Labels) -> list[Sample]:
    total, samples = 0, list[Sample]()
    for bound, count in zip((*values.bounds_ms, None), values.counts, strict=True):
        total += count
        samples.append(("_bucket", {**labels, "le": "+Inf" if bound is None else _format_number(bound / 1000)}, total))
    return [*samples, ("_sum", labels, values.sum_ms / 1000), ("_count", labels, total)]


def format_metrics(families: t.Iterable[MetricFamily]) -> str:
    """Return the whole file."""
    return "".join(f"{line}\n" for family in families for line in family.format_lines())


def _format_labels(labels: Labels) -> str:
    # Their values are fixed words that need no escaping.
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


_NOT_PERMITTED = (PermissionError,)
_NO_SUCH_FOLDER = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


def check_textfile_path(path: str) -> str:
    """Return the absolute path. Raises L(InvalidArgument) unless the collector would read a file of that name."""
    if not path.endswith(".prom") or os.path.basename(path).startswith("."):
        raise InvalidArgument(f"The node exporter reads no file {path!r}.", "Give a path that ends in '.prom' and whose name does not begin with a dot.")
    return os.path.abspath(os.path.expanduser(path))


def read_textfile(path: str) -> str | None:
    """Return the previous content; None if the file does not exist or this user must not read it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def write_textfile(path: str, text: str, mode: int) -> None:
    """Replace the file. Raises L(Forbidden), L(InvalidArgument) or L(Internal), naming it."""
    try:
        publish_file(path, text.encode(), mode)
    except _NOT_PERMITTED as error:
        raise Forbidden(f"Failed to write {path}: {error.strerror}.", "Run this as a user who may write there, or give another path.") from error
    except _NO_SUCH_FOLDER as error:
        raise InvalidArgument(f"Failed to write {path}: {error.strerror}.", "Create the folder of the textfile collector, or give another path.") from error
    except OSError as error:
        raise Internal(f"Failed to write {path}: {error.strerror}.", "Free space or repair the file system. The old file is still there.") from error


def build_metrics(
    totals: Totals | None, present: PresentState, notices_waiting: int | None, ledger: Ledger, maintenance: MaintenanceState
) -> list[MetricFamily]:
    """Return all metrics except those of L(build_export_metrics).

    :arg totals: None leaves them out: no counter is better than one that falls.
    """
    return [
        *(_totals_metrics(totals) if totals else ()),
        *_present_metrics(present),
        single_value("kvmfleet_maintenance_open", "gauge", "Maintenance runs and drills that have not ended.", maintenance.open_runs),
        single_value("kvmfleet_maintenance_findings", "gauge", "Maintenance runs and drills that need a person.", maintenance.findings),
        *_check_metrics(read_check(ledger.ledger_id)),
        *_balance_metrics([document.balance_run for document in ledger.list_balance_runs()]),
        single_value("kvmfleet_notices_waiting", "gauge", "Notices on this control node that are not sent yet.", notices_waiting),
        single_value("kvmfleet_ledger_problems", "gauge", "Documents of the ledger that could not be read.", len(ledger.problems)),
    ]


def _totals_metrics(totals: Totals) -> list[MetricFamily]:
    return [
        values_by_label("kvmfleet_moves_total", "counter", "Live migrations that have ended.", "outcome", totals.moves),
        values_by_label("kvmfleet_moves_cancelled_total", "counter", "Live migrations that were cancelled, by reason.", "reason", totals.cancelled),
        values_by_label("kvmfleet_moves_completed_total", "counter", "Live migrations that were completed, by the mode they ended in.", "mode", totals.modes),
        single_value("kvmfleet_moves_forced_total", "counter", "Ended live migrations whose destination was forced on the scheduler.", totals.forced),
        single_value("kvmfleet_moves_transferred_bytes_total", "counter", "Bytes that ended live migrations have transferred.", totals.transferred_bytes),
        histogram_of("kvmfleet_move_duration_seconds", "Duration of completed live migrations.", totals.durations),
        histogram_of("kvmfleet_move_downtime_seconds", "Downtime of guests in completed live migrations.", totals.downtimes),
        values_by_label("kvmfleet_evacuations_total", "counter", "Evacuations of a domain that have ended, cleaned up or not.", "outcome", totals.evacuations),
        histograms_by_label("kvmfleet_evacuation_stage_seconds", "Stages of evacuations that have started their domain.", "stage", totals.evacuation_stages),
        histogram_of(
            "kvmfleet_evacuation_duration_seconds",
            "Time from the first to the last known moment of evacuations that have started their domain.",
            totals.evacuation_durations,
        ),
    ]


def _present_metrics(present: PresentState) -> list[MetricFamily]:
    return [
        values_by_label("kvmfleet_moves_open", "gauge", "Live migrations that have not ended, by status.", "status", present.open_moves),
        values_by_label(
            "kvmfleet_evacuations_open", "gauge", "Evacuations that have not ended, or wait for cleanup, by status.", "status", present.open_evacuations
        ),
        values_by_label("kvmfleet_hosts", "gauge", "Hosts in the ledger, by state.", "state", present.hosts),
        single_value("kvmfleet_hosts_never_protected", "gauge", "Hosts in the ledger that accept domains and were never protected.", present.never_protected),
        single_value("kvmfleet_protected_domains", "gauge", "Domains whose definition is saved for an evacuation.", present.protected_domains),
        single_value("kvmfleet_newest_protect_timestamp_seconds", "gauge", "When any host was protected last.", present.newest_protect),
        single_value(
            "kvmfleet_oldest_protect_timestamp_seconds", "gauge", "When the host that was protected longest ago was protected.", present.oldest_protect
        ),
        single_value("kvmfleet_oldest_open_record_timestamp_seconds", "gauge", "When the oldest unsettled record was opened.", present.oldest_open),
    ]


def _check_metrics(check: CheckedFleet | None) -> list[MetricFamily]:
    """Return the metrics of the last fleet check on this control node; without samples if there is none."""
    sets = _count_known(VERDICTS, check.sets) if check else {}
    findings = _count_known(FLEET_CHECK_KINDS, check.findings) if check else {}
    return [
        single_value("kvmfleet_fleet_check_timestamp_seconds", "gauge", "When the fleet was checked last.", _parse_time(check.at) if check else None),
        single_value("kvmfleet_fleet_check_met", "gauge", "Whether the last fleet check was met, 1 or 0.", int(check.met) if check else None),
        single_value("kvmfleet_fleet_check_hosts_lost", "gauge", "How many lost hosts the check is about.", check.hosts_lost if check else None),
        values_by_label("kvmfleet_fleet_check_sets", "gauge", "Sets of so many hosts, by the verdict whether they can be lost.", "verdict", sets),
        values_by_label("kvmfleet_fleet_check_findings", "gauge", "Findings of the last fleet check, by kind.", "kind", findings),
    ]


def _balance_metrics(runs: t.Sequence[BalanceRun]) -> list[MetricFamily]:
    """Return the metrics of the last balance runs; without samples if there are none."""
    last = runs[-1] if runs else None
    measured = next((run for run in reversed(runs) if run.measured), None)
    scores = {"before": last.score_before, "predicted": last.score_predicted} if last else {}
    gains: dict[str, float] = {}
    if measured and measured.measured:
        gains = {"predicted": measured.score_before - measured.score_predicted, "measured": measured.measured.gain}
    score = measured.measured.score if measured and measured.measured else None
    return [
        single_value("kvmfleet_balance_timestamp_seconds", "gauge", "When the last balance began.", _parse_time(last.created_at) if last else None),
        single_value("kvmfleet_balance_open", "gauge", "Balances that have not ended.", sum(run.is_open for run in runs)),
        values_by_label("kvmfleet_balance_score", "gauge", "The score of the last balance, before it and as predicted.", "at", scores),
        single_value("kvmfleet_balance_measured_score", "gauge", "The score that was measured an hour or more after a balance, the last one.", score),
        values_by_label("kvmfleet_balance_gain", "gauge", "What the last measured balance was predicted to bring, and what it brought.", "kind", gains),
    ]


def _count_known(words: t.Sequence[str], counts: t.Mapping[str, int]) -> dict[str, int]:
    return {word: counts.get(word, 0) for word in words}


def build_export_metrics(began: float) -> list[MetricFamily]:
    """Return the metrics of this export itself.

    :arg began: on the monotonic clock.
    """
    return [
        single_value("kvmfleet_export_timestamp_seconds", "gauge", "When these metrics were written.", round(time.time(), 3)),
        single_value("kvmfleet_export_duration_seconds", "gauge", "Time it took to gather these metrics.", round(time.monotonic() - began, 6)),
    ]
