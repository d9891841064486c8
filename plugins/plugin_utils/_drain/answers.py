# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the tasks of a role have returned, what hosts have answered, and which facts are still valid."""

from __future__ import annotations

import contextlib
import typing as t
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, Json, JsonObject, Maybe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, InvalidArgument, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef

from .._settings.variables import age_seconds, read_facts


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

    Ansible keeps no facts of a loop in which a host has failed, so that the results are needed. A host on which domains were still arriving at the end of the
    wait has failed, but has answered.
    """
    return {str(query.item): query.facts for query in queries if not query.skipped}


def read_silence(queries: Iterable[HostQuery]) -> dict[str, str]:
    """Return why hosts did not answer, by name."""
    return {str(query.item): query.message or "It did not answer." for query in queries if not query.skipped and query.facts is None}


def check_answered(sources: Iterable[str], silence: Mapping[str, str]) -> None:
    """Raise L(Unreachable) for a host to be drained that did not answer."""
    for source in sources:
        if source in silence:
            raise Unreachable(f"{source} could not be queried for its domains: {silence[source].rstrip(' .:')}.", "Nothing was moved.")


def check_rights(hosts: Iterable[str], facts: Mapping[str, HostFacts | None]) -> None:
    """Raise L(Forbidden) for a host that was queried by a user who is not root there, and who can therefore not act on it."""
    for host in hosts:
        if (known := facts.get(host)) and not known.is_read_by_root:
            raise Forbidden(f"{host} was queried without root, and only root can act on it.", "Set become: true, or connect as root. Nothing was changed.")


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


def collect_facts(names: Iterable[str], facts_of: FactsOf, answers: Mapping[str, JsonObject | None]) -> dict[str, JsonObject]:
    """Return the facts of the hosts that have any: their answers, else the known facts."""
    found = {name: answers[name] if name in answers else facts_of(name) for name in names}
    return {name: facts for name, facts in found.items() if facts}


def active_uuids(facts: HostFacts) -> set[str]:
    """Return the UUIDs of the domains that are active on the host."""
    return {domain.uuid for domain in facts.domains or () if domain.active}


# Facts that this control node received longer ago are gathered again.
MAX_AGE_SECONDS = 60
# Gathering the facts of a large fleet takes longer than that. The first ones must not be out of date for this reason: they would be gathered one by one.
SECONDS_FOR_EACH_HOST = 0.3
LONGEST_AGE_SECONDS = 300


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
    if any(domain.is_arriving for domain in facts.domains or ()) or any(move.is_unsettled and _names_host(move, name, facts) for move in moves):
        return False
    ended = sorted((move for move in moves if move.status in (s.COMPLETED, s.DONE)), key=lambda move: move.generation)
    newest = {move.domain.uuid: move for move in ended}
    active = active_uuids(facts)
    return all((uuid in active) == _is_host(move.destination, name, facts) for uuid, move in newest.items() if _names_host(move, name, facts))


def _is_recent(facts: JsonObject, max_age: float) -> bool:
    age = age_seconds(facts)
    return age is not None and age <= max_age


def _names_host(record: MoveRecord, name: str, facts: HostFacts) -> bool:
    return any(_is_host(end, name, facts) for end in record.ends)


def _is_host(end: HostRef, name: str, facts: HostFacts) -> bool:
    return end.host == name or end.is_same(facts.host)
