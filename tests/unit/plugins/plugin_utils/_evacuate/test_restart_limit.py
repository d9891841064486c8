# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A domain that was on several hosts when they died waits for a person."""

from __future__ import annotations

import contextlib
import datetime
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.restart_limit import RestartLimit, RestartLimitReached, check_restart_limit
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.drills import PlannedDeath
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import Site

LIMIT = RestartLimit.from_option({"hosts": 2, "hours": 24})


def restart(site: Site, host: str, hours_ago: float) -> dict[str, t.Any]:
    at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours_ago)
    return {"at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"), "source": encode(site.place(host))}


def test_an_evacuation_writes_from_which_host_the_domain_was_restarted(site: Site) -> None:
    site.save("web")
    site.save("off", state="shutoff")
    site.evacuate()
    documents = {name: site.ledger.find_domains(name)[0].domain for name in ("web", "off")}
    (one,) = documents["web"].restarts or ()
    assert one.source.is_same(site.place("kvm1"))
    assert one.at == site.ledger.find_domains("web")[0].domain.updated_at
    # It was defined, and cannot have killed its host.
    assert not documents["off"].restarts


def test_a_domain_whose_two_hosts_died_waits_and_the_others_are_started(site: Site) -> None:
    site.save("web")
    site.save("app")
    site.change("web", lambda body: body.update(restarts=[restart(site, "kvm3", 23)]))
    run = site.evacuate(restart_limit=LIMIT)
    errors = {job.name: str(job.error) for job in run.jobs if job.error}
    assert list(errors) == ["web"]
    assert "Domain web waits for a person: it was on kvm3 when that host was evacuated at" in errors["web"]
    assert "and on kvm1 now. It was not started." in errors["web"]
    assert """kvmfleet.migration.evacuate -e source=kvm1 -e '{"evacuate_host_domains": ["web"]}'""" in errors["web"]
    assert sorted(line[:2] for line in site.record_summaries()) == [("app", "done"), ("web", "conflict")]
    assert site.possible("web") == ["kvm1"]
    reasons = {record.domain.name: record.reason for record in site.ledger.list_records()}
    assert reasons == {"app": None, "web": "restart_limit"}
    # A person runs the same without a limit.
    site.evacuate(domains=["web"])
    assert sorted(line[:2] for line in site.record_summaries()) == [("app", "done"), ("web", "conflict"), ("web", "done")]


def test_nothing_is_fenced_for_domains_that_all_wait(site: Site) -> None:
    site.save("web")
    agent = site.agent(power="on")
    site.change("web", lambda body: body.update(restarts=[restart(site, "kvm3", 1)]))
    site.evacuate(restart_limit=LIMIT)
    assert "off" not in agent.asked()
    assert [line[:2] for line in site.record_summaries()] == [("web", "conflict")]


def test_check_mode_records_nothing(site: Site) -> None:
    site.save("web")
    site.change("web", lambda body: body.update(restarts=[restart(site, "kvm3", 1)]))
    run = site.evacuation(check=True, restart_limit=LIMIT)
    run.evacuate_domains()
    assert "waits for a person" in str(run.jobs[0].error)
    assert site.record_summaries() == []


@pytest.mark.parametrize(
    ("deaths", "limit"),
    [
        ([("kvm3", 25)], {"hosts": 2, "hours": 24}),
        ([("kvm1", 1)], {"hosts": 2, "hours": 24}),
        ([("kvm3", 1), ("kvm3", 2), ("kvm1", 3)], {"hosts": 3, "hours": 24}),
        ([("kvm3", 1)], None),
    ],
    ids=["long ago", "the same host again", "one other host twice", "no limit"],
)
def test_a_domain_within_the_limit_is_started(site: Site, deaths: list[tuple[str, float]], limit: dict[str, int] | None) -> None:
    site.save("web")
    site.change("web", lambda body: body.update(restarts=[restart(site, *one) for one in deaths]))
    site.evacuate(restart_limit=RestartLimit.from_option(limit))
    assert [line[:2] for line in site.record_summaries()] == [("web", "done")]


def test_a_time_that_was_edited_by_hand_withholds_nothing(site: Site) -> None:
    site.save("web")
    site.change("web", lambda body: body.update(restarts=[{**restart(site, "kvm3", 1), "at": "yesterday"}]))
    site.evacuate(restart_limit=LIMIT)
    assert [line[:2] for line in site.record_summaries()] == [("web", "done")]


@pytest.mark.parametrize("given", [{"hosts": 1, "hours": 24}, {"hosts": 6, "hours": 24}, {"hosts": 2, "hours": 0}, {"hosts": 2, "hours": 721}])
def test_a_limit_out_of_bounds_is_refused(given: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match="of restart_limit is"):
        RestartLimit.from_option(given)
    assert RestartLimit.from_option({}) is None


def test_a_host_that_a_drill_has_switched_off_does_not_count(site: Site) -> None:
    site.save("web")
    site.change("web", lambda body: body.update(restarts=[restart(site, "kvm3", 1)]))
    for host, hours_ago, waits in (("kvm3", 5.0, False), ("kvm3", 0.5, True), ("kvm2", 5.0, True)):
        cut_at = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours_ago)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        planned = [PlannedDeath(host, cut_at, None)]
        entry = site.ledger.find_domains("web")[0].domain
        with pytest.raises(RestartLimitReached) if waits else contextlib.nullcontext():
            check_restart_limit(entry, site.place("kvm1"), LIMIT, planned)
