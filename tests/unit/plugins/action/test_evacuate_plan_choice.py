# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module evacuate_plan with named domains and a named destination, and what it refuses before anything happens."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, NotFound
from ansible_collections.kvmfleet.migration.tests.simulator.facts import uuid_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import Site

from .test_evacuate_plan import PLAY, Node, make_node, power

Body = dict[str, t.Any]
STEPS = ("check", "assess", "prove", "plan")


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def node(site: Site, monkeypatch: pytest.MonkeyPatch) -> Node:
    return make_node(site, monkeypatch)


def check_that_nothing_happened(site: Site) -> None:
    assert power(site) == "on"
    assert list(site.ledger.list_records()) == []
    assert site.running() == {}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"force": True}, "evacuate_host_destination is empty"),
        ({"force": True, "destination": ""}, "evacuate_host_destination is empty"),
        ({"domains": []}, "evacuate_host_domains has no name"),
        ({"domains": ["web", ""]}, "evacuate_host_domains has no name"),
    ],
)
def test_an_invalid_choice_is_refused_at_every_step(node: Node, site: Site, step: str, given: Body, words: str) -> None:
    site.agent(power="on")
    site.save("web")
    with pytest.raises(InvalidArgument, match=words):
        node.task(step, **given)
    assert site.phases == []
    check_that_nothing_happened(site)


def test_a_destination_outside_the_play_is_refused_by_the_check(node: Node, site: Site) -> None:
    site.agent(power="on")
    for name in ("kvm1", "kvm9"):
        with pytest.raises(InvalidArgument, match=f"evacuate_host_destination is {name}, which is not one of the hosts of the play"):
            node.task("check", destination=name)
    assert node.task("check", destination="kvm3", domains=["web"])["assess_first"] is False
    check_that_nothing_happened(site)


@pytest.mark.parametrize("step", ["assess", "prove", "plan"])
def test_unknown_and_ambiguous_domains_are_refused_before_the_host_is_fenced(node: Node, site: Site, step: str) -> None:
    site.agent(power="on")
    site.save("web")
    with pytest.raises(NotFound, match=r"no domain 'nobody' may be on kvm1\. Check both names\. Nothing was started"):
        node.task(step, domains=["web", "nobody"])
    site.save("twin")
    site.change("web", lambda body: body.update(name="twin"))
    with pytest.raises(Conflict, match="Several domains that may be on kvm1 are named 'twin'"):
        node.task(step, domains=["twin"])
    check_that_nothing_happened(site)


def test_only_the_named_domains_are_evacuated(node: Node, site: Site) -> None:
    site.agent(power="on")
    web = site.save("web")
    site.save("app")
    site.save("local", seen_by=["kvm1"])
    choice = {"domains": ["web"], "destination": "kvm3"}
    proved = node.task("prove", survivors=PLAY, **choice)
    assert [one["name"] for one in proved["domains"]] == ["web"]
    done = node.task("plan", fencing=proved["evidence"], survivors=PLAY, since=proved["since"], **choice)
    assert (done["shares"], done["uncovered"], done["refused"], done["lost_until_return"]) == ({"kvm2": [], "kvm3": [web]}, [], [], [])
    assert sorted(one["name"] for one in done["not_selected"]) == ["app", "local"]


def test_without_open_domains_among_the_named_ones_the_host_is_not_fenced(node: Node, site: Site) -> None:
    site.agent(power="on")
    site.save("web")
    site.save("local", seen_by=["kvm1"])
    assert node.task("prove", domains=["local"])["domains"] == []
    check_that_nothing_happened(site)


@pytest.mark.parametrize("step", ["assess", "prove", "plan"])
def test_a_silent_destination_is_refused_and_recorded_and_the_host_is_not_fenced(node: Node, site: Site, step: str) -> None:
    site.agent(power="on")
    site.save("web")
    site.save("app")
    done = node.task(step, destination="kvm3", survivors=["kvm2"], domains=["web"])
    assert (done["domains"], [one["name"] for one in done["refused"]]) == ([], ["web"])
    assert "The destination kvm3 does not answer" in done["refused"][0]["reason"]
    assert (site.record_summaries(), power(site)) == ([("web", "conflict", "kvm3")], "on")
    node.check_mode = True
    assert node.task(step, destination="kvm3", survivors=["kvm2"])["domains"] == []
    assert len(site.record_summaries()) == 1


def test_force_starts_on_the_named_host_alone(node: Node, site: Site) -> None:
    site.agent()
    huge = site.save("huge", memory_mib=1024 * 1024)
    proved = node.task("prove")
    given = {"fencing": proved["evidence"], "since": proved["since"], "survivors": PLAY}
    refused = node.task("plan", destination="kvm3", **given)
    (record,) = site.ledger.list_records()
    assert [(one["name"], list(one["reasons"]), one["record"]) for one in refused["uncovered"]] == [("huge", ["kvm3"], record.id)]
    assert (record.status, record.destination.host, record.forced) == ("conflict", "kvm3", None)
    assert node.task("plan", destination="kvm3", force=True, **given)["shares"] == {"kvm2": [], "kvm3": [huge]}


def test_a_destination_alone_is_planned_without_survivors(node: Node, site: Site) -> None:
    site.agent()
    site.save("web")
    proved = node.task("prove")
    assert node.task("plan", fencing=proved["evidence"], since=proved["since"], destination="kvm3")["shares"] == {"kvm3": [uuid_of("web")]}


def test_a_damaged_document_is_a_failure_only_if_all_domains_are_evacuated(node: Node, site: Site) -> None:
    site.agent()
    site.save("web")
    (site.folder / "ledger" / "domains" / f"{uuid_of('torn')}.json").write_text("torn")
    assert [one["uuid"] for one in node.task("assess")["refused"]] == [uuid_of("torn")]
    assert node.task("assess", domains=["web"])["refused"] == []
