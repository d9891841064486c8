# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the control node does with the facts that a host returns."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader

from ansible_collections.kvmfleet.migration.plugins.action import host_facts as module
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import age_seconds
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import FakeHostvars

FACTS = {"gathered_at": "1970-01-01T00:00:00.000Z", "host_uuid": "a"}


VARIABLES = {"inventory_hostname": "kvm1", "hostvars": FakeHostvars({"kvm1": {}, "kvm2": {"ansible_host": "10.0.0.2"}, "kvm3": {}})}


def action(**args: t.Any) -> module.ActionModule:
    made = module.ActionModule.__new__(module.ActionModule)
    made._task, made._loader = types.SimpleNamespace(args=args, delegate_to=None), DataLoader()
    return made


def outcome(monkeypatch: pytest.MonkeyPatch, answer: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return what the action makes of the module's answer."""
    monkeypatch.setattr(module.NormalAction, "run", lambda self, tmp=None, task_vars=None: answer)
    return t.cast("dict[str, t.Any]", action().run(None, dict(VARIABLES)))


def test_links_are_probed_by_uri_and_returned_by_name_on_a_retry_too(monkeypatch: pytest.MonkeyPatch) -> None:
    links = {"qemu+ssh://10.0.0.2/system?no_tty=1": 112.5, "qemu+tcp://kvm9/system": 60.0}
    monkeypatch.setattr(module.NormalAction, "run", lambda self, tmp=None, task_vars=None: {"ansible_facts": {"kvmfleet_host": {**FACTS, "links": links}}})
    probing = action(link_to=["kvm1", "kvm2", "qemu+tcp://kvm9/system", "kvm3", "kvm4"])
    for _try in range(2):
        facts = probing.run(None, dict(VARIABLES))["ansible_facts"]["kvmfleet_host"]
        assert facts["links"] == {"kvm2": 112.5, "qemu+tcp://kvm9/system": 60.0}
    assert probing._task.args["link_to"] == ["qemu+ssh://10.0.0.2/system?no_tty=1", "qemu+tcp://kvm9/system", "qemu+ssh://kvm3/system?no_tty=1"]


def test_links_can_be_given_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.NormalAction, "run", lambda self, tmp=None, task_vars=None: {})
    probing = action(link_to="kvm2, kvm3")
    probing.run(None, dict(VARIABLES))
    assert probing._task.args["link_to"] == ["qemu+ssh://10.0.0.2/system?no_tty=1", "qemu+ssh://kvm3/system?no_tty=1"]


def test_a_host_to_which_memory_is_sent_over_another_network_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.NormalAction, "run", lambda self, tmp=None, task_vars=None: {})
    hosts = {
        "kvm1": {},
        "kvm2": {"ansible_host": "10.0.0.2", "kvmfleet_migration_address": "192.168.9.2"},
        "kvm3": {"ansible_host": "fd00::3", "kvmfleet_migration_address": "FD00::3"},
    }
    probing = action(link_to=["kvm2", "kvm3", "qemu+tcp://kvm9/system"])
    probing.run(None, {**VARIABLES, "hostvars": FakeHostvars(hosts)})
    assert probing._task.args["link_to"] == ["qemu+ssh://[fd00::3]/system?no_tty=1", "qemu+tcp://kvm9/system"]


def test_no_more_hosts_are_looked_up_than_are_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain names all of its candidates, and the variables of hundreds of hosts take seconds."""

    class Hosts(FakeHostvars):
        def raw_get(self, host: str) -> dict[str, t.Any]:
            asked.add(host)
            return super().raw_get(host)

    asked: set[str] = set()
    names = [f"kvm{number}" for number in range(1, 9)]
    monkeypatch.setattr(module.NormalAction, "run", lambda self, tmp=None, task_vars=None: {})
    action(link_to=names).run(None, {**VARIABLES, "hostvars": Hosts({name: {} for name in names})})
    assert asked <= {"kvm1", "kvm2", "kvm3", "kvm4"}


def test_a_link_that_has_no_valid_uri_is_an_error() -> None:
    variables = {**VARIABLES, "kvmfleet_transport": "odd"}
    result = action(link_to=["kvm2"]).run(None, variables)
    assert (result["failed"], result["error_code"]) == (True, "invalid_argument")


def test_facts_get_the_time_of_their_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    result = outcome(monkeypatch, {"changed": False, "ansible_facts": {"kvmfleet_host": dict(FACTS), "discovered": 1}})
    told = result["ansible_facts"]["kvmfleet_host"]
    assert {**told, "received": None} == {**FACTS, "received": None}
    assert age_seconds(told) is not None
    assert (result["changed"], result["ansible_facts"]["discovered"]) == (False, 1)


@pytest.mark.parametrize(
    "answer",
    [
        {"failed": True, "msg": "no libvirt", "error_code": "unreachable"},
        {"unreachable": True, "msg": "no route"},
        {"ansible_job_id": "j1", "started": 1},
        {"ansible_facts": None},
        {"ansible_facts": {"kvmfleet_host": 5}},
    ],
)
def test_an_answer_without_facts_is_returned_unchanged(monkeypatch: pytest.MonkeyPatch, answer: dict[str, t.Any]) -> None:
    assert outcome(monkeypatch, dict(answer)) == answer


@pytest.mark.parametrize("error", [AnsibleError("A worker was found in a dead state"), OSError(11, "Resource temporarily unavailable")])
def test_a_control_node_that_cannot_ask_all_hosts_at_once_asks_one_after_the_other(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The number of processes or open files of a container is limited; the loop needs few."""

    def fail(*_: object) -> t.NoReturn:
        raise error

    monkeypatch.setattr(module, "run_side_by_side", fail)
    monkeypatch.setattr(module, "_answers", {})
    monkeypatch.setattr(module.NormalAction, "run", lambda self, tmp=None, task_vars=None: {"ansible_facts": {"kvmfleet_host": dict(FACTS)}})
    asking = action(_work={"hosts": ["kvm1", "kvm2"]})
    asking._task.delegate_to = "kvm2"
    assert "received" in asking.run(None, dict(VARIABLES))["ansible_facts"]["kvmfleet_host"]
