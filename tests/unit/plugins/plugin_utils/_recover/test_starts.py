# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.rules import map_holders
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.unreadable_hosts import UnreadableHost
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.release import NotedDomain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.starts import StartInputs, list_silent_hosts, read_start_mode, sort_starts
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.builders import document, domain, facts, host, noted, record, uid

WEB = domain("web1")
ACTIVE = domain("web1", active=True)


def verdict(
    here: tuple[dict[str, t.Any], ...] = (WEB,),
    there: tuple[dict[str, t.Any], ...] | None = (),
    documents: t.Sequence[dict[str, t.Any]] = (),
    records: t.Sequence[MoveRecord] = (),
    kvm2: str = "enabled",
    accepted: t.Sequence[str] = (),
    note: t.Mapping[str, t.Any] = {},
    boot_id: str | None = None,
    noted_there: t.Sequence[str] = (),
) -> tuple[str, str]:
    known = {"kvm1": facts("kvm1", *here), "kvm2": {} if there is None else facts("kvm2", *there)}
    entries = [host_entry(host("kvm1")), host_entry(host("kvm2", kvm2))]
    wanted = [decode(NotedDomain, {**noted("web1"), **note})]
    domains = {entry.uuid: entry for entry in map(domain_entry, documents)}
    to_start = {"kvm1": ["web1"], "kvm2": noted_there}
    noted_on = {name: {uid(guest) for guest in guests} for name, guests in to_start.items()}
    silent = list_silent_hosts(known, entries, accepted)
    result = sort_starts(wanted, StartInputs("kvm1", known, domains, map_holders(records), silent, boot_id, noted_on=noted_on))
    found = [(kind, entry.reason) for kind, entries in vars(result).items() for entry in entries]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("arguments", "kind", "why"),
    [
        ({}, "start", "autostart"),
        ({"documents": [document("web1", "kvm1")]}, "start", "autostart"),
        ({"here": (ACTIVE,)}, "start", "active already"),
        ({"here": ()}, "forget", "no longer defined here"),
        ({"there": (ACTIVE,)}, "forget", "active on kvm2"),
        ({"there": (WEB,)}, "start", "autostart"),
        ({"there": (WEB,), "documents": [document("web1", "kvm2")]}, "forget", "it is on kvm2"),
        ({"there": ({**WEB, "autostart": True},)}, "refuse", "kvm2 would start it too, and the ledger does not know it"),
        ({"there": ({**WEB, "autostart": True},), "documents": [document("web1", "kvm1")]}, "start", "autostart"),
        ({"documents": [document("web1", "kvm2")]}, "refuse", "it is on kvm2, which answers and does not have it"),
        ({"documents": [document("web1", "kvm2")]}, "refuse", "Otherwise undefine it there"),
        ({"documents": [document("web1", "kvm2", "kvm3")]}, "forget", "it is on kvm2, kvm3"),
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
def test_a_domain_is_started_only_if_it_cannot_be_on_another_host(arguments: dict[str, t.Any], kind: str, why: str) -> None:
    found, reason = verdict(**arguments)
    assert (found, why in reason) == (kind, True), reason


@pytest.mark.parametrize("ran_here", ["drain", "libvirt-guests", "once"])
def test_an_unknown_domain_that_ran_here_last_is_started_although_another_host_marks_it_for_autostart(ran_here: str) -> None:
    marked = ({**WEB, "autostart": True},)
    assert verdict(there=marked, note={"why": ["autostart", ran_here]})[0] == "start"
    assert verdict(there=marked, note={"why": [ran_here]})[0] == "start"


@pytest.mark.parametrize("why", ["autostart", "drain"])
def test_an_unknown_domain_that_is_noted_on_two_hosts_of_a_run_is_started_on_neither(why: str) -> None:
    """The other host is about to start it: it ran there at the last shutdown, and has no mark for autostart."""
    found, reason = verdict(there=(WEB,), note={"why": [why]}, noted_there=["web1"])
    assert (found, "kvm2 would start it too" in reason) == ("refuse", True), reason
    assert verdict(there=(WEB,), note={"why": [why]}, noted_there=["web2"])[0] == "start"
    assert verdict(there=(WEB,), noted_there=["web1"], documents=[document("web1", "kvm1")])[0] == "start"


def with_image(body: dict[str, t.Any], store: str) -> dict[str, t.Any]:
    return {**body, "request": {"memory_mib": 256, "vcpus": 1, "disks": [{"target": "vda", "source": "/dev/vg/web", "store": store}]}}


def test_a_domain_whose_image_another_one_uses_is_not_started() -> None:
    """While its host was away, its owner has imported the image elsewhere under another UUID. A block device has no locks."""
    web, other = with_image(WEB, "lvm:web"), domain("web", active=True)
    kind, why = verdict(here=(web,), there=(with_image(other, "lvm:web"),))
    assert (kind, why.startswith("Its disk vda (/dev/vg/web) is in use by web"), "undefine it on kvm1" in why) == ("refuse", True, True), why
    assert verdict(here=(web,), there=(with_image(other, "lvm:other"),))[0] == "start"
    assert verdict(here=(web,), there=(with_image(domain("web"), "lvm:web"),))[0] == "start"


def by_drain(boot_id: str | None) -> dict[str, t.Any]:
    return {"why": ["autostart", "drain"], **({"boot_id": boot_id} if boot_id else {})}


@pytest.mark.parametrize(
    ("reason", "note", "boot_id", "kind"),
    [
        ("shutdown", {"why": ["autostart"]}, "boot B", "forget"),
        ("destroyed", {"why": ["libvirt-guests"]}, None, "forget"),
        ("unknown", {"why": ["autostart"]}, "boot B", "start"),
        ("crashed", {"why": ["autostart"]}, "boot B", "start"),
        ("shutdown", by_drain("boot B"), "boot B", "start"),
        ("shutdown", by_drain("boot A"), "boot B", "forget"),
        ("unknown", by_drain("boot A"), "boot B", "start"),
        ("shutdown", by_drain("boot A"), None, "start"),
        ("shutdown", by_drain(None), "boot B", "start"),
    ],
)
def test_a_guest_that_was_switched_off_since_it_was_noted_stays_off(reason: str, note: dict[str, t.Any], boot_id: str | None, kind: str) -> None:
    """A drain switches a guest off, too: in the boot of the drain, libvirt's reason does not tell who has done it."""
    found, why = verdict(here=({**WEB, "state": "shut off", "reason": reason},), note=note, boot_id=boot_id)
    assert (found, f"It was started and stopped again ({reason})" in why) == (kind, kind == "forget"), why


def test_a_host_known_only_to_the_ledger_is_silent_unless_it_was_renamed() -> None:
    renamed = dataclasses.replace(facts("kvm3"), host_id=uid("id old"))
    entries = list(map(host_entry, (host("kvm1"), host("scrapped"), host("old"))))
    assert list_silent_hosts({"kvm1": facts("kvm1"), "kvm3": renamed}, entries, []) == ["scrapped"]


def test_a_host_whose_document_cannot_be_read_is_silent_unless_it_answers() -> None:
    damaged, later = UnreadableHost(uid("id kvm2")), UnreadableHost(uid("id kvm3"), {"name": "kvm3"})
    for there, accepted, silent in (
        ({}, [], [uid("id kvm2"), uid("id kvm3")]),
        ({}, [uid("id kvm2")], [uid("id kvm3")]),
        ({"kvm2": facts("kvm2"), "renamed": facts("kvm3")}, [], []),
    ):
        found = list_silent_hosts({"kvm1": facts("kvm1"), **there}, [host_entry(host("kvm1"))], accepted, [damaged, later])
        assert found == sorted(silent)


def test_starts_are_not_planned_without_facts_of_the_host() -> None:
    with pytest.raises(InvalidArgument, match="There are no facts of kvm1"):
        sort_starts([decode(NotedDomain, noted("web1"))], StartInputs("kvm1", {"kvm1": None}))


@pytest.mark.parametrize(
    ("value", "mode"),
    [("autostart", "autostart"), ("as_recorded", "as_recorded"), ("none", "none"), (True, "autostart"), ("yes", "autostart"), (False, "none"), ("off", "none")],
)
def test_a_truth_value_says_whether_domains_are_started_at_all(value: bool | str, mode: str) -> None:
    assert read_start_mode(value) == mode
