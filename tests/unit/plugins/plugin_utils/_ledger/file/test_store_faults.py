# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A disk that fails at any system call of a unit: the error is the collection's, and the next access sees all of the unit or nothing."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import typing as t
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import find_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

NewMove = Callable[..., MoveRecord]
HOST_ID, HOST_UUID = (str(uuid.UUID(int=number)) for number in (1, 2))
HOST = {"name": "kvm1", "host_uuid": HOST_UUID, "state": "maintenance"}


class Scene:
    """A ledger with an open record, and a host that is known by its libvirt UUID."""

    def __init__(self, path: Path, new_move: NewMove) -> None:
        self.ledger = FileLedger(str(path))
        self.stored = self.ledger.open_record(new_move("web1"))
        self.ledger.put_host(host_entry({**HOST, "host_id": None}), None)
        self.new = new_move("web2")

    def open_record(self) -> None:
        self.ledger.open_record(self.new)

    def close_record(self) -> None:
        self.ledger.update_record(self.stored, self.stored.record.advance(s.CANCELLED, "x"))

    def rekey_host(self) -> None:
        self.ledger.put_host(host_entry({**HOST, "host_id": HOST_ID}), 1)

    def check(self, ledger: FileLedger) -> None:
        """Everything can be read, and says one thing."""
        assert (ledger.examine_contents(find_problems).all_problems, ledger.problems) == ([], [])
        assert bool(ledger.find_unsettled(self.new.domain.uuid)) is bool(ledger.read_domain(self.new.domain.uuid))
        held: Stored | None = ledger.find_unsettled(self.stored.record.domain.uuid)
        assert [record.status for record in ledger.list_records(domain="web1")] == [held.record.status if held else s.CANCELLED]
        assert [entry.host.state for entry in ledger.list_hosts()] == ["maintenance"]


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename", "unlink", "ftruncate", "pwrite"])
@pytest.mark.parametrize("act", [Scene.open_record, Scene.close_record, Scene.rekey_host])
def test_a_unit_is_atomic_whichever_call_fails(
    tmp_path: Path, new_move: NewMove, monkeypatch: pytest.MonkeyPatch, act: Callable[[Scene], None], call: str
) -> None:
    real = getattr(os, call)
    for number in itertools.count(1):
        scene, calls = Scene(tmp_path / str(number), new_move), itertools.count(1)

        def fail_once(*args: t.Any, number: int = number, calls: t.Iterator[int] = calls, **more: t.Any) -> t.Any:
            if next(calls) == number:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail_once)
            # Any other error would be a traceback for the operator.
            with contextlib.suppress(KvmfleetError):
                act(scene)
        for ledger in (FileLedger(scene.ledger.path), scene.ledger):
            scene.check(ledger)
        assert scene.ledger.open_record(new_move("web3")).record.generation == 1
        assert scene.ledger.verify_audit() == []
        if next(calls) <= number:
            return
