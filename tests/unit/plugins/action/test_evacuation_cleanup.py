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
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

ID, HOST_UUID = (str(uuid.UUID(int=number)) for number in (1, 2))


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
