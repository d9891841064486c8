# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._domains import policy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, InvalidState, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policy_documents import (
    Definitions,
    PolicyChange,
    apply_change,
    change_policy,
    parse_policy,
    policy_in_force,
    read_change,
)

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
WHAT = "domain web1 on kvm1"


def both_definitions(**values: t.Any) -> Definitions:
    return {"live": change_policy("", values), "config": change_policy("", values)}


def test_fields_that_the_task_does_not_name_are_kept_in_each_definition() -> None:
    before = {"live": change_policy("", {"priority": 1, "drain": "leave"}), "config": change_policy("", {"priority": 2, "profile": "a"})}
    after = apply_change(PolicyChange({"priority": 9}, ("drain",)), before, WHAT)
    assert parse_policy(after["live"]).values == {"priority": 9}
    assert parse_policy(after["config"]).values == {"priority": 9, "profile": "a"}
    assert policy_in_force(after) == after["live"]


def test_the_persistent_policy_is_in_force_for_an_inactive_domain() -> None:
    assert policy_in_force({"config": "<policy/>"}) == "<policy/>"
    assert policy_in_force({}) == ""


def test_state_absent_removes_an_unreadable_policy() -> None:
    assert apply_change(PolicyChange(absent=True), {"live": "<policy", "config": "<policy><drain>x</drain></policy>"}, WHAT) == {"live": "", "config": ""}


def test_an_invalid_persistent_policy_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match=r"the persistent definition of domain web1 on kvm1.*<drain>"):
        apply_change(PolicyChange({"priority": 1}), {"live": "", "config": "<policy><drain>x</drain></policy>"}, WHAT)


def test_auto_converge_with_post_copy_is_refused_when_set_and_shown_when_read() -> None:
    with pytest.raises(Conflict, match="auto_converge and post_copy"):
        apply_change(PolicyChange({"post_copy": True}), both_definitions(auto_converge=True), WHAT)
    assert apply_change(PolicyChange(), both_definitions(auto_converge=True, post_copy=True), WHAT) == both_definitions(auto_converge=True, post_copy=True)
    assert apply_change(PolicyChange({"auto_converge": False}), both_definitions(auto_converge=True, post_copy=True), WHAT)


def test_a_change_survives_serialization() -> None:
    change = PolicyChange({"priority": 1}, ("drain",))
    assert read_change(change.as_dict()) == change
    assert not PolicyChange().is_wanted


class Host:
    """A host that keeps one domain's policies."""

    def __init__(self, definitions: Definitions, failing: t.Optional[str] = None) -> None:
        self.definitions = definitions
        self.writes: t.List[t.Tuple[str, ...]] = []
        self.failing = failing

    def read_policies(self, uuid: str) -> Definitions:
        return dict(self.definitions)

    def set_policy(self, uuid: str, xml: str, scopes: t.Sequence[str]) -> None:
        if self.failing in scopes:
            raise InvalidState("Domain has a job in progress.")
        self.writes.append(tuple(scopes))
        self.definitions.update(dict.fromkeys(scopes, xml))

    def close(self) -> None:
        pass


def write(host: Host, monkeypatch: pytest.MonkeyPatch, **setting: t.Any) -> None:
    monkeypatch.setattr(policy, "open_host", lambda uri: host)
    policy.write_policies("qemu:///system", {"uuid": UUID, "change": PolicyChange(setting).as_dict(), "what": WHAT})


def test_equal_definitions_are_written_in_one_call_and_an_unchanged_one_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(both_definitions(priority=1))
    write(host, monkeypatch, priority=2)
    assert host.writes == [("config", "live")]
    write(host, monkeypatch, priority=2)
    assert len(host.writes) == 1
    host.definitions["live"] = ""
    write(host, monkeypatch, priority=2)
    assert host.writes[1:] == [("live",)]


def test_a_second_write_that_fails_says_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host({"live": "", "config": change_policy("", {"drain": "leave"})}, failing="live")
    with pytest.raises(KvmfleetError, match="config definition of domain web1 on kvm1 has the new policy already") as caught:
        write(host, monkeypatch, priority=2)
    assert caught.value.error_code == "invalid_state"
