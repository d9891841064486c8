# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters that a survivor has switched off do not judge the start of a domain there, and are in its record. The reserve for failover never does."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings

from .sites import Site


def set_scheduler(site: Site, monkeypatch: pytest.MonkeyPatch, value: dict[str, t.Any]) -> None:
    original = site.settings

    def changed() -> Settings:
        known = original()
        for host in site.listed:
            t.cast("dict[str, t.Any]", known._hostvars[host])["kvmfleet_scheduler"] = value
        return known

    monkeypatch.setattr(site, "settings", changed)


def test_a_switched_off_filter_does_not_judge_a_start_and_is_in_its_record(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web")
    site.change("web", lambda body: body["protected"]["request"].update(labels=["ssd"]))
    site.evacuate("kvm2")
    set_scheduler(site, monkeypatch, {"filters": {"labels": False}})
    site.evacuate("kvm2")
    refused, started = sorted(site.ledger.list_records(), key=lambda record: record.generation)
    assert ("labels" in refused.last_detail, refused.status, "filters_off" in encode(refused)) == (True, "conflict", False)
    assert (started.status, started.filters_off) == ("done", ("labels",))
    assert "The host was verified and booked. Switched off there: labels." in [line.detail for line in started.history]


def test_the_reserve_for_failover_is_used_by_an_evacuation(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web")
    set_scheduler(site, monkeypatch, {"failover_hosts": 4})
    site.evacuate("kvm2")
    assert [line[:2] for line in site.record_summaries()] == [("web", "done")]


def test_a_host_that_has_a_guest_of_the_group_of_the_profile_is_refused_and_the_record_has_the_group(site: Site) -> None:
    group = {"name": "db", "policy": "anti-affinity"}
    site.variables = {host: {"kvmfleet_profiles": {"db": {"group": group}}} for host in site.listed}
    for name in ("db1", "db2"):
        site.save(name, policy={"profile": "db"})
    site.evacuate("kvm2")
    assert sorted(line[:2] for line in site.record_summaries()) == [("db1", "done"), ("db2", "conflict")]
    assert [record.request["group"] for record in site.ledger.list_records()] == [group, group]
