# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A fleet check as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import printable_line

from .._scheduler.filters.base import names_text
from .._scheduler.losses import CAN, CANNOT, UNKNOWN
from .._scheduler.reach import Refusal
from .cpus import FleetCpu
from .verdict import FailedLoss, FleetVerdict, GuestsReach

_WORDS = {CAN: "can be lost", CANNOT: "cannot be lost", UNKNOWN: "not known whether it can be lost"}
# So many guests of a set are shown; the result has more.
_MOST_SHOWN = 5


def list_lines(verdict: FleetVerdict) -> list[str]:
    """Return the check line by line: the answer first, then what needs a person, and what it follows from."""
    lines = [
        _summary(verdict),
        *_section("NEEDS A PERSON", [finding.msg for finding in verdict.findings]),
        *_section("LOSS OF HOSTS", list(_loss_lines(verdict))),
        *_section("WHERE GUESTS CAN RUN", [line for one in verdict.guests for line in _reach_lines(one)]),
        *_section("CPU OF THE WHOLE FLEET", [line for cpu in verdict.cpus for line in _cpu_lines(cpu)]),
    ]
    return [printable_line(line) for line in lines]


def _summary(verdict: FleetVerdict) -> str:
    count = len(verdict.findings)
    person = f"{count} {_plural(count, 'finding')} for a person." if count else "Nothing needs a person."
    return f"{_loss_text(verdict)} {person}"


def _loss_text(verdict: FleetVerdict) -> str:
    """Return whether the fleet can lose every set of hosts that was asked for: C(cannot lose any host) would also mean that it can lose none."""
    more, named = verdict.hosts_lost - len(verdict.lost), " and ".join(verdict.lost)
    kind = ("other " if named else "") + ("host" if more == 1 else "hosts")
    others = f"any {kind}" if more == 1 else f"any {more} {kind}"
    what = " and ".join([*verdict.lost, others] if more else verdict.lost)
    if verdict.sets[CANNOT]:
        every = f"every {kind}" if more == 1 else f"every set of {more} {kind}"
        if not more:
            return f"{named} cannot be lost{' together' if len(verdict.lost) > 1 else ''}."
        return f"Not {every} can be lost{f' together with {named}' if named else ''}."
    return f"Whether the fleet can lose {what} is not known." if verdict.sets[UNKNOWN] else f"The fleet can lose {what}."


def _loss_lines(verdict: FleetVerdict) -> Iterator[str]:
    for word in (CAN, UNKNOWN, CANNOT):
        hosts = [host for host, one in verdict.hosts.items() if one.alone == word]
        if hosts:
            yield f"{_WORDS[word]} alone: {names_text(hosts)}"
    if verdict.hosts_lost > 1:
        counts = ", ".join(f"{count} {word}" for word, count in verdict.sets.items() if count)
        yield f"sets of {verdict.hosts_lost} hosts: {counts}"
    for loss in verdict.losses:
        yield from _failed_lines(loss)


def _failed_lines(loss: FailedLoss) -> Iterator[str]:
    if loss.reason:
        yield f"{loss.verdict}: {loss.reason}"
        return
    yield f"{' and '.join(loss.hosts)}: {loss.verdict}, {loss.missing_mib} MiB without a place"
    for guest in loss.guests[:_MOST_SHOWN]:
        yield f"  {guest.name} of {guest.host}, {guest.memory_mib} MiB: {_refusals_text(guest.refused)}"
    if len(loss.guests) > _MOST_SHOWN:
        yield f"  and {len(loss.guests) - _MOST_SHOWN} more"


def _refusals_text(refused: Sequence[Refusal]) -> str:
    return "; ".join(f"{names_text(one.hosts)}: {one.reason.rstrip('.')}" for one in refused) or "no host is left"


def _reach_lines(one: GuestsReach) -> Iterator[str]:
    blocked = "; ".join(f"blocked on {names_text(refusal.hosts)} by {', '.join(refusal.filters)}: {refusal.reason.rstrip('.')}" for refusal in one.refused)
    one_way = f". No way back from {names_text(one.one_way)}" if one.one_way else ""
    # A host on which all of them run can run them, whatever is not known of it.
    doubtful = [host for refusal in one.unsure for host in refusal.hosts if (host,) != one.on]
    unsure = f". Not certain on {names_text(doubtful)}: {_unsure_text(one.unsure)}" if doubtful else ""
    yield f"{names_text(one.guests)}: {len(one.hosts)} of {one.of} hosts{f'; {blocked}' if blocked else ''}{one_way}{unsure}"


def _unsure_text(unsure: Sequence[Refusal]) -> str:
    """Return the first reason. Many name their host, so that each host of a large fleet has its own."""
    return f"{'for example, ' if len(unsure) > 1 else ''}{unsure[0].reason.rstrip('.')}"


def _cpu_lines(cpu: FleetCpu) -> Iterator[str]:
    kind = f"{cpu.virt_type} guests ({cpu.arch})"
    if cpu.xml is None:
        yield f"{kind}: not known. {cpu.problem}"
        return
    yield f"{kind}: {cpu.model or 'a CPU without a model'}, computed by {cpu.computed_by} for {names_text(cpu.hosts)}"
    for one in cpu.exceeded_by:
        yield f"  exceeded by {names_text(one.guests)}: {names_text(one.features)}"
    if cpu.unknown:
        yield f"  not included, because libvirt does not describe their CPU: {names_text(cpu.unknown)}"


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [title, *(f"  {line}" for line in lines)] if lines else []


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"
