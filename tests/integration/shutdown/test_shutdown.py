# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(domain_shutdown) on guests that honour their power button, and on those that do not."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab, eventually

Make = t.Callable[..., str]


def begin(control: Control, name: str, *options: str, **arguments: t.Any) -> Running:
    return begin_with(control, {"name": name, **arguments}, *options)


def begin_with(control: Control, arguments: dict[str, t.Any], *options: str) -> Running:
    given = json.dumps(arguments)
    command = ["ansible", "-i", control.inventory, control.lab.host(1), "-m", "kvmfleet.migration.domain_shutdown", "-a", given, *options]
    return Running(control.popen(command))


def shut_down(control: Control, name: str, *options: str, **arguments: t.Any) -> Outcome:
    return begin(control, name, *options, **arguments).wait()


def test_a_guest_is_shut_down_once_and_its_definition_stays(lab: Lab, control: Control, guest: Make) -> None:
    polite = guest("polite", "--acpi")
    assert shut_down(control, polite, "--check").changed
    assert lab.places(polite) == {1: "running"}
    done = shut_down(control, polite)
    assert (done.changed, done.result["reason"], done.result["domain"]["uuid"]) == (True, "shutdown", lab.uuid(polite))
    assert lab.places(polite) == {1: "shut off"}
    again = shut_down(control, polite)
    assert (again.code, again.changed, again.result["reason"]) == (0, False, "shutdown")


@pytest.mark.long
def test_a_transient_guest_is_gone_after_its_shutdown(lab: Lab, control: Control, guest: Make) -> None:
    passing = guest("passing", "--acpi", "--transient")
    assert shut_down(control, passing).result["reason"] == "shutdown"
    assert lab.places(passing) == {}


def test_a_guest_that_does_not_react_times_out_and_keeps_running(lab: Lab, control: Control, guest: Make) -> None:
    deaf = guest("deaf", "--dirty-mib", "16", "--rate", "500")
    done = shut_down(control, deaf, wait_seconds=3)
    assert (done.code != 0, done.result["error_code"]) == (True, "timeout")
    assert "after 3 s. It was not destroyed" in done.msg
    assert lab.places(deaf) == {1: "running"}
    assert lab.check(deaf)["intact"]
    assert control.move(deaf).ended() == ("completed", None)


@pytest.mark.long
def test_a_guest_that_is_shutting_down_cannot_be_moved_and_a_destroy_is_reported(lab: Lab, control: Control, guest: Make) -> None:
    deaf = guest("deaf")
    lock = f"/run/kvmfleet/{lab.uuid(deaf)}.lock"
    waiting = begin(control, deaf, wait_seconds=500)
    eventually(lambda: lab.try_("exec", lab.host(1), "--", "sh", "-c", f"test -e {lock} && ! flock -n {lock} true").returncode == 0, "it waits")
    assert control.move(deaf).refused() == "conflict"
    assert lab.places(deaf) == {1: "running"}
    lab.virsh(1, "destroy", deaf)
    done = waiting.wait()
    assert (done.code, done.changed, done.result["reason"]) == (0, True, "destroyed")
    assert "its guest did not shut down: destroyed" in done.warnings


@pytest.mark.long
def test_the_shutdown_of_a_paused_guest_is_refused(lab: Lab, control: Control, guest: Make) -> None:
    halted = guest("halted", "--acpi", "--paused")
    for options in ((), ("--check",)):
        assert shut_down(control, halted, *options).refused() == "invalid_state"
    lab.virsh(1, "resume", halted)
    # The button was not pressed while it was paused.
    assert lab.places(halted) == {1: "running"}


@pytest.mark.long
def test_the_shutdown_of_a_moving_guest_is_refused(lab: Lab, control: Control, guest: Make) -> None:
    busy = guest("busy", "--acpi", "--mib", "128", "--dirty-mib", "96")
    uuid = lab.uuid(busy)
    running = control.begin_move(busy, **HELD)
    lab.under_way(uuid)
    for options in ((), ("--check",)):
        assert shut_down(control, busy, *options).refused() == "invalid_state"
    lab.hurry(busy)
    assert running.wait().ended() == ("completed", None)
    assert lab.places(busy) == {2: "running"}


@pytest.mark.long
def test_a_guest_that_libvirt_would_start_again_is_refused(lab: Lab, control: Control, guest: Make) -> None:
    stubborn = guest("stubborn", "--acpi", "--off")
    xml = lab.virsh(1, "dumpxml", "--inactive", stubborn)
    lab("virsh", lab.host(1), "define", "/dev/stdin", stdin=xml.replace("<on_poweroff>destroy<", "<on_poweroff>restart<"))
    lab.virsh(1, "start", stubborn)
    done = shut_down(control, stubborn)
    assert (done.refused(), "on_poweroff restart" in done.msg) == ("invalid_state", True)
    assert lab.places(stubborn) == {1: "running"}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "not_found"),
        pytest.param({"wait_seconds": 0}, "invalid_argument", marks=pytest.mark.long),
        pytest.param({"uri": "qemu+tcp://kvm9/system"}, "not_supported", marks=pytest.mark.long),
    ],
)
def test_bad_input_of_a_shutdown_is_refused(control: Control, arguments: dict[str, t.Any], code: str) -> None:
    assert shut_down(control, "nobody", **arguments).refused() == code


@pytest.mark.long
def test_a_shutdown_without_root_is_forbidden(lab: Lab, control: Control, guest: Make) -> None:
    polite = guest("polite", "--acpi")
    control.inventory = lab("inventory", "--user", "operator").strip()
    assert shut_down(control, polite).refused() == "forbidden"
    assert lab.places(polite) == {1: "running"}


@pytest.mark.long
def test_several_guests_are_shut_down_at_once_despite_one_that_does_not_react(lab: Lab, control: Control, guest: Make) -> None:
    names = [guest("first", "--acpi"), guest("second", "--acpi"), guest("deaf")]
    uuids = [lab.uuid(name) for name in names]
    done = begin_with(control, {"uuids": uuids, "wait_seconds": 20, "start_again": True}).wait()
    assert (done.code != 0, done.changed, done.result["error_code"]) == (True, True, "timeout")
    assert [(one["name"], one["reason"]) for one in done.result["domains"]] == [("first", "shutdown"), ("second", "shutdown")]
    assert [one["uuid"] for one in done.result["failures"]] == uuids[2:]
    assert [lab.places(name) for name in names] == [{1: "shut off"}, {1: "shut off"}, {1: "running"}]
