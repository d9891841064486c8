# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Destinations that others than the scheduler refuse: each refusal is a record and a notice, the guest is not touched, and check mode writes nothing."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk, check_moved, check_untouched
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Outcome
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver

Make = t.Callable[..., str]
TWIN = "<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory><os><type>hvm</type></os></domain>"
SMALL = ("--mib", "48", "--dirty-mib", "8", "--rate", "500", "--integrity")


@pytest.fixture
def receiver(control: Desk) -> Iterator[Receiver]:
    with Receiver() as receiver:
        control.variables(1, kvmfleet_notices={"url": receiver.url, "timeout_seconds": 2})
        yield receiver


def check_recorded(lab: Lab, control: Desk, receiver: Receiver, done: Outcome, name: str, code: str, *told: str) -> None:
    """The task failed with that code, its only record and the only notice say so, and the guest was not touched."""
    assert done.refused() == code, done.text
    assert done.ended() == ("conflict", None), done.text
    assert control.only_record() == done.record
    detail = done.record["history"][-1]["detail"]
    assert [text for text in told if text not in done.msg or text not in detail] == [], done.text
    assert receiver.kinds() == ["move.conflict"]
    data = receiver.events()[0]["data"]
    assert (data["record"], data["status"], data["detail"], data["domain"]["name"]) == (done.record["id"], "conflict", detail, name)
    check_untouched(lab, name)
    control.verify_audit()


@pytest.mark.long
def test_a_silent_destination_is_recorded_and_the_guest_moves_later(
    lab: Lab, control: Desk, receiver: Receiver, web: str, stopped: t.Callable[[int], None]
) -> None:
    stopped(2)
    assert control.move(web, 2, "--check").refused() == "unreachable"
    assert (control.records(), receiver.kinds()) == ([], [])
    check_recorded(lab, control, receiver, control.move(web, 2), web, "unreachable", lab.host(2), "does not answer")
    check_moved(lab, control.move(web, 3), web, 3)
    assert [record["status"] for record in control.records()] == ["conflict", "completed"]


@pytest.mark.long
def test_a_name_that_is_taken_at_the_destination_is_recorded(lab: Lab, control: Desk, receiver: Receiver, web: str) -> None:
    lab("virsh", lab.host(2), "define", "/dev/stdin", stdin=TWIN.format(name=web))
    try:
        done, uuid = control.move(web, 2), lab.virsh(2, "domuuid", web).strip()
    finally:
        lab.virsh(2, "undefine", web)
    check_recorded(lab, control, receiver, done, web, "conflict", lab.host(2), f"another domain named {web} ({uuid})")


def test_storage_that_is_not_shared_is_recorded(lab: Lab, control: Desk, receiver: Receiver, guest: Make) -> None:
    name = guest("stored", *SMALL, "--storage", "local")
    check_recorded(lab, control, receiver, control.move(name, 2), name, "unsafe", "vda")


@pytest.mark.long
def test_versions_that_cannot_carry_the_move_out_are_recorded(lab: Lab, control: Desk, receiver: Receiver, web: str) -> None:
    done = control.move(web, 2, post_copy=True, parallel_connections=2)
    check_recorded(lab, control, receiver, done, web, "not_supported", "parallel_connections cannot be combined with post_copy")


@pytest.mark.long
def test_without_a_destination_one_record_has_the_reasons_of_all_hosts(
    lab: Lab, control: Desk, receiver: Receiver, guest: Make, stopped: t.Callable[[int], None]
) -> None:
    name = guest("stored", *SMALL, "--storage", "local")
    stopped(3)
    check_recorded(lab, control, receiver, control.move(name, None), name, "conflict", lab.host(2), "vda", lab.host(3), "does not answer")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"name": "nobody"}, "not_found"),
        pytest.param({"force": True}, "invalid_argument", marks=pytest.mark.long),
        pytest.param({"destination": "no-such-host.invalid"}, "unreachable", marks=pytest.mark.long),
        pytest.param({"destination_uri": "xen+tcp://no-such-host.invalid/system"}, "invalid_argument", marks=pytest.mark.long),
        pytest.param({"destination": "SOURCE"}, "invalid_argument", marks=pytest.mark.long),
        pytest.param({"destination": "SECOND", "compression": "xbzrle", "parallel_connections": 2}, "not_supported", marks=pytest.mark.long),
    ],
)
def test_bad_input_leaves_no_record_and_no_notice(lab: Lab, control: Desk, receiver: Receiver, web: str, given: dict[str, t.Any], code: str) -> None:
    names = {"SOURCE": lab.host(1), "SECOND": lab.host(2)}
    done = control.task(1, "live_migrate", {"name": web, **{key: names.get(value, value) for key, value in given.items()}})
    assert done.refused() == code, done.text
    assert (control.records(), receiver.kinds()) == ([], [])
    check_untouched(lab, web)
