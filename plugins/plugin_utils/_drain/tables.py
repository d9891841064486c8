# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The result of a drain by host; plan and result as lines of text for a terminal."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, Json, Maybe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import printable_line
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import OFFLINE, SAVE, SHUTDOWN
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import KINDS, NameChange

from .._settings.parallel import AUTO
from .plan_entries import NPlusOne, PlannedColdMove, PlannedMove, PlannedShutdown, Rejection, SkippedDomain, UnplacedDomain, find_active_uuids
from .reserve import reserve_lines
from .saved_plan import DrainPlan


@dataclass(frozen=True)
class HostShare:
    """The part of a plan that is about one host."""

    moves: tuple[PlannedMove, ...]
    shutdowns: tuple[PlannedShutdown, ...]
    unplaced: tuple[UnplacedDomain, ...]
    skipped: tuple[SkippedDomain, ...]
    created_at: str
    predicted_seconds: float
    predicted_range: t.Union[tuple[float, ...], Absent] = ABSENT
    cold_moves: t.Union[tuple[PlannedColdMove, ...], Absent] = ABSENT

    @property
    def active_uuids(self) -> set[str]:
        """The UUIDs of the domains that were active when the plan was made."""
        return find_active_uuids((self.moves, self.shutdowns, self.unplaced), self.cold_moves or (), self.skipped)


@dataclass(frozen=True)
class DomainOutcome:
    """The result of one domain.

    :arg status: of its record, C(not started), C(refused), C(shut down), C(not shut down), C(unplaced) or C(unknown).
    :arg error: why the domain is not where the plan puts it; null if it is.
    :arg method: how a domain moved that did not move live: C(save), C(shutdown) or C(offline).
    """

    name: str
    uuid: str
    status: str
    destination: Maybe[str] = ABSENT
    predicted_seconds: t.Union[float, Absent] = ABSENT
    predicted_range: t.Union[tuple[float, ...], Absent] = ABSENT
    actual_seconds: Maybe[float] = ABSENT
    downtime_ms: Maybe[int] = ABSENT
    error: t.Union[str, Absent] = ABSENT
    method: t.Union[str, Absent] = ABSENT


@dataclass(frozen=True)
class LeftDomain:
    """A domain that the plan leaves where it is, and why."""

    name: str
    uuid: str
    reason: str


@dataclass(frozen=True)
class HostDrain:
    """The result of a drain on one host.

    :arg blockers: why the host may not be rebooted.
    :arg problems: failures that are not about one domain.
    :arg actual_seconds: from the beginning of the first move to the end of the last one.
    :arg empty: whether no domain is left on the host, not even a definition of one that is off.
    :arg verified_at: when this was found out.
    """

    plan: HostShare
    moved: tuple[DomainOutcome, ...]
    shut_down: tuple[DomainOutcome, ...]
    failed: tuple[DomainOutcome, ...]
    skipped: tuple[LeftDomain, ...]
    safe_to_reboot: bool
    blockers: tuple[str, ...]
    problems: tuple[str, ...]
    predicted_seconds: float
    actual_seconds: float
    predicted_range: t.Union[tuple[float, ...], Absent] = ABSENT
    empty: t.Union[bool, Absent] = ABSENT
    verified_at: t.Union[str, Absent] = ABSENT


# From this number of hosts on, the text groups the hosts that were not chosen although figures in their reasons differ.
MANY_HOSTS = 12
_FIGURE = re.compile(r"\b[0-9]+(?:\.[0-9]+)?\b")


def summarize_rejections(rejected: Sequence[Rejection]) -> list[tuple[str, str]]:
    """Return C((hosts, reason)) pairs, one for each reason; of many hosts, figures do not count as a difference. The plan itself names each host."""
    is_many = len(rejected) >= MANY_HOSTS
    groups: dict[str, list[Rejection]] = {}
    for entry in rejected:
        groups.setdefault(_FIGURE.sub("…", entry.reason) if is_many else entry.reason, []).append(entry)
    return [(_hosts_text(group, is_many), _shared_reason(group, reason)) for reason, group in groups.items()]


def _hosts_text(group: Sequence[Rejection], is_many: bool) -> str:
    return f"{group[0].host} and {len(group) - 1} more" if is_many and len(group) > 1 else ", ".join(entry.host for entry in group)


def _shared_reason(group: Sequence[Rejection], without_figures: str) -> str:
    reasons = {entry.reason for entry in group}
    return reasons.pop() if len(reasons) == 1 else without_figures


def group_lines(prefix: str, entries: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each text, with the names of all domains that it is about.

    :arg entries: C((name, text)) pairs.
    """
    names: dict[str, list[str]] = {}
    for name, text in entries:
        names.setdefault(text, []).append(name)
    return [f"{prefix}{', '.join(own)}{text}" for text, own in names.items()]


def plan_lines(plan: DrainPlan) -> list[str]:
    """Return the plan: the order of the moves, the destination of each domain with its reason, what is shut down, what stays, and which losses are possible."""
    rows = [_move_row(move) for move in plan.moves]
    titles, nothing = ["", "DOMAIN", "MEMORY", "FROM", "TO", "PREDICTED", "DOWNTIME", "WHY"], [] if plan.cold_moves else ["Nothing to move."]
    lines = align_columns(titles, rows) if rows else nothing
    lines += [_cold_line(move) for move in plan.cold_moves or ()]
    refused = [(move.name, f" not to {hosts}: {reason}") for move in plan.all_moves for hosts, reason in summarize_rejections(move.rejected)]
    lines += group_lines("  ", refused)
    lines += note_lines(plan)
    lines += group_lines("STOPS  ", ((entry.name, f" on {entry.source}: {entry.reason}") for entry in plan.shutdowns))
    lines += group_lines("STAYS  ", ((entry.name, f" on {entry.source}: {entry.reason}") for entry in plan.unplaced))
    lines += group_lines("LEFT   ", ((entry.name, f" on {entry.source}: {entry.reason}") for entry in plan.skipped))
    lines += [source_line(source, plan) for source in plan.predicted_seconds if rows]
    lines += [_n_plus_one_line(plan.n_plus_one)] if plan.n_plus_one else []
    lines += reserve_lines(plan.reserve)
    return [printable_line(line) for line in lines]


def note_lines(plan: DrainPlan) -> list[str]:
    """Return the warnings of the moves, and what the names of guests are at their destinations."""
    lines = [f"WARN   {move.name} to {move.destination}: {warning}" for move in plan.all_moves for warning in move.warnings]
    return lines + [f"NAMES  {move.name} on {move.destination}: {_names_text(move.rewritten)}" for move in plan.all_moves if move.rewritten]


# A guest may be pinned to many CPUs; the plan itself has all names.
_SHOWN_NAMES = 3


def _names_text(changes: Sequence[NameChange]) -> str:
    """Return what the names of a guest are at its destination, e.g. C(bridge br0 → br7)."""
    by_kind: dict[str, list[str]] = {}
    for change in changes:
        by_kind.setdefault(change.kind, []).append(f"{change.before} → {change.after}")
    return "; ".join(f"{_kind_text(kind)} {', '.join(names[:_SHOWN_NAMES])}{_more_text(names)}" for kind, names in by_kind.items())


def _kind_text(kind: str) -> str:
    return KINDS[kind].label if kind in KINDS else kind


def _more_text(names: Sequence[str]) -> str:
    return f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""


# What happens to a domain that does not move live, by method; the second form is for one that is not started at the destination.
_COLD_TEXTS = {SAVE: ("SAVES ", "restores it", ""), SHUTDOWN: ("STOPS ", "starts it", "defines it"), OFFLINE: ("MOVES ", "starts it", "defines it")}


def _cold_line(move: PlannedColdMove) -> str:
    verb, started, defined = _COLD_TEXTS[move.method]
    return f"{verb} {move.name} on {move.source}, {started if move.start else defined} on {move.destination}: {move.reason}"


def source_line(source: str, plan: DrainPlan) -> str:
    """Return how long the moves of a source take."""
    span = (plan.predicted_ranges or {}).get(source, ABSENT)
    return f"{source}: about {span_text(plan.predicted_seconds[source], span)}, {_window_text(plan.options.parallel)}."


def _window_text(parallel: Json) -> str:
    return "as many at a time as the link carries" if parallel == AUTO else f"{parallel} at a time"


def _move_row(move: PlannedMove) -> list[str]:
    seconds, downtime = span_text(move.predicted_seconds, move.predicted_range), downtime_text(move.predicted_downtime_ms)
    return [str(move.order), move.name, f"{move.memory_mib} MiB", move.source, move.destination, seconds, downtime, move.reason]


def _n_plus_one_line(spare: NPlusOne) -> str:
    if spare.holds:
        return "N+1 holds: the remaining hosts could lose any one of them and still place its domains."
    domains = ", ".join(spare.domains)
    others = [host for host in spare.hosts if host != spare.host]
    more = f" The same goes for {', '.join(others)}." if others else ""
    return f"N+1 does NOT hold: if {spare.host} were lost, {spare.missing_mib} MiB would be missing for {domains}.{more}"


def result_lines(result: Mapping[str, HostDrain]) -> list[str]:
    """Return the moves, the failures with their reasons, and the verdict of each host."""
    rows = [outcome_row(host, entry) for host, share in result.items() for entry in [*share.moved, *share.shut_down, *share.failed]]
    lines = align_columns(["DOMAIN", "FROM", "TO", "STATUS", "PREDICTED", "ACTUAL", "DOWNTIME"], rows) if rows else ["Nothing was moved."]
    for host, share in result.items():
        lines += group_lines("FAILED ", ((entry.name, f" on {host}: {entry.error}") for entry in share.failed))
        lines += [f"FAILED {host}: {problem}" for problem in share.problems]
        lines += group_lines("LEFT   ", ((entry.name, f" on {host}: {entry.reason}") for entry in share.skipped))
        lines.append(f"{host}: {_counts_text(share)}. {_reboot_text(share)}")
    return [printable_line(line) for line in lines]


def outcome_row(host: str, entry: DomainOutcome) -> list[str]:
    """Return the columns of a domain in the result; C(host) is its source."""
    times = [span_text(entry.predicted_seconds, entry.predicted_range), _seconds_text(entry.actual_seconds), downtime_text(entry.downtime_ms)]
    return [entry.name, host, entry.destination or "-", entry.status, *times]


def _counts_text(share: HostDrain) -> str:
    stopped = f", {len(share.shut_down)} shut down" if share.shut_down else ""
    return f"{len(share.moved)} moved{stopped}, {len(share.failed)} failed, {len(share.skipped)} left as they were"


def _reboot_text(share: HostDrain) -> str:
    empty = " Nothing is left on it." if share.empty else ""
    return f"Safe to reboot.{empty}" if share.safe_to_reboot else " ".join(["NOT safe to reboot:", *share.blockers])


def align_columns(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows under their titles, each column as wide as its widest text."""
    table = [list(titles), *([printable_line(text) for text in row] for row in rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(titles))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table]


def _seconds_text(seconds: Maybe[float]) -> str:
    return "-" if seconds is None or seconds is ABSENT else f"{seconds} s"


def span_text(seconds: Maybe[float], span: t.Union[tuple[float, ...], Absent]) -> str:
    """Return a predicted time with its range, e.g. C(6.2 s (4.4 to 8.8))."""
    return f"{_seconds_text(seconds)} ({span[0]} to {span[-1]})" if span else _seconds_text(seconds)


def downtime_text(milliseconds: Maybe[int]) -> str:
    """Return the pause of a guest; a dash if it is not known."""
    return "-" if milliseconds is None or milliseconds is ABSENT else f"{milliseconds} ms"
