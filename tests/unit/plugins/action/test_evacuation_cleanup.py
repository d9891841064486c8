# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(evacuation_cleanup)'s control half with a fake host: on which hosts it cleans nothing."""

from __future__ import annotations

import pathlib
import types
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.evacuation_cleanup import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

ID, HOST_UUID = (str(uuid.UUID(int=number)) for number in (1, 2))
WEB = f.uuid_of("web")


def test_a_host_with_the_identity_of_another_host_of_the_inventory_is_not_cleaned(tmp_path: pathlib.Path) -> None:
    """Its records would be completed although the original still has the domains."""
    ledger = FileLedger(str(tmp_path / "ledger"))
    ledger.put_host(host_entry({"name": "kvm1", "host_id": ID, "host_uuid": HOST_UUID, "machine_id": "m1", "state": "fenced", "since": "then"}), None)
    identity = {"host_id": ID, "machine_id": "m1", "hostname": "kvm7", "host_uuid": HOST_UUID, "ledger_id": ledger.ledger_id}
    action = ActionModule.__new__(ActionModule)
    action._loader = None
    action._task = types.SimpleNamespace(args={}, async_val=0, check_mode=False, diff=False, delegate_to=None)
    action._execute_module = lambda **_options: {"changed": False, "identity": identity, "libvirt_error": None, "remembered": []}

    def clean(others: dict[str, t.Any]) -> dict[str, t.Any]:
        return action.run_with_options(task_vars("kvm7", {"kvmfleet_ledger": str(tmp_path / "ledger")}, others))

    with pytest.raises(Conflict, match="lead to one host, or to one and a copy of its disk"):
        clean({"kvm1": {}})
    assert not clean({})["changed"]


@pytest.mark.parametrize(
    ("here", "there", "is_left"),
    [("shut off", "running", True), ("shut off", "shut off", True), ("shut off", None, False), ("running", "shut off", False)],
)
def test_a_copy_that_an_evacuation_under_a_lost_ledger_left_is_refused(tmp_path: pathlib.Path, here: str, there: str | None, is_left: bool) -> None:
    """The new ledger has none of its records. Its owner may have switched the guest off, and the copy would start as if it were the guest."""
    ledger, former = FileLedger(str(tmp_path / "ledger")), str(uuid.uuid4())
    ledger.put_host(host_entry({"name": "kvm1", "host_id": ID, "host_uuid": HOST_UUID, "machine_id": "m1", "state": "enabled", "since": "then"}), None)
    identity = {"host_id": ID, "machine_id": "m1", "hostname": "kvm1", "host_uuid": HOST_UUID, "ledger_id": ledger.ledger_id}
    ends = HostRef("kvm1", ID, HOST_UUID), HostRef("kvm2", str(uuid.uuid4()), str(uuid.uuid4()))
    record = encode(new_record(s.EVACUATION, DomainRef(WEB, "web"), *ends, {}, "x"))
    plan = {"uuid": WEB, "name": "web", "record": record["id"], "kind": "clean", "reason": "", "where": "kvm2", "present": True}
    plans = [{**plan, "managed_save": None, "nvram": None, "tpm": None, "disks": []}]
    answers = {"identify": {"identity": identity, "libvirt_error": None, "remembered": []}, "survey": {"plans": plans}}
    action = ActionModule.__new__(ActionModule)
    action._loader = None
    action._task = types.SimpleNamespace(args={}, async_val=0, check_mode=False, diff=False, delegate_to=None)
    phases = list[str]()

    def execute(**options: t.Any) -> dict[str, t.Any]:
        phases.append(options["module_args"]["_work"]["phase"])
        return {"changed": False, **answers[phases[-1]]}

    action._execute_module = execute
    facts = {
        "kvm1": f.host("kvm1", domains=[f.domain("web", active=here == "running")]),
        "kvm2": {**f.host("kvm2", domains=[f.domain("web", active=there == "running")] if there else []), "remembered": [{**record, "ledger_id": former}]},
    }
    others = {"kvm2": {"ansible_facts": {"kvmfleet_host": facts["kvm2"]}}}
    own = {"kvmfleet_ledger": str(tmp_path / "ledger"), "ansible_facts": {"kvmfleet_host": facts["kvm1"]}}
    result = action.run_with_options(task_vars("kvm1", own, others))
    assert ([one["uuid"] for one in result["refused"]], phases) == (([WEB], ["identify", "survey"]) if is_left else ([], ["identify"]))
    assert [one["id"] for one in result["missing_records"]] == [one["record"] for one in result["refused"]]
    if is_left:
        assert f"kvm2 remembers the evacuation of domain web from kvm1 to kvm2 under another ledger ({former})" in result["refused"][0]["reason"]
