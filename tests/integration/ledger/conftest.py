# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Three hosts, three members of an etcd that wants certificates and a password, and control nodes that share nothing else."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Record
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, fresh_lab

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', 'etc')}e"


class Node(Control):
    """A control node whose ledger is in the lab's etcd; several of them have nothing else in common."""

    options = ("-e", "@variables.json")

    def __init__(self, lab: Lab, folder: pathlib.Path) -> None:
        folder.mkdir()
        super().__init__(lab, folder)
        self.variables: dict[str, t.Any] = json.loads(lab("etcd", "variables"))
        (folder / "variables.json").write_text(json.dumps(self.variables), encoding="utf-8")
        self.where = str(self.variables["kvmfleet_ledger"])

    @property
    def shared(self) -> Ledger:
        return open_ledger(self.where, self.variables["kvmfleet_etcd"])

    def records(self) -> list[Record]:
        return sorted(encode(list(self.shared.list_records())), key=lambda record: str(record["created_at"]))

    def verify_audit(self) -> None:
        assert self.shared.verify_audit() == []

    def begin_drain(self, number: int, **variables: t.Any) -> t.Any:
        """Begin the playbook C(drain) for a host."""
        return self.popen(self.playbook_command("drain", {"target": self.name(number), **variables}))


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    """Three hosts of their own: they are drained."""
    with fresh_lab(PREFIX, 3) as lab:
        yield lab


@pytest.fixture
def etcd(lab: Lab) -> t.Iterator[t.Callable[..., str]]:
    """A new cluster; what is called deals with its members."""
    lab("etcd", "down")
    lab("etcd", "up", "--tls", "--users")
    yield lambda *words: lab("etcd", *words)
    lab("etcd", "down")


@pytest.fixture
def nodes(lab: Lab, etcd: t.Callable[..., str], tmp_path: pathlib.Path) -> t.Iterator[list[Node]]:
    """Two control nodes; at the end of each scenario the audit holds."""
    nodes = [Node(lab, tmp_path / name) for name in ("one", "other")]
    yield nodes
    nodes[0].verify_audit()
