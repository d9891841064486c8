# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which of two features a move uses where both are only defaults of its source, and defaults that give way to what the task requests."""

from __future__ import annotations

import contextlib
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.situations import another_move, room_for, run_one_move

AUTO_CONVERGE, POST_COPY = "COMPUTE_MIGRATE_AUTO_CONVERGE", "COMPUTE_MIGRATE_POST_COPY"
BOTH = {"auto_converge": True, "post_copy": True}
ABLE: dict[str, t.Any] = {"traits": [AUTO_CONVERGE, POST_COPY], "missing_traits": {}, "unverified": []}
UNABLE: dict[str, t.Any] = {"traits": [AUTO_CONVERGE], "missing_traits": {POST_COPY: "The sysctl is 0."}, "unverified": []}
OPEN: dict[str, t.Any] = {"traits": [AUTO_CONVERGE], "missing_traits": {}, "unverified": [POST_COPY]}


def features_of(record: t.Any) -> dict[str, t.Any]:
    return {feature: (record.policy[feature]["value"], record.policy[feature]["source"]) for feature in BOTH}


@pytest.fixture
def fleet(control: Control) -> Control:
    """Two hosts of which both can do post-copy; the source prefers it by default."""
    control.fleet.guest(memory_bytes=4 * GIB)
    control.variables("kvm1")["kvmfleet_migration_policy"] = dict(BOTH)
    control.source.facts.update(kvm1=ABLE, kvm2=ABLE, kvm3=UNABLE)
    return control


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("source", "destination", "post_copy"),
    [(ABLE, ABLE, True), (UNABLE, ABLE, False), (ABLE, UNABLE, False), (OPEN, ABLE, False), (ABLE, OPEN, False)],
)
def test_both_defaults_mean_post_copy_where_both_hosts_can_and_auto_converge_elsewhere(
    fleet: Control, source: t.Any, destination: t.Any, post_copy: bool, check: bool
) -> None:
    fleet.source.facts.update(kvm1=source, kvm2=destination)
    job = run_one_move(fleet, check=check)
    assert job.error is None
    assert features_of(job.record) == {"post_copy": (post_copy, "host"), "auto_converge": (not post_copy, "host")}
    assert [warning for warning in fleet.warnings if "unverified" in warning] == []
    if not check:
        (order,) = fleet.source.orders
        assert [flag for flag in order["flags"] if flag in ("POSTCOPY", "AUTO_CONVERGE")] == ["POSTCOPY" if post_copy else "AUTO_CONVERGE"]


@pytest.mark.parametrize(("given", "expected"), [({"auto_converge": True}, (False, "task")), ({"post_copy": False}, (False, "task"))])
def test_what_the_task_decides_is_no_matter_of_preference(fleet: Control, given: dict[str, bool], expected: tuple[bool, str]) -> None:
    record = run_one_move(fleet, **given).record
    assert features_of(record)["post_copy"] == expected
    assert features_of(record)["auto_converge"] == (True, "task" if "auto_converge" in given else "host")


def test_a_domain_that_asks_for_one_feature_is_not_stopped_by_defaults_for_the_other(fleet: Control) -> None:
    fleet.variables("kvm1")["kvmfleet_migration_policy"] = {"auto_converge": True}
    fleet.source.policies[UUID] = {"post_copy": True}
    job = run_one_move(fleet)
    assert (job.error, job.record.status) == (None, s.COMPLETED)
    assert features_of(job.record) == {"post_copy": (True, "domain"), "auto_converge": (False, "domain")}


def test_the_feature_is_that_of_the_host_that_was_reserved_in_the_end(fleet: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    room_for(fleet, "kvm2", 9)
    room_for(fleet, "kvm3", 6)
    locked, pending = fleet.ledger.hold_lock, [lambda: another_move(fleet, "kvm2", 6 * 1024, s.SCHEDULED)]

    @contextlib.contextmanager
    def late(key: str, timeout_seconds: float = 30) -> Iterator[None]:
        while pending:
            pending.pop()()
        with locked(key, timeout_seconds):
            yield

    monkeypatch.setattr(fleet.ledger, "hold_lock", late)
    record = run_one_move(fleet, destination=None).record
    assert record.destination.host == "kvm3"
    assert features_of(record) == {"post_copy": (False, "host"), "auto_converge": (True, "host")}


@pytest.mark.parametrize(
    ("defaults", "expected"),
    [
        (BOTH, {"post_copy": (False, "host"), "auto_converge": (True, "host")}),
        ({"post_copy": True}, {"post_copy": (False, "task"), "auto_converge": (False, "default")}),
    ],
)
def test_a_default_for_post_copy_gives_way_to_parallel_connections_of_the_task(fleet: Control, defaults: dict[str, bool], expected: t.Any) -> None:
    """Before QEMU 10.1, libvirt's two features cannot be combined."""
    fleet.variables("kvm1")["kvmfleet_migration_policy"] = defaults
    job = run_one_move(fleet, parallel_connections=4)
    assert job.error is None
    assert features_of(job.record) == expected
    assert "POSTCOPY" not in fleet.source.orders[0]["flags"]


NEW_QEMU = {"versions": {"libvirt": 11_008_000, "hypervisor": 10_001_000}}


@pytest.mark.parametrize(("machine", "is_replaced"), [("pc-q35-8.0", False), ("pc-q35-8.0", True), ("pc-q35-7.2", False)])
@pytest.mark.parametrize("given", [{"parallel_connections": 4}, {"link_mib": 2000}, {"link_mib": 2000, "post_copy": True}])
def test_a_guest_with_an_old_qemu_or_machine_type_never_combines_both(fleet: Control, given: dict[str, t.Any], machine: str, is_replaced: bool) -> None:
    """libvirt reports the version of the installed QEMU, and the guest would be lost with that on which it runs. With an old machine type, the job hangs."""
    fleet.source.facts.update(kvm1={**ABLE, **NEW_QEMU}, kvm2={**ABLE, **NEW_QEMU})
    fleet.source.qemu_replaced = is_replaced
    fleet.fleet.source.domain(UUID).machine = machine
    job = run_one_move(fleet, **given)
    assert job.error is None
    assert ({"PARALLEL", "POSTCOPY"} <= set(fleet.source.orders[0]["flags"])) is (machine == "pc-q35-8.0" and not is_replaced)


def test_both_requested_for_a_guest_from_before_an_upgrade_are_refused(fleet: Control) -> None:
    fleet.source.facts.update(kvm1={**ABLE, **NEW_QEMU}, kvm2={**ABLE, **NEW_QEMU})
    fleet.source.qemu_replaced = True
    job = run_one_move(fleet, parallel_connections=4, post_copy=True)
    assert isinstance(job.error, e.NotSupported)
    assert "a guest runs on the QEMU that was installed when it started" in str(job.error)
    assert fleet.source.orders == []


def test_parallel_connections_with_post_copy_of_the_domain_stay_refused(fleet: Control) -> None:
    fleet.source.policies[UUID] = {"post_copy": True}
    job = run_one_move(fleet, parallel_connections=4)
    assert isinstance(job.error, e.NotSupported)
    assert [record.status for record in fleet.records()] == [s.CONFLICT]


@pytest.mark.parametrize(
    "policy",
    [
        {"force_pause_max_seconds": 0},
        {"force_pause_max_seconds": "30"},
        {"timeout_seconds_per_gib": 0},
        {"timeout_seconds_per_gib": 604801},
        {"timeout_seconds_per_gib": True},
    ],
)
def test_a_default_of_the_host_out_of_its_bounds_moves_nothing(fleet: Control, policy: dict[str, t.Any]) -> None:
    fleet.variables("kvm1")["kvmfleet_migration_policy"] = policy
    with pytest.raises(e.InvalidArgument, match=next(iter(policy))):
        fleet.run(name="web1", destination="kvm2")
    assert (fleet.records(), fleet.source.orders) == ([], [])


@pytest.mark.parametrize("given", [{"force_pause_max_seconds": 0}, {"force_pause_max_seconds": 604801}])
def test_a_forced_pause_out_of_its_bounds_moves_nothing(fleet: Control, given: dict[str, int]) -> None:
    with pytest.raises(e.InvalidArgument, match="force_pause_max_seconds"):
        fleet.run(name="web1", destination="kvm2", **given)
    assert (fleet.records(), fleet.source.orders) == ([], [])
