# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.decide import homeward, silent_hosts, starts
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.builders import document, domain, facts, host, noted, record, uid

WEB = domain("web1")
ACTIVE = domain("web1", active=True)


def verdict(
    here: tuple[dict[str, t.Any], ...] = (WEB,),
    there: tuple[dict[str, t.Any], ...] | None = (),
    documents: t.Sequence[dict[str, t.Any]] = (),
    records: t.Sequence[dict[str, t.Any]] = (),
    kvm2: str = "enabled",
    accepted: t.Sequence[str] = (),
) -> tuple[str, str]:
    known = {"kvm1": facts("kvm1", *here), "kvm2": {} if there is None else facts("kvm2", *there)}
    result = starts("kvm1", [noted("web1")], known, documents, records, [host("kvm1"), host("kvm2", kvm2)], accepted)
    found = [(kind, entry["reason"]) for kind, entries in result.items() for entry in entries]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("arguments", "kind", "why"),
    [
        ({}, "start", "autostart"),
        ({"documents": [document("web1", "kvm1")]}, "start", "autostart"),
        ({"here": (ACTIVE,)}, "start", "active already"),
        ({"here": ()}, "forget", "not defined here"),
        ({"there": (ACTIVE,)}, "forget", "active on kvm2"),
        ({"there": (WEB,)}, "start", "autostart"),
        ({"documents": [document("web1", "kvm2")]}, "forget", "it is on kvm2"),
        ({"documents": [document("web1", "kvm1", "kvm2")]}, "refuse", "may be on kvm2 too"),
        ({"records": [record("web1", "kvm1", "kvm2", "running")]}, "refuse", "not settled ('running')"),
        ({"records": [record("web1", "kvm1", "kvm2", "pre-migrating", kind="evacuation")]}, "refuse", "pre-migrating"),
        ({"there": None}, "refuse", "kvm2, which did not answer"),
        ({"there": None, "kvm2": "maintenance"}, "refuse", "did not answer"),
        ({"there": None, "kvm2": "fenced"}, "start", "autostart"),
        ({"there": None, "accepted": ["kvm2"]}, "start", "autostart"),
        ({"there": None, "accepted": ["kvm2"], "documents": [document("web1", "kvm2")]}, "forget", "it is on kvm2"),
    ],
)
def test_a_domain_is_started_only_where_it_can_be_nowhere_else(arguments: dict[str, t.Any], kind: str, why: str) -> None:
    found, reason = verdict(**arguments)
    assert (found, why in reason) == (kind, True), reason


def test_a_host_that_only_the_ledger_knows_is_silent_and_one_that_was_renamed_is_not() -> None:
    renamed = {**facts("kvm3"), "host_id": uid("id old")}
    entries = [host("kvm1"), host("scrapped"), host("old")]
    assert silent_hosts({"kvm1": facts("kvm1"), "kvm3": renamed}, entries, []) == ["scrapped"]


def displaced(name: str) -> dict[str, t.Any]:
    return {"uuid": uid(name), "name": name, "possible_hosts": ["kvm2"]}


def test_displaced_domains_are_sought_where_they_run() -> None:
    web, db, off = (domain(name, active) for name, active in (("web1", True), ("db1", True), ("off1", False)))
    known = {"kvm1": facts("kvm1", db), "kvm2": facts("kvm2", off), "kvm3": facts("kvm3", web), "kvm4": {}}
    result = homeward("kvm1", [displaced(name) for name in ("web1", "db1", "off1", "lost1")], known)
    assert result["moves"] == [{"uuid": uid("web1"), "name": "web1", "source": "kvm3"}]
    assert [entry["name"] for entry in result["home"]] == ["db1"]
    assert [entry["name"] for entry in result["skipped"]] == ["off1", "lost1"]
    assert "left on kvm2" in result["skipped"][0]["reason"]


def test_one_that_runs_twice_is_not_moved() -> None:
    twice = domain("web1", active=True)
    result = homeward("kvm1", [displaced("web1")], {"kvm1": facts("kvm1"), "kvm2": facts("kvm2", twice), "kvm3": facts("kvm3", twice)})
    assert (result["moves"], result["skipped"][0]["reason"]) == ([], "It is active on kvm2 and kvm3.")
