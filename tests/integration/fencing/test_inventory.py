# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(kvmfleet_fencing) as it comes out of a real inventory, templated and with a password from the vault, used by an action plugin in Ansible's worker."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

PASSWORD = "hunter2 'of' the BMC"

# What the roles' own action plugins do, and nothing more.
ACTION = """
from ansible.plugins.action import ActionBase
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import parse_fencing
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fencing import fence_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import TaskSettings


class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        host = self._task.args["host"]
        try:
            config = parse_fencing(TaskSettings(task_vars, self._loader).of(host, "kvmfleet_fencing"), host)
            return {"evidence": encode(fence_host(config, None, "nobody")) if config else None}
        except KvmfleetError as error:
            return {"failed": True, **error.as_result()}
"""

Fence = t.Callable[[str], tuple[dict[str, t.Any], str]]


@pytest.fixture
def ansible_fences(lab: Lab, agent: pathlib.Path, tmp_path: pathlib.Path) -> Fence:
    """Return a function that fences a host by a task, as verbosely as can be, and gives its result and all that was printed."""
    (tmp_path / "actions").mkdir()
    (tmp_path / "actions" / "fence_by_inventory.py").write_text(ACTION)
    (tmp_path / "vault").write_text("vault password\n")
    encrypt = ["ansible-vault", "encrypt_string", "--vault-password-file", "vault", "--name", "bmc_password", PASSWORD]
    vaulted = subprocess.run(encrypt, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300).stdout
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text(vaulted)
    options = {"plug": "{{ inventory_hostname }}", "lanplus": True, "password": "{{ bmc_password }}"}
    fencing = {"agent": str(agent), "options": options, "timeout_seconds": "{{ 30 + 15 }}"}
    broken = {"agent": str(agent), "options": {"password": "{{ bmc_password }}\naction=on"}}
    hosts = {lab.host(1): {}, lab.host(2): {"kvmfleet_fencing": broken}, "kvm-none": {"kvmfleet_fencing": None}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"vars": {"kvmfleet_fencing": fencing}, "hosts": hosts}}))
    environment = {**os.environ, "ANSIBLE_ACTION_PLUGINS": str(tmp_path / "actions")}

    def run(host: str) -> tuple[dict[str, t.Any], str]:
        command = ["ansible", "-i", "hosts.json", "--vault-password-file", "vault", host, "-m", "fence_by_inventory", "-a", json.dumps({"host": host})]
        plain = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300)
        verbose = {**environment, "ANSIBLE_LOG_PATH": str(tmp_path / "log")}
        loud = subprocess.run([*command, "-vvvvv"], cwd=tmp_path, env=verbose, capture_output=True, text=True, check=False, timeout=300)
        printed = plain.stdout + plain.stderr + loud.stdout + loud.stderr + (tmp_path / "log").read_text()
        return json.loads(plain.stdout[plain.stdout.index("=> {") + 3 :]), printed

    return run


def test_a_host_is_fenced_with_templates_and_a_vaulted_password(lab: Lab, power: t.Callable[[int], bool], ansible_fences: Fence) -> None:
    result, printed = ansible_fences(lab.host(1))
    assert result["evidence"]["status"] == "off"
    assert result["evidence"]["output"] == f"action=status\nplug={lab.host(1)}\nlanplus=1\npassword=***\nStatus: OFF"
    assert (power(1), power(2)) == (False, True)
    assert "hunter2" not in printed


def test_a_bad_configuration_is_refused_without_its_values(lab: Lab, power: t.Callable[[int], bool], ansible_fences: Fence) -> None:
    result, printed = ansible_fences(lab.host(2))
    assert result["error_code"] == "invalid_argument"
    assert result["msg"].startswith(f"kvmfleet_fencing of {lab.host(2)}: its option password holds a line break")
    assert power(2)
    assert "hunter2" not in printed


@pytest.mark.long
def test_a_host_whose_fencing_is_null_has_no_agent(ansible_fences: Fence) -> None:
    assert ansible_fences("kvm-none")[0]["evidence"] is None
