# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is checked of a request before a dead host is looked at, and the evidence that tasks leave."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, InvalidArgument, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.job import EvacuationTask
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.request import EvacuationRequest
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

Body = dict[str, t.Any]
PLAY = ["kvm2", "kvm3"]
DOCUMENT = {"host": "kvm1", "action": "off", "status": "off"}


def request(work: Body | None = None, **given: t.Any) -> EvacuationRequest:
    lists = {"accept_silent": [], "accept_fresh": []}
    plain = {"uri": "qemu:///system", "ledger": None, "force": False, "state": "as_recorded", "parallel": 4, "lock_wait_seconds": None}
    args = {"source": "kvm1", "domains": None, "fencing": None, "force_down": None, "accept_locked": None, **lists, **plain, **given}
    return EvacuationRequest.from_task(decode(EvacuationTask, {**args, "_work": {"play": PLAY, **(work or {})}}))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"source": ""}, "evacuate_host_source is empty: name the dead host. Nothing was started."),
        ({"source": "kvm2"}, "kvm2 is one of the hosts of the play: .*hosts: kvmfleet_hosts:!kvm2. Nothing was started."),
        ({"force_down": {"reason": ""}}, r"evacuate_host_force_down needs evacuate_host_reason: how do you know that kvm1 is off\?"),
        ({"accept_locked": {"images": ["/a"], "reason": ""}}, "evacuate_host_accept_locked needs evacuate_host_reason"),
        ({"force_down": {"reason": "pulled"}, "fencing": [DOCUMENT]}, "and other evidence are given. Give one of them. Nothing was started."),
        ({"force_down": {"reason": "pulled"}, "work": {"fence_tasks": "fence.yml"}}, "and other evidence are given. Give one of them."),
        ({"destination": "kvm9"}, "evacuate_host_destination is kvm9, which is not one of the hosts of the play: kvm2, kvm3. Nothing was started."),
        ({"destination": "kvm1"}, "evacuate_host_destination is kvm1, which is not one of the hosts of the play"),
    ],
)
def test_an_invalid_request_is_refused_first(given: Body, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        request(**given).check_options()


def test_a_request_with_one_kind_of_evidence_is_accepted() -> None:
    request().check_options()
    request(force_down={"reason": "pulled"}, accept_locked={"images": ["/a"], "reason": "seen"}).check_options()
    request(fencing=[DOCUMENT], work={"fence_tasks": "fence.yml"}).check_options()


def test_force_needs_a_destination() -> None:
    for given in ({"force": True}, {"force": True, "destination": ""}, {"force": True, "domains": ["web"]}):
        with pytest.raises(InvalidArgument, match=r"evacuate_host_force is true, but evacuate_host_destination is empty: .* Nothing was started\."):
            request(**given).check_choice()
    request(force=True, destination="kvm2").check_choice()


@pytest.mark.parametrize("domains", [[], [""], ["web", ""]])
def test_domains_without_a_name_are_refused(domains: list[str]) -> None:
    with pytest.raises(InvalidArgument, match=r"evacuate_host_domains has no name, or an empty one\. Name domains, or leave it out .* Nothing was started\."):
        request(domains=domains).check_choice()


def test_two_lists_of_domains_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"Both one and another name domains\. Set only one of them\. Nothing was started\."):
        request({"twice": ["one", "another"]}).check_choice()


def test_a_choice_of_domains_and_host_is_accepted() -> None:
    for given in ({}, {"domains": ["web"]}, {"destination": "kvm3"}, {"domains": ["web", "app"], "destination": "kvm2", "force": True}):
        request(**given).check_choice()
        request(**given).check_options()


def test_the_source_is_assessed_first_for_fence_tasks() -> None:
    assert not request().must_assess_first
    assert request(work={"fence_tasks": "fence.yml"}).must_assess_first


def asked(**hosts: Body | None) -> Body:
    return {"asked": {name: {"msg": "no route"} if facts is None else {"ansible_facts": {"kvmfleet_host": facts}} for name, facts in hosts.items()}}


def test_hosts_that_answered_are_the_survivors() -> None:
    facts: Body = {"kvm2": f.host("kvm2"), "kvm3": f.host("kvm3")}
    assert request(asked(**facts)).find_survivors(facts.get).hosts == tuple(PLAY)
    assert request(asked(kvm2=None, kvm3=facts["kvm3"])).find_survivors(facts.get).hosts == ("kvm3",)
    for silent in ({}, asked(kvm2=None, kvm3=None)):
        with pytest.raises(Unreachable, match=r"None of kvm2, kvm3 answers\. Check the connection"):
            request(silent).find_survivors(facts.get)


def test_hosts_on_which_the_user_is_not_root_are_no_survivors() -> None:
    """Nothing could be started there, so no host may be fenced for them."""
    facts: Body = {"kvm2": {**f.host("kvm2"), "unverified_reasons": {}}, "kvm3": f.host("kvm3")}
    assert request(asked(**facts)).find_survivors(facts.get).hosts == ("kvm3",)
    facts["kvm3"] = {**facts["kvm3"], "unverified_reasons": {"paths": "libvirt withholds it"}}
    with pytest.raises(Forbidden, match=r"root on none of kvm2, kvm3, .*become: true.* Nothing was started\."):
        request(asked(**facts)).find_survivors(facts.get)


def test_a_host_on_which_the_user_is_not_root_is_named_with_what_it_takes() -> None:
    facts: Body = {"kvm2": {**f.host("kvm2"), "unverified_reasons": {}}, "kvm3": f.host("kvm3")}
    found = request(asked(**facts)).find_survivors(facts.get)
    assert found.excluded == {"kvm2": "the user is not root there, and only root can start domains"}
    assert found.list_warnings("kvm1") == [
        (
            "kvm2 starts no domain of kvm1: the user is not root there, and only root can start domains. "
            "Set become: true for kvm2, or connect to it as root, and run this again."
        )
    ]
    silent = request(asked(kvm2=None, kvm3=facts["kvm3"])).find_survivors(facts.get)
    assert (silent.excluded, silent.list_warnings("kvm1")) == ({}, [])


def test_a_host_that_was_excluded_earlier_is_not_warned_of_again() -> None:
    facts: Body = {"kvm3": f.host("kvm3")}
    found = request({**asked(**facts), "play": ["kvm3"], "excluded": {"kvm2": "no root", "kvm3": "no root"}}).find_survivors(facts.get)
    assert (found.hosts, found.excluded, found.earlier, found.list_warnings("kvm1")) == (("kvm3",), {}, {"kvm2": "no root"}, [])


def test_a_domain_that_runs_twice_on_survivors_is_unsafe() -> None:
    facts: Body = {name: f.host(name, domains=[f.domain("web1")]) for name in PLAY}
    with pytest.raises(Unsafe, match=r"active on kvm2 and kvm3.* Nothing was started\."):
        request(asked(**facts)).find_survivors(facts.get)
    assert request(asked(kvm2=facts["kvm2"], kvm3=None)).find_survivors(facts.get).hosts == ("kvm2",)


def test_survivors_that_contradict_each_other_are_named_to_be_asked_again() -> None:
    """A domain that moved between two answers is active in both."""
    facts: Body = {name: f.host(name, domains=[f.domain("web1")]) for name in PLAY}
    found = request({**asked(**facts), "may_ask_again": True}).find_survivors(facts.get)
    assert (found.hosts, found.ask_again) == (tuple(PLAY), tuple(PLAY))
    facts["kvm2"] = f.host("kvm2")
    assert request({**asked(**facts), "may_ask_again": True}).find_survivors(facts.get).ask_again == ()


def test_facts_of_an_unexpected_form_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="expected form"):
        request(asked(kvm2=f.host("kvm2"))).find_survivors(lambda dummy: {"domains": 5})


def test_evidence_of_tasks_overrides_the_given_evidence() -> None:
    own = {**DOCUMENT, "at": "then"}
    tasks = {"fence_tasks": "fence.yml", "evidence": own}
    assert request(tasks, fencing=[DOCUMENT]).given_evidence("kvm1", check_mode=False) == [own]
    assert request({"evidence": [own, DOCUMENT]}).given_evidence("kvm1", check_mode=False) == [own, DOCUMENT]
    assert request({"evidence": []}, fencing=[DOCUMENT]).given_evidence("kvm1", check_mode=False) is None
    assert request(fencing=[DOCUMENT]).given_evidence("kvm1", check_mode=False) == [DOCUMENT]
    assert request({"evidence": ""}).given_evidence("kvm1", check_mode=False) is None


def test_fence_tasks_without_evidence_are_refused_except_in_check_mode() -> None:
    tasks = request({"fence_tasks": "fence.yml", "evidence": ""})
    with pytest.raises(Unsafe, match=r"fence.yml has set no fact evacuate_host_evidence, so there is no evidence that kvm1 is off\. Nothing was started\."):
        tasks.given_evidence("kvm1", check_mode=False)
    assert tasks.given_evidence("kvm1", check_mode=True) is None


@pytest.mark.parametrize("evidence", ["off", 5, ["off"], [DOCUMENT, None]])
def test_evidence_that_is_not_a_dictionary_is_refused(evidence: t.Any) -> None:
    with pytest.raises(InvalidArgument, match="must be a dictionary, or a list of dictionaries"):
        request({"evidence": evidence}).given_evidence("kvm1", check_mode=False)
