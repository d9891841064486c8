# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(drain_facts). Documentation is in drain_facts.yml."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import same_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.statuses import COMPLETED, UNSETTLED
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.facts import is_arriving
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._facts_age import age_seconds


def drain_facts(
    hostvars: Mapping[str, t.Any],
    names: Sequence[str],
    max_age_seconds: t.Optional[float] = None,
    asked: Sequence[Mapping[str, t.Any]] = (),
    undisputed_by: Sequence[str] = (),
    moves: t.Optional[Sequence[Mapping[str, t.Any]]] = None,
    told: t.Optional[Mapping[str, t.Any]] = None,
) -> dict[str, t.Any]:
    """Return C(kvmfleet_host) of those of the hosts that have it."""
    if not isinstance(hostvars, Mapping):
        raise AnsibleFilterError(f"drain_facts: the input is a {type(hostvars).__name__}; give hostvars.")
    try:
        return _found(hostvars, names, max_age_seconds, asked, undisputed_by, moves, told)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"drain_facts: the facts or answers have not the expected form ({type(error).__name__}: {error}).") from error


def _found(
    hostvars: Mapping[str, t.Any],
    names: Sequence[str],
    max_age_seconds: t.Optional[float],
    asked: Sequence[Mapping[str, t.Any]],
    undisputed_by: Sequence[str],
    moves: t.Optional[Sequence[Mapping[str, t.Any]]],
    told: t.Optional[Mapping[str, t.Any]],
) -> dict[str, t.Any]:
    answers = {answer["item"]: _answered(answer) for answer in asked if not answer.get("skipped")} | dict(told or {})
    found = {name: answers[name] if name in answers else _facts_of(hostvars, name) for name in names}
    there = set().union(*(_active(_facts_of(hostvars, name)) for name in undisputed_by))
    fresh = {name: facts for name, facts in found.items() if facts and _is_fresh(facts, max_age_seconds) and not _active(facts) & there}
    return {name: facts for name, facts in fresh.items() if moves is None or _is_settled(name, facts, moves)}


def _answered(answer: Mapping[str, t.Any]) -> t.Any:
    # Of a loop with an unreachable item Ansible keeps no facts at all, not even those of the items that answered.
    failed = answer.get("failed") or answer.get("unreachable")
    return None if failed else answer.get("ansible_facts", {}).get("kvmfleet_host")


def _facts_of(hostvars: Mapping[str, t.Any], name: str) -> t.Any:
    if name not in hostvars:
        return None
    facts = hostvars[name].get("ansible_facts") or {}
    return facts.get("kvmfleet_host")


def _active(facts: t.Optional[Mapping[str, t.Any]]) -> set[str]:
    return {domain["uuid"] for domain in facts["domains"] if domain["active"]} if facts else set()


def _is_fresh(facts: Mapping[str, t.Any], max_age_seconds: t.Optional[float]) -> bool:
    if max_age_seconds is None:
        return True
    age = age_seconds(facts)
    return age is not None and age <= max_age_seconds


def _is_settled(name: str, facts: Mapping[str, t.Any], moves: Sequence[Mapping[str, t.Any]]) -> bool:
    """Whether nothing is on its way to or from the host, and the facts agree with how the newest move of each domain ended."""
    if any(map(is_arriving, facts["domains"])) or any(move["status"] in UNSETTLED and _ends_at(move, name, facts) for move in moves):
        return False
    newest: dict[str, Mapping[str, t.Any]] = {}
    for move in sorted((move for move in moves if move["status"] == COMPLETED), key=lambda move: int(move["generation"])):
        newest[move["domain"]["uuid"]] = move
    active = _active(facts)
    return all((uuid in active) == _is_end(move["destination"], name, facts) for uuid, move in newest.items() if _ends_at(move, name, facts))


def _ends_at(record: Mapping[str, t.Any], name: str, facts: Mapping[str, t.Any]) -> bool:
    return any(_is_end(record[end], name, facts) for end in ("source", "destination"))


def _is_end(end: Mapping[str, t.Any], name: str, facts: Mapping[str, t.Any]) -> bool:
    return end.get("host") == name or same_host(end, facts)


class FilterModule:
    """Ansible's way to the filter."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        """Return it by name."""
        return {"drain_facts": drain_facts}
