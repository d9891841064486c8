# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The verdict of a fleet check: which hosts can be lost, where each guest can run, and what needs a person."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.fleet_cpus import FleetAnswers

from .._scheduler.filters.base import names_text, one_or_many
from .._scheduler.fleet_guests import FleetGuests
from .._scheduler.loss_rules import make_loss_rules
from .._scheduler.losses import CAN, CANNOT, VERDICTS, Loss, LossSearch, UnplacedGuest, worst_verdict
from .._scheduler.reach import Reach, Refusal, find_reach
from .cpus import FleetCpu, describe_cpus, read_comparisons
from .differences import CAPACITY, CPU, REACH, SILENT, Finding, find_network_differences

# So many sets of hosts are explained, the worst first, and so many guests of each.
MOST_LOSSES = 10
MOST_GUESTS = 50


@dataclass(frozen=True)
class LossQuestion:
    """Which sets of hosts are judged.

    :arg hosts_lost: how many hosts are lost at the same time.
    :arg lost: hosts that are in each set. If it is empty, all sets are judged, and everything else as well.
    """

    hosts_lost: int
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class HomelessGuest:
    """A guest that has no place after the loss of its host."""

    name: str
    uuid: str
    host: str
    memory_mib: int
    refused: tuple[Refusal, ...]


@dataclass(frozen=True)
class FailedLoss:
    """Hosts that the fleet cannot lose at the same time, or not for certain.

    :arg missing_mib: how much memory is missing.
    :arg reason: why that is not known.
    :arg guests: without a place, at most L(MOST_GUESTS) unless the hosts were named.
    """

    hosts: tuple[str, ...]
    verdict: str
    missing_mib: int
    reason: str
    guests: tuple[HomelessGuest, ...]


@dataclass(frozen=True)
class HostVerdict:
    """Whether a host can be lost.

    :arg alone: if all others stay.
    :arg with_others: the worst verdict on all sets of C(hosts_lost) hosts that include this one.
    """

    alone: str
    with_others: str


@dataclass(frozen=True)
class GuestsReach:
    """Where guests with equal requirements can run; see L(Reach)."""

    guests: tuple[str, ...]
    on: tuple[str, ...]
    hosts: tuple[str, ...]
    of: int
    one_way: tuple[str, ...]
    refused: tuple[Refusal, ...]
    unsure: tuple[Refusal, ...]


@dataclass(frozen=True)
class FleetVerdict:
    """The verdict.

    :arg met: whether every set of C(hosts_lost) hosts can be lost, and nothing else that is not ignored needs a person.
    :arg lost: hosts that are in each of these sets.
    :arg sets: the number of sets of C(hosts_lost) hosts by verdict.
    """

    met: bool
    hosts_lost: int
    lost: tuple[str, ...]
    sets: Mapping[str, int]
    hosts: Mapping[str, HostVerdict]
    losses: tuple[FailedLoss, ...]
    guests: tuple[GuestsReach, ...]
    cpus: tuple[FleetCpu, ...]
    findings: tuple[Finding, ...]


def judge_fleet(
    view: FleetGuests,
    question: LossQuestion,
    answers: Mapping[str, FleetAnswers],
    silent: Sequence[Finding] = (),
    others: Sequence[Finding] = (),
    ignored: Iterable[str] = (),
) -> FleetVerdict:
    """Return the verdict.

    :arg answers: of the hosts, about CPUs.
    :arg silent: findings about hosts that were not asked, or did not answer all that they were asked. They are about any loss.
    :arg others: findings that do not follow from the fleet itself.
    :arg ignored: kinds of findings that are reported and do not count.
    """
    known = view.with_comparisons(read_comparisons(view, answers))
    search = LossSearch(known.fleet, known.guests, make_loss_rules(known.seen), known.uncertain)
    together = search.judge_all(question.hosts_lost, question.lost)
    alone = together if question.hosts_lost == 1 else [] if question.lost else search.judge_all(1)
    reach = [] if question.lost else find_reach(known.requests, known.fleet)
    cpus = [] if question.lost else describe_cpus(known, answers)
    findings = [*_find_silent(known), *silent, *_find_capacity(together, question.hosts_lost)]
    if not question.lost:
        findings += [*_find_bound(reach, known), *_find_cpus(cpus), *find_network_differences(known), *others]
    counts = collections.Counter(loss.verdict for loss in together)
    return FleetVerdict(
        met=all(finding.kind in set(ignored) for finding in findings),
        hosts_lost=question.hosts_lost,
        lost=question.lost,
        sets={verdict: counts[verdict] for verdict in VERDICTS},
        hosts=_judge_hosts(alone, together),
        losses=tuple(_describe_losses(search, alone, together, None if question.lost else MOST_GUESTS)),
        guests=tuple(_describe_reach(one, known) for one in reach),
        cpus=tuple(cpus),
        findings=tuple(findings),
    )


def _judge_hosts(alone: Iterable[Loss], together: Sequence[Loss]) -> dict[str, HostVerdict]:
    members: dict[str, list[str]] = {}
    for loss in together:
        for host in loss.hosts:
            members.setdefault(host, []).append(loss.verdict)
    return {loss.hosts[0]: HostVerdict(loss.verdict, worst_verdict(members.get(loss.hosts[0], ()))) for loss in alone}


def _describe_losses(search: LossSearch, alone: Sequence[Loss], together: Sequence[Loss], most_guests: int | None) -> Iterator[FailedLoss]:
    """Yield the worst losses with their guests: single hosts first, then sets of hosts that can all be lost alone.

    :arg most_guests: of each loss; None for all, from which a person chooses those that may be lost.
    """
    failed_alone = {loss.hosts[0] for loss in alone if loss.verdict != CAN}
    sets = [loss for loss in together if loss.verdict != CAN and len(loss.hosts) > 1 and not failed_alone.intersection(loss.hosts)]
    for loss in [*_worst_first(loss for loss in alone if loss.verdict != CAN), *_worst_first(sets)][:MOST_LOSSES]:
        guests = tuple(_describe_guest(guest) for guest in search.explain(loss)[:most_guests])
        yield FailedLoss(loss.hosts, loss.verdict, loss.missing_mib, loss.reason, guests)


def _worst_first(losses: Iterable[Loss]) -> list[Loss]:
    return sorted(losses, key=lambda loss: (-VERDICTS.index(loss.verdict), -loss.missing_mib, loss.hosts))


def _describe_guest(guest: UnplacedGuest) -> HomelessGuest:
    request = guest.request
    return HomelessGuest(request.name, request.uuid, request.source, request.memory_mib, guest.refused)


def _describe_reach(reach: Reach, view: FleetGuests) -> GuestsReach:
    names, on = tuple(request.name for request in reach.guests), tuple(sorted({request.source for request in reach.guests}))
    answered = sum(state.unanswered is None for state in view.fleet.states.values())
    return GuestsReach(names, on, reach.hosts, answered, reach.one_way, reach.refused, reach.unsure)


def _find_silent(view: FleetGuests) -> Iterator[Finding]:
    for host, why in view.silent.items():
        yield Finding(SILENT, (host,), f"{host} did not answer: {why.rstrip(' .:')}.")
    for host, why in view.uncertain.items():
        if host not in view.silent:
            yield Finding(SILENT, (host,), f"{host}: {why}")


def _find_capacity(together: Sequence[Loss], hosts_lost: int) -> Iterator[Finding]:
    failed = [loss for loss in together if loss.verdict != CAN]
    if not failed:
        return
    certain = sum(loss.verdict == CANNOT for loss in failed)
    worst = _worst_first(failed)[0]
    what = "host" if hosts_lost == 1 else f"set of {hosts_lost} hosts"
    many = "hosts" if hosts_lost == 1 else f"sets of {hosts_lost} hosts"
    hosts = tuple(sorted({host for loss in failed for host in loss.hosts}))
    of = f"of {len(together)} {one_or_many(len(together), what, many)}"
    parts = [f"None {of} can be lost." if certain == len(together) > 1 else f"{certain} {of} cannot be lost."] if certain else []
    unknown = len(failed) - certain
    parts += [f"It is not known of {unknown} {of} whether {one_or_many(unknown, 'it', 'they')} can be lost."] if unknown else []
    parts += [f"The worst is {' and '.join(worst.hosts)}: {worst.missing_mib} MiB have no place."] if worst.missing_mib else []
    yield Finding(CAPACITY, hosts, " ".join(parts))


def _find_bound(reach: Iterable[Reach], view: FleetGuests) -> Iterator[Finding]:
    answered = [name for name, state in view.fleet.states.items() if state.unanswered is None]
    for one in reach:
        bound = [request for request in one.guests if not set(one.hosts) - {request.source}]
        if bound and len(answered) > 1:
            why = one.refused[0].reason if one.refused else "no other host answered."
            names, hosts = names_text([request.name for request in bound]), tuple(sorted({request.source for request in bound}))
            verb = one_or_many(len(bound), "has", "have")
            yield Finding(REACH, hosts, f"{names}: no host but its own can run {one_or_many(len(bound), 'it', 'them')}, which {verb} no way out. {why}")


def _find_cpus(cpus: Iterable[FleetCpu]) -> Iterator[Finding]:
    for cpu in cpus:
        for one in cpu.exceeded_by:
            uses = one_or_many(len(one.guests), "uses", "use")
            yield Finding(CPU, (), f"{names_text(one.guests)} {uses} CPU features that not all hosts have: {names_text(one.features)}.")
        if cpu.problem and len(cpu.hosts) > 1:
            yield Finding(CPU, cpu.hosts, f"The hosts have no CPU for {cpu.virt_type} guests ({cpu.arch}) in common: {cpu.problem}")
