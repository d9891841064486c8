# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts that hang under storage that does not answer: the others are started in later rounds, and the rounds end."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.restart import build_restart_result
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import saved_domains as r
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import starts

from .sites import Body, Site

PARALLEL = 2
HANGS = Unreachable("libvirt has not ended the start.")


@pytest.fixture
def rounds(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Let all starts whose domain is named so hang, as C(start_domains) reports them; return the names of the orders of each round."""
    names, start = list[list[str]](), site._start

    def start_until_the_window_hangs(on: str, work: t.Mapping[str, t.Any]) -> Body:
        orders = [decode(r.RestartOrder, order) for order in work["orders"]]
        names.append([order.name for order in orders])
        hung = [order for order in orders if order.name.startswith("hung") and not order.settle_only][:PARALLEL]
        if hung and len(hung) == len(orders):
            raise HANGS
        is_full = len(hung) == PARALLEL
        ended = [] if is_full else [place for place, order in enumerate(orders) if order not in hung]
        answer = start(on, {**work, "orders": [work["orders"][place] for place in ended]})
        results = {one["uuid"]: one for one in answer["results"]}
        left = {
            order.uuid: encode(build_restart_result(order, r.UNKNOWN, HANGS, changed=True) if order in hung else build_restart_result(order, r.DEFERRED))
            for order in orders
        }
        peers = r.PeerAnswers({}, (), (), BootMoment("this start", 0.0))
        return {"at": encode(boot_moment()), "results": [results.get(order.uuid) or left[order.uuid] for order in orders], "elsewhere": encode(peers)}

    monkeypatch.setattr(site, "_start", start_until_the_window_hangs)
    monkeypatch.setattr(starts, "_PAUSE_SECONDS", 0.0)
    return names


def test_domains_behind_a_window_of_hung_starts_are_started_in_the_next_round(site: Site, rounds: list[list[str]]) -> None:
    for name in ("hung1", "hung2"):
        site.save(name, priority=9)
    for name in ("web1", "web2", "web3"):
        site.save(name)
    site.agent()
    run = site.evacuate(parallel=PARALLEL)
    assert site.running() == {"kvm2": ["web1", "web2", "web3"]}
    assert [sorted(names) for names in rounds] == [["hung1", "hung2", "web1", "web2", "web3"], ["web1", "web2", "web3"]]
    assert sorted(job.name for job in run.jobs if job.error) == ["hung1", "hung2"]
    # What became of these starts is not known, so no other host may start the domains.
    assert {name: status for name, status, _host in site.record_summaries() if name.startswith("hung")} == {"hung1": "pre-migrating", "hung2": "pre-migrating"}


def test_rounds_end_if_all_starts_hang(site: Site, rounds: list[list[str]]) -> None:
    for place in range(6):
        site.save(f"hung{place}")
    site.agent()
    run = site.evacuate(parallel=PARALLEL)
    assert [len(names) for names in rounds] == [6, 4, 2] + [2] * starts.MAX_RETRIES
    assert (site.running(), len([job for job in run.jobs if job.error])) == ({}, 6)
    assert {status for _name, status, _host in site.record_summaries()} == {"pre-migrating"}


def test_a_domain_that_waited_is_not_started_if_the_source_is_on_meanwhile(site: Site, rounds: list[list[str]]) -> None:
    for name in ("hung1", "hung2"):
        site.save(name, priority=9)
    site.save("web")
    agent = site.agent()
    site.after_start = lambda: agent.switch("on")
    site.evacuate(parallel=PARALLEL)
    assert site.running() == {}
    statuses = {name: status for name, status, _host in site.record_summaries()}
    assert statuses == {"hung1": "pre-migrating", "hung2": "pre-migrating", "web": "failed"}
