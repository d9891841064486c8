# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module migration_info: what is moving, and for one domain whether the host has it at all."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotFound
from ansible_collections.kvmfleet.migration.plugins.modules import migration_info
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet

Result = dict[str, t.Any]


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> FakeFleet:
    fleet = FakeFleet()
    fleet.guest()
    monkeypatch.setattr(migration_info, "open_reader", fleet.open)
    monkeypatch.setattr(migration_info, "read_unfinished_states", dict)
    return fleet


def ask(**params: t.Any) -> Result:
    module = types.SimpleNamespace(params={"uri": LOCAL_URI, "name": None, "uuid": None, **params})
    return t.cast(Result, migration_info.migration_info(t.cast(t.Any, module)))


@pytest.mark.parametrize("named", [{"name": "web1"}, {"uuid": UUID.upper()}])
def test_a_named_domain_is_returned_with_its_state_also_while_it_does_not_move(fleet: FakeFleet, named: Result) -> None:
    assert ask(**named) == {"changed": False, "domain": {"uuid": UUID, "name": "web1", "state": "running", "active": True}, "migrations": []}
    fleet.begin_elsewhere()
    found = ask(**named)
    assert (found["domain"]["uuid"], [one["domain"]["uuid"] for one in found["migrations"]]) == (UUID, [UUID])


def test_without_a_name_only_migrations_are_listed(fleet: FakeFleet) -> None:
    assert ask() == {"changed": False, "migrations": []}


def test_a_domain_that_the_host_does_not_have_is_an_error(fleet: FakeFleet) -> None:
    with pytest.raises(NotFound):
        ask(name="nosuch")
