# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What C(migration_info) returns to root and to a user who may only read, on a fake host."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import own_moves
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, NotFound
from ansible_collections.kvmfleet.migration.plugins.modules import migration_info as module
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet

KEYS = ("id", "destination", "watched", "waiting")


class Task:
    """A module as its work sees it."""

    def __init__(self, **params: t.Any) -> None:
        self.params = {"uri": LOCAL_URI, "name": None, "uuid": None, **params}


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> FakeFleet:
    """A host that a guest is leaving, whose libvirt gives this user only its read-only connection."""
    fleet = FakeFleet(link_mib=1)
    fleet.guest(job=domain_states.JOB_OUTGOING)
    fleet.source.is_read_only = True
    monkeypatch.setattr(module, "open_reader", fleet.open)
    monkeypatch.setattr(module, "read_unfinished_states", lambda: None)
    monkeypatch.setattr(own_moves, "is_root", lambda: False)
    return fleet


def info(**params: t.Any) -> t.Dict[str, t.Any]:
    return module.migration_info(t.cast(t.Any, Task(**params)))


def test_a_user_sees_the_migrations_and_what_is_unknown_about_them(fleet: FakeFleet) -> None:
    result = info()
    (found,) = result["migrations"]
    assert (result["changed"], found["domain"]["uuid"], found["status"], found["watched"]) == (False, UUID, "running", None)
    assert tuple(result["unverified_reasons"]) == KEYS
    assert all("only root" in why for why in result["unverified_reasons"].values())
    assert (fleet.source.calls, [host.is_closed for host in fleet.connections]) == ([], [True])


def test_a_user_sees_one_domain_by_name_and_by_uuid(fleet: FakeFleet) -> None:
    assert [[found["domain"]["uuid"] for found in info(**by)["migrations"]] for by in ({"name": "web1"}, {"uuid": UUID})] == [[UUID], [UUID]]


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"name": "nobody"}, NotFound),
        ({"name": "a/b"}, InvalidArgument),
        ({"uuid": "no-uuid"}, InvalidArgument),
        ({"uri": "qemu+ext:///system"}, InvalidArgument),
    ],
)
def test_bad_options_of_a_user_are_refused(fleet: FakeFleet, params: t.Dict[str, t.Any], error: t.Type[Exception]) -> None:
    with pytest.raises(error):
        info(**params)


def test_root_gets_no_list_of_unknowns(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_moves, "is_root", lambda: True)
    monkeypatch.setattr(module, "read_unfinished_states", dict)
    assert set(info()) == {"changed", "migrations"}
    assert set(info(uri="qemu+ssh://kvm1/system")) == {"changed", "migrations"}
