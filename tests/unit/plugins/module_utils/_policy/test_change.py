# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument, InvalidState, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy import phases
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.change import Change, Definitions, apply, change_from, in_force
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.document import changed, parse

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
WHAT = "domain web1 on kvm1"


def both(**values: t.Any) -> Definitions:
    return {"live": changed("", values), "config": changed("", values)}


def test_each_definition_keeps_what_the_task_does_not_name() -> None:
    before = {"live": changed("", {"priority": 1, "drain": "leave"}), "config": changed("", {"priority": 2, "profile": "a"})}
    after = apply(Change({"priority": 9}, ("drain",)), before, WHAT)
    assert parse(after["live"]).values == {"priority": 9}
    assert parse(after["config"]).values == {"priority": 9, "profile": "a"}
    assert in_force(after) == after["live"]


def test_a_domain_that_is_off_is_ruled_by_its_definition() -> None:
    assert in_force({"config": "<policy/>"}) == "<policy/>"
    assert in_force({}) == ""


def test_absent_takes_away_what_cannot_be_read() -> None:
    assert apply(Change(absent=True), {"live": "<policy", "config": "<policy><drain>x</drain></policy>"}, WHAT) == {"live": "", "config": ""}


def test_a_persistent_definition_that_is_wrong_is_named_as_such() -> None:
    with pytest.raises(InvalidArgument, match=r"the persistent definition of domain web1 on kvm1.*<drain>"):
        apply(Change({"priority": 1}), {"live": "", "config": "<policy><drain>x</drain></policy>"}, WHAT)


def test_both_features_are_refused_when_set_and_shown_when_read() -> None:
    with pytest.raises(Conflict, match="auto_converge and post_copy"):
        apply(Change({"post_copy": True}), both(auto_converge=True), WHAT)
    assert apply(Change(), both(auto_converge=True, post_copy=True), WHAT) == both(auto_converge=True, post_copy=True)
    assert apply(Change({"auto_converge": False}), both(auto_converge=True, post_copy=True), WHAT)


def test_a_change_survives_its_way_to_the_host() -> None:
    change = Change({"priority": 1}, ("drain",))
    assert change_from(change.as_dict()) == change
    assert not Change().is_wanted


class Host:
    """A host that keeps one domain's policies."""

    def __init__(self, definitions: Definitions, failing: t.Optional[str] = None) -> None:
        self.definitions = definitions
        self.writes: t.List[t.Tuple[str, ...]] = []
        self.failing = failing

    def policies(self, uuid: str) -> Definitions:
        return dict(self.definitions)

    def set_policy(self, uuid: str, xml: str, scopes: t.Sequence[str]) -> None:
        if self.failing in scopes:
            raise InvalidState("Domain has a job in progress.")
        self.writes.append(tuple(scopes))
        self.definitions.update(dict.fromkeys(scopes, xml))

    def close(self) -> None:
        pass


def write(host: Host, monkeypatch: pytest.MonkeyPatch, **setting: t.Any) -> None:
    monkeypatch.setattr(phases, "open_host", lambda uri: host)
    phases.write("qemu:///system", {"uuid": UUID, "change": Change(setting).as_dict(), "what": WHAT})


def test_equal_definitions_are_written_in_one_call_and_an_unchanged_one_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(both(priority=1))
    write(host, monkeypatch, priority=2)
    assert host.writes == [("config", "live")]
    write(host, monkeypatch, priority=2)
    assert len(host.writes) == 1
    host.definitions["live"] = ""
    write(host, monkeypatch, priority=2)
    assert host.writes[1:] == [("live",)]


def test_a_second_write_that_fails_says_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host({"live": "", "config": changed("", {"drain": "leave"})}, failing="live")
    with pytest.raises(KvmfleetError, match="config definition of domain web1 on kvm1 has the new policy already") as caught:
        write(host, monkeypatch, priority=2)
    assert caught.value.error_code == "invalid_state"
