# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lookup ledger in real plays on a real etcd: certificates and a vaulted password out of the inventory, and neither shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "lab"))

from kvmlab.etcd import Cluster

COLLECTIONS = next(parent.parent for parent in Path(__file__).resolve().parents if parent.name == "ansible_collections")
ASKED = "{{ lookup('kvmfleet.migration.ledger', 'migrations', query='[].domain.name') | to_json }}"


@pytest.fixture(scope="module")
def secured_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One member that wants certificates, and users for its keys; a move is in its ledger."""
    cluster = Cluster(tmp_path_factory.mktemp("guarded") / "cluster")
    try:
        cluster.up(members=1, tls=True, prefix="/fleet")
        domain = DomainRef("55555555-0000-4000-8000-000000000001", "web1")
        open_ledger(cluster.location(), cluster.options).open_record(
            new_record(s.LIVE_MIGRATION, domain, HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "me")
        )
        yield cluster
    finally:
        cluster.down()


def ansible(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one of Ansible's commands, with the vault's password at hand."""
    (folder / "vault").write_text("open sesame")
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_VAULT_PASSWORD_FILE": str(folder / "vault"),
        "HOME": str(folder),
        "ANSIBLE_NOCOLOR": "1",
        "COLUMNS": "1000",
    }
    argv = [sys.executable, "-m", "ansible", *words]
    return subprocess.run(argv, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def read_names(folder: Path, cluster: Cluster, password: str) -> subprocess.CompletedProcess[str]:
    """Read the names of domains in the ledger into the file C(result), as loudly as Ansible can."""
    vaulted = ansible(folder, "vault", "encrypt_string", password)
    assert vaulted.returncode == 0, vaulted.stderr
    options = {**cluster.options, "password": "{{ vaulted_password }}", "ca_file": "{{ certificates }}/ca.pem"}
    variables = {
        "kvmfleet_ledger": "etcd://{{ members }}/fleet",
        "members": cluster.endpoints[0],
        "certificates": str(Path(cluster.options["ca_file"]).parent),
        "kvmfleet_etcd": options,
        "ansible_python_interpreter": sys.executable,
    }
    host_vars = folder / "host_vars"
    host_vars.mkdir()
    (folder / "inventory.yml").write_text(json.dumps({"all": {"hosts": {"localhost": {"ansible_connection": "local"}}, "vars": variables}}))
    (host_vars / "localhost.yml").write_text(f"vaulted_password: {vaulted.stdout}\n")
    tasks: list[dict[str, t.Any]] = [{"ansible.builtin.copy": {"content": ASKED, "dest": str(folder / "result"), "mode": "0600"}}]
    (folder / "play.yml").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    return ansible(folder, "playbook", "-vvvv", "-i", str(folder / "inventory.yml"), str(folder / "play.yml"))


def test_a_play_reads_the_ledger_with_certificates_and_a_vaulted_password(tmp_path: Path, secured_cluster: Cluster) -> None:
    done = read_names(tmp_path, secured_cluster, secured_cluster.options["password"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "result").read_text()) == ["web1"]
    assert secured_cluster.options["password"] not in done.stdout + done.stderr


def test_a_wrong_password_is_refused_and_not_shown(tmp_path: Path, secured_cluster: Cluster) -> None:
    done = read_names(tmp_path, secured_cluster, "not-the-password-of-fleet")
    assert done.returncode != 0
    assert "rejects the user 'fleet'" in done.stdout
    assert "not-the-password-of-fleet" not in done.stdout + done.stderr
