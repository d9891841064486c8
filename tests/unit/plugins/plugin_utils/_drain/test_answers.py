# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which facts still count, what hosts answered, and who did not answer."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, InvalidArgument, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.answers import (
    HostQuery,
    check_answered,
    check_rights,
    collect_facts,
    fresh_hosts,
    is_settled,
    max_age_seconds,
    read_answers,
    read_silence,
    readable_facts,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import read_facts
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, facts, record

Facts = dict[str, t.Any]


def gathered(name: str, seconds_ago: float, *domains: Facts) -> Facts:
    """Return facts that were received so long ago, of a host whose own clock is years behind."""
    now = boot_moment()
    return {**facts(name, *domains), "received": {"boot_id": now.boot_id, "seconds": now.seconds - seconds_ago}}


def known() -> dict[str, Facts]:
    """Return the facts of four hosts, of which two were received a moment ago and say that web1 runs there."""
    return {
        "kvm1": gathered("kvm1", 5, domain("web1")),
        "kvm2": gathered("kvm2", 61),
        "kvm3": {**gathered("kvm3", 0), "received": {"boot_id": "of another control node", "seconds": 5.0}},
        "kvm5": gathered("kvm5", 5, domain("web1")),
    }


NAMES = ["kvm1", "kvm2", "kvm3", "kvm4", "kvm5"]


def test_hosts_without_facts_are_omitted() -> None:
    assert list(collect_facts(NAMES, known().get, {})) == ["kvm1", "kvm2", "kvm3", "kvm5"]


def test_old_facts_and_those_of_unknown_age_do_not_count() -> None:
    assert fresh_hosts(NAMES, known().get, []) == {"kvm1", "kvm5"}


@pytest.mark.parametrize(("hosts", "seconds"), [(1, 60), (200, 60), (500, 150), (1000, 300), (5000, 300)])
def test_facts_of_a_large_fleet_may_be_as_old_as_gathering_them_takes(hosts: int, seconds: int) -> None:
    assert max_age_seconds(hosts) == pytest.approx(seconds)
    aged = {"kvm1": gathered("kvm1", seconds - 5), "kvm2": gathered("kvm2", seconds + 5)}
    assert fresh_hosts(["kvm1", "kvm2"], aged.get, [], max_age=max_age_seconds(hosts)) == {"kvm1"}


def test_facts_that_another_user_than_root_read_do_not_count() -> None:
    hosts = {"kvm1": {**gathered("kvm1", 5), "unverified_reasons": {}}, "kvm2": gathered("kvm2", 5)}
    assert fresh_hosts(["kvm1", "kvm2"], hosts.get, []) == {"kvm2"}


def queries(*results: dict[str, t.Any]) -> list[HostQuery]:
    return [decode(HostQuery, result) for result in results]


def test_an_answer_overrides_known_facts() -> None:
    now = gathered("kvm4", 0)
    results = queries(
        {"item": "kvm4", "ansible_facts": {"kvmfleet_host": now}},
        {"item": "kvm1", "unreachable": True, "msg": "no route"},
        {"item": "kvm2", "failed": True, "msg": "no libvirt"},
        {"item": "kvm3", "skipped": True},
    )
    assert read_answers(results) == {"kvm4": now, "kvm1": None, "kvm2": None}
    assert list(collect_facts(NAMES, known().get, read_answers(results))) == ["kvm3", "kvm4", "kvm5"]
    assert read_silence(results) == {"kvm1": "no route", "kvm2": "no libvirt"}


def test_a_host_with_incoming_domains_at_the_timeout_has_answered() -> None:
    now = gathered("kvm1", 0)
    results = queries({"item": "kvm1", "failed": True, "attempts": 3, "ansible_facts": {"kvmfleet_host": now}})
    assert read_answers(results) == {"kvm1": now}
    assert read_silence(results) == {}


def test_a_source_that_did_not_answer_is_unreachable_with_the_reason() -> None:
    check_answered(["kvm1"], {"kvm2": "no route"})
    with pytest.raises(Unreachable, match=r"kvm2 could not be queried for its domains: no route\. Nothing was moved\."):
        check_answered(["kvm1", "kvm2"], {"kvm2": "no route."})
    # Ansible ends like this if SSH itself has said nothing.
    with pytest.raises(Unreachable, match=r"domains: Make sure this host can be reached over ssh\. Nothing was moved\."):
        check_answered(["kvm2"], {"kvm2": "Make sure this host can be reached over ssh: "})


def test_a_host_that_was_not_queried_by_root_is_forbidden() -> None:
    by_root, by_another = (read_facts({**facts("kvm1"), **more}) for more in ({}, {"unverified_reasons": {}}))
    check_rights(["kvm1", "kvm2"], {"kvm1": by_root, "kvm2": None, "kvm3": by_another})
    with pytest.raises(Forbidden, match="kvm2 was queried without root"):
        check_rights(["kvm1", "kvm2"], {"kvm1": by_root, "kvm2": by_another})


def test_facts_that_claim_a_domain_of_a_source_do_not_count() -> None:
    hosts = {**known(), "kvm2": gathered("kvm2", 5)}
    assert fresh_hosts(["kvm2", "kvm5"], hosts.get, [], undisputed_by=["kvm1"]) == {"kvm2"}


def moved(source: str, destination: str, status: str = "completed", name: str = "web1", generation: int = 1) -> MoveRecord:
    """Return a record whose clock is nobody's."""
    ends = {"source": HostRef(source, None, None), "destination": HostRef(destination, None, None)}
    made = record(name, source, destination, status, generation=generation, updated_at="1970-01-01T00:00:00.000Z")
    return dataclasses.replace(made, **ends)


@pytest.mark.parametrize(
    ("moves", "fresh"),
    [
        ([moved("kvm1", "kvm9")], {"kvm5"}),
        ([moved("kvm9", "kvm5", name="web2")], {"kvm1"}),
        ([moved("kvm1", "kvm5", name="web2")], {"kvm1"}),
        ([moved("kvm1", "kvm5")], {"kvm5"}),
        ([moved("kvm9", "kvm1"), moved("kvm1", "kvm9", generation=2)], {"kvm5"}),
        ([moved("kvm1", "kvm9", generation=2), moved("kvm9", "kvm1", generation=3)], {"kvm1", "kvm5"}),
        ([moved("kvm1", "kvm9", "running")], {"kvm5"}),
        ([moved("kvm1", "kvm9", "failed")], {"kvm1", "kvm5"}),
        ([dataclasses.replace(moved("old name", "kvm9"), source=HostRef("old name", None, facts("kvm1")["host_uuid"]))], {"kvm5"}),
    ],
    ids=["away", "towards", "towards, known", "towards, seen", "there and away again", "away and back", "running", "failed", "by its UUID"],
)
def test_facts_from_before_the_end_of_a_move_do_not_count(moves: list[MoveRecord], fresh: set[str]) -> None:
    """By what they say, and not by when; each of the two hosts says that it runs web1."""
    assert fresh_hosts(["kvm1", "kvm5"], known().get, moves) == fresh


def test_facts_of_a_host_with_an_incoming_domain_do_not_count() -> None:
    assert is_settled("kvm1", read_facts(gathered("kvm1", 5, domain("web1"))), [])
    assert not is_settled("kvm1", read_facts(gathered("kvm1", 5, {**domain("web1"), "job": "incoming migration"})), [])


@pytest.mark.parametrize("wrong", [{"domains": 5}, {"x": 1}, 7])
def test_facts_of_an_unexpected_form_are_refused(wrong: t.Any) -> None:
    with pytest.raises(InvalidArgument, match="do not have the expected form"), readable_facts():
        fresh_hosts(["kvm1"], {"kvm1": wrong}.get, [], undisputed_by=["kvm1"])
