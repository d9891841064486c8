# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Prepares hosts for the plan of their drain: cordons them, and determines which hosts have to be queried again."""

from __future__ import annotations

import contextlib
import datetime
import typing as t
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import clock, domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, Json, JsonObject, Maybe, ShapeError, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, InvalidArgument, KvmfleetError, Unreachable, printable_line
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts, HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED, FENCED, MAINTENANCE

from .._ledger.documents import HostEntry
from .._ledger.host_entries import HostIdentity, find_entry_by_name, make_entry, update_entry
from .._ledger.ledger import Ledger
from .._ledger.query import Conditions, read_records
from .._settings.variables import age_seconds, read_facts
from .strategy_options import GivenStrategies, StrategyOptions

MOVABLE = (domain_states.RUNNING, domain_states.PAUSED)


def is_leaving(domain: DomainFacts) -> bool:
    """Whether an outgoing migration of the domain is in progress, post-copy included."""
    in_post_copy = domain.state == domain_states.PAUSED and domain.reason in (domain_states.POST_COPY, domain_states.POST_COPY_FAILED)
    return domain.active and (domain.job == domain_states.JOB_OUTGOING or in_post_copy)


def is_arriving(domain: DomainFacts) -> bool:
    """Whether the domain is an incoming domain of the host."""
    return domain.active and domain.job == domain_states.JOB_INCOMING


def local_disks(needs: DomainRequest) -> dict[str, int]:
    """Return the bytes of each disk, by target, that the domain writes to and that is on storage of its host alone; 0 if the size is not known."""
    return {disk.target: disk.bytes or 0 for disk in needs.disks or () if disk.shared is False and not disk.readonly and disk.source}


def parse_timestamp(stamp: str) -> datetime.datetime:
    """Return the point in time of a record's RFC 3339 stamp."""
    return datetime.datetime.fromisoformat(stamp)


_CLOCKS_DIFFER_SECONDS = 60
# Facts that this control node received longer ago are gathered again.
MAX_AGE_SECONDS = 60
# Gathering the facts of a large fleet takes longer than that. The first ones must not be out of date for this reason: they would be gathered one by one.
SECONDS_FOR_EACH_HOST = 0.3
LONGEST_AGE_SECONDS = 300

FactsOf = Callable[[str], JsonObject | None]


@contextlib.contextmanager
def readable_facts() -> Iterator[None]:
    """Make L(InvalidArgument) from the errors of code that reads facts in another form, from a cache or another version."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"The facts, entries or records do not have the expected form ({type(error).__name__}: {error}).", "Run host_facts again. Nothing was moved."
        ) from error


@dataclass(frozen=True)
class TaskResult:
    """What a task of a role has returned on one host, or for one item of its loop.

    :arg item: of the loop.
    """

    changed: t.Union[bool, Absent] = ABSENT
    failed: t.Union[bool, Absent] = ABSENT
    unreachable: t.Union[bool, Absent] = ABSENT
    skipped: t.Union[bool, Absent] = ABSENT
    msg: t.Union[Json, Absent] = ABSENT
    item: t.Union[Json, Absent] = ABSENT
    extra: JsonObject = field(default_factory=dict)

    @property
    def has_failed(self) -> bool:
        """Whether the task failed, or did not reach its host."""
        return bool(self.failed or self.unreachable)

    @property
    def message(self) -> str:
        """The message of the task; empty if it has none."""
        return str(self.msg or "")


@dataclass(frozen=True)
class GatheredFacts:
    """The facts that C(host_facts) returns."""

    kvmfleet_host: Maybe[JsonObject] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class HostQuery(TaskResult):
    """What C(host_facts) has returned for the host C(item) of a loop."""

    NEEDED: t.ClassVar[tuple[str, ...]] = ("item",)

    ansible_facts: Maybe[GatheredFacts] = ABSENT

    @property
    def facts(self) -> JsonObject | None:
        """C(kvmfleet_host) of the host; None if it did not answer."""
        return (self.ansible_facts.kvmfleet_host or None) if self.ansible_facts else None


def read_answers(queries: Iterable[HostQuery]) -> dict[str, JsonObject | None]:
    """Return C(kvmfleet_host) of each host that a loop of C(host_facts) has queried; None for a host that did not answer.

    Ansible keeps no facts at all of a loop with an unreachable host, so that the results are needed. A host on which domains were still arriving at the end of
    the wait has failed, but has answered.
    """
    return {str(query.item): query.facts for query in queries if not query.skipped}


def read_silence(queries: Iterable[HostQuery]) -> dict[str, str]:
    """Return why hosts did not answer, by name."""
    return {str(query.item): query.message or "It did not answer." for query in queries if not query.skipped and query.facts is None}


def check_answered(sources: Iterable[str], silence: Mapping[str, str]) -> None:
    """Raise L(Unreachable) for a host to be drained that did not answer."""
    for source in sources:
        if source in silence:
            raise Unreachable(f"{source} could not be queried for its domains: {silence[source].rstrip('.')}.", "Nothing was moved.")


def check_rights(hosts: Iterable[str], facts: Mapping[str, HostFacts | None]) -> None:
    """Raise L(Forbidden) for a host that was queried by a user who is not root there, and who can therefore not act on it."""
    for host in hosts:
        if (known := facts.get(host)) and not known.is_read_by_root:
            raise Forbidden(f"{host} was queried without root, and only root can act on it.", "Set become: true, or connect as root. Nothing was changed.")


def collect_facts(names: Iterable[str], facts_of: FactsOf, answers: Mapping[str, JsonObject | None]) -> dict[str, JsonObject]:
    """Return the facts of the hosts that have any: their answers, else the known facts."""
    found = {name: answers[name] if name in answers else facts_of(name) for name in names}
    return {name: facts for name, facts in found.items() if facts}


def max_age_seconds(hosts: int) -> float:
    """Return how old facts may be that were gathered for this drain, from so many hosts.

    The ledger has the moves since then (L(is_settled)), and a destination is verified again before it is reserved.
    """
    return min(max(MAX_AGE_SECONDS, SECONDS_FOR_EACH_HOST * hosts), LONGEST_AGE_SECONDS)


def fresh_hosts(
    names: Iterable[str], facts_of: FactsOf, moves: Sequence[MoveRecord], undisputed_by: Collection[str] = (), max_age: float = MAX_AGE_SECONDS
) -> set[str]:
    """Return the hosts whose facts are still valid.

    Root has read them, they were received within C(max_age) seconds, agree with the results of the moves and evacuations in the ledger, and claim no domain
    that one of the hosts in C(undisputed_by) claims.
    """
    claimed = {uuid for name in undisputed_by if (facts := facts_of(name)) for uuid in active_uuids(read_facts(facts))}
    recent = {name: read_facts(facts) for name in names if (facts := facts_of(name)) and _is_recent(facts, max_age)}
    recent = {name: facts for name, facts in recent.items() if facts.is_read_by_root}
    return {name for name, facts in recent.items() if not active_uuids(facts) & claimed and is_settled(name, facts, moves)}


def is_settled(name: str, facts: HostFacts, moves: Sequence[MoveRecord]) -> bool:
    """Whether no domain is moving to or from the host, and the facts agree with the result of the newest record of each domain."""
    if any(map(is_arriving, facts.domains or ())) or any(move.is_unsettled and _names_host(move, name, facts) for move in moves):
        return False
    ended = sorted((move for move in moves if move.status in (s.COMPLETED, s.DONE)), key=lambda move: move.generation)
    newest = {move.domain.uuid: move for move in ended}
    active = active_uuids(facts)
    return all((uuid in active) == _is_host(move.destination, name, facts) for uuid, move in newest.items() if _names_host(move, name, facts))


def active_uuids(facts: HostFacts) -> set[str]:
    """Return the UUIDs of the domains that are active on the host."""
    return {domain.uuid for domain in facts.domains or () if domain.active}


def _is_recent(facts: JsonObject, max_age: float) -> bool:
    age = age_seconds(facts)
    return age is not None and age <= max_age


def _names_host(record: MoveRecord, name: str, facts: HostFacts) -> bool:
    return any(_is_host(end, name, facts) for end in record.ends)


def _is_host(end: HostRef, name: str, facts: HostFacts) -> bool:
    return end.host == name or end.is_same(facts.host)


CORDON_REASON = "It is being drained"


@dataclass(frozen=True)
class HostStatus:
    """State and reason of a host's entry in the ledger; a host without an entry is enabled."""

    state: str
    reason: t.Optional[str]

    @classmethod
    def from_entry(cls, entry: HostEntry | None) -> HostStatus:
        """Return the status in an entry."""
        return cls(entry.state, entry.reason or None) if entry else cls(ENABLED, None)

    def with_cordon(self, reason: str | None) -> HostStatus:
        """Return the status for the time of a drain: a fenced host stays fenced, and an existing reason stays if none is given."""
        closed = self.state in (MAINTENANCE, FENCED)
        return HostStatus(FENCED if self.state == FENCED else MAINTENANCE, reason or (None if closed else CORDON_REASON))


@dataclass(frozen=True)
class Cordon:
    """The cordon of a host for a drain.

    :arg before: the status that the host had.
    :arg after: the status that it has had since.
    :arg by: who had written the status last when it was cordoned; C(drained_by) is who has cordoned it.
    """

    before: HostStatus
    after: HostStatus
    by: t.Optional[str]
    drained_by: t.Optional[str]

    @classmethod
    def from_entries(cls, before: HostEntry | None, after: HostEntry) -> Cordon:
        """Return the cordon by which the entry became another one."""
        return cls(HostStatus.from_entry(before), HostStatus.from_entry(after), after.by or None, after.drained_by or None)

    def undo(self, entry: HostEntry, by: str) -> HostEntry:
        """Return the entry with the status of before; the same entry if somebody has changed it since the cordon, or if a person has discarded the host."""
        writers = (entry.by or None, entry.drained_by or None)
        is_own = HostStatus.from_entry(entry) == self.after and writers == (self.by, self.drained_by) and not entry.discarded
        if not is_own or self.before == self.after:
            return entry
        return make_entry(entry, HostIdentity(entry.name, None, None, None), self.before.state, self.before.reason or "", by)


def restore_hosts(ledger: Ledger, cordons: Mapping[str, Cordon], by: str) -> list[str]:
    """Restore the status that hosts had before they were cordoned. Return a sentence for each host that does not get it back.

    What others have written since then stays: a host that died during the drain, and was evacuated, is fenced.
    """
    return [note for name, cordon in cordons.items() if (note := _restore_host(ledger, name, cordon, by))]


def _restore_host(ledger: Ledger, name: str, cordon: Cordon, by: str) -> str:
    try:
        entry = update_entry(ledger, lambda: find_entry_by_name(ledger, name), lambda found: cordon.undo(t.cast(HostEntry, found), by))
    except KvmfleetError as error:
        return f"{name} may still be {cordon.after.state} in the ledger, and was {cordon.before.state} before this drain: {error.message}"
    status = HostStatus.from_entry(entry)
    if status == cordon.before:
        return ""
    reason = f" ({status.reason})" if status.reason else ""
    return f"{name} stays {status.state} in the ledger{reason}: {_name_changer(entry, cordon)} has changed its entry since this drain cordoned it."


def _name_changer(entry: HostEntry, cordon: Cordon) -> str:
    """Return who has changed the entry since the cordon."""
    is_drained_again = (entry.by or None) == cordon.by and not entry.discarded
    return (entry.drained_by if is_drained_again else entry.by) or "somebody"


# Ended moves are read from further back than facts can be fresh, because another control node with another clock may have written them.
ENDED_SECONDS = 10 * MAX_AGE_SECONDS


@dataclass(frozen=True)
class _PreparationWork:
    """The request of the role, see L(PreparationRequest)."""

    play: Maybe[tuple[Json, ...]] = ABSENT
    candidates: Maybe[tuple[Json, ...]] = ABSENT
    just_asked: Maybe[bool] = ABSENT
    measure: Maybe[bool] = ABSENT
    strategies: Maybe[GivenStrategies] = ABSENT


@dataclass(frozen=True)
class PreparationRequest:
    """The input of the role for its drain on one host.

    :arg play: the hosts that are drained together.
    :arg just_asked: whether the facts of these hosts were gathered for this drain. Others may be older than a change of a policy.
    :arg measure: whether dirty rates are to be measured, for which a host to be drained has to be queried unless its facts have them.
    :arg strategies: the options of the drain about strategies.
    """

    host: str
    play: tuple[str, ...]
    candidates: tuple[str, ...]
    just_asked: bool = False
    measure: bool = False
    strategies: StrategyOptions = field(default_factory=StrategyOptions)

    @classmethod
    def from_work(cls, host: str, given: JsonObject) -> PreparationRequest:
        """Return the request of the role. Raises L(InvalidArgument) for an invalid one, and for invalid options of the drain about strategies."""
        try:
            work = decode(_PreparationWork, given, "_work.drain")
        except ShapeError as error:
            raise InvalidArgument(
                f"'{error.path}' must be {error.expected}.", "Only the roles of this collection may set _work. Nothing was changed."
            ) from error
        strategies = StrategyOptions.from_given(work.strategies or GivenStrategies())
        play, candidates = (tuple(map(str, names or ())) for names in (work.play, work.candidates))
        return cls(host, play, candidates, bool(work.just_asked), bool(work.measure), strategies)


@dataclass(frozen=True)
class Arrival:
    """A move to the host that is not settled. C(name) can be printed."""

    uuid: str
    name: str
    source: str


@dataclass(frozen=True)
class HostPreparation:
    """The hosts that the tasks of the drain have to query, and the moves to the host.

    :arg ask: the host itself, if its facts are out of date.
    :arg ask_for_all: candidates without usable facts. One host of the play queries them for all.
    """

    ask: tuple[str, ...]
    ask_for_all: tuple[str, ...]
    arriving: tuple[Arrival, ...]


def prepare_host(request: PreparationRequest, facts_of: FactsOf, ledger: Ledger | None, is_known: Callable[[str], bool]) -> HostPreparation:
    """Return what has to be queried and waited for, according to the ledger and the known facts.

    :arg is_known: whether a host is in the inventory, so that it can be queried.
    """
    # In this order: a record that ends meanwhile is in one of the two.
    unsettled, ended = read_unsettled(ledger), read_arrived(ledger, ENDED_SECONDS)
    is_fresh = request.just_asked and _is_measured(request, facts_of) and bool(fresh_hosts([request.host], facts_of, ended + unsettled))
    max_age = max_age_seconds(len(request.candidates)) if request.just_asked else MAX_AGE_SECONDS
    fresh = fresh_hosts(request.candidates, facts_of, ended, undisputed_by=request.play, max_age=max_age)
    stale = tuple(candidate for candidate in request.candidates if candidate not in fresh and candidate not in request.play)
    return HostPreparation(() if is_fresh else (request.host,), stale, _list_arrivals(request.host, unsettled, is_known))


def _is_measured(request: PreparationRequest, facts_of: FactsOf) -> bool:
    """Whether the known facts of the host have dirty rates, if these are to be measured."""
    return not request.measure or bool((facts_of(request.host) or {}).get("dirty_rate_seconds"))


def read_unsettled(ledger: Ledger | None) -> list[MoveRecord]:
    """Return the unsettled records of moves and evacuations, each kind from the oldest on."""
    wanted = Conditions(status=sorted(s.UNSETTLED))
    return [record for term in ("migrations", "evacuations") for record in read_records(ledger, term, wanted)] if ledger else []


def read_completed(ledger: Ledger | None, seconds: float) -> list[MoveRecord]:
    """Return the records of moves that were completed within the last C(seconds)."""
    return _read_since(ledger, "migrations", s.COMPLETED, _seconds_ago(seconds))


def read_arrived(ledger: Ledger | None, seconds: float) -> list[MoveRecord]:
    """Return the records of moves that were completed, and of evacuations that were done, within the last C(seconds)."""
    return _read_arrived_since(ledger, _seconds_ago(seconds))


def read_arrived_since_plan(ledger: Ledger | None, created_at: str) -> list[MoveRecord]:
    """Return the records of moves that were completed, and of evacuations that were done, since a plan was made.

    Some of them are from before, because clocks of control nodes differ.
    """
    made_at = clock.parse_timestamp(created_at)
    earlier = datetime.timedelta(seconds=_CLOCKS_DIFFER_SECONDS if made_at else ENDED_SECONDS)
    since = (made_at or datetime.datetime.now(datetime.UTC)) - earlier
    return _read_arrived_since(ledger, since)


def _seconds_ago(seconds: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)


def _read_arrived_since(ledger: Ledger | None, at: datetime.datetime) -> list[MoveRecord]:
    return [*_read_since(ledger, "migrations", s.COMPLETED, at), *_read_since(ledger, "evacuations", s.DONE, at)]


def _read_since(ledger: Ledger | None, term: str, status: str, at: datetime.datetime) -> list[MoveRecord]:
    since = f"{at.astimezone(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
    return read_records(ledger, term, Conditions(status=[status], since=since)) if ledger else []


def _list_arrivals(host: str, records: Iterable[MoveRecord], is_known: Callable[[str], bool]) -> tuple[Arrival, ...]:
    towards = [record for record in records if record.type == s.LIVE_MIGRATION and record.destination.host == host]
    return tuple(
        Arrival(record.domain.uuid, printable_line(str(record.domain.name)), record.source.host)
        for record in towards
        if record.source.host and is_known(record.source.host)
    )
