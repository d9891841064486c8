# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests that ran before a power cut and are not marked for autostart: they are named, and started on request."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.recover.support.operator import Operator
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
Own = dict[str, t.Any]


def names(entries: list[dict[str, t.Any]]) -> list[str]:
    return sorted(entry["name"] for entry in entries)


def states(lab: Lab, *guests: str) -> list[str]:
    """Return the states of guests on the first host."""
    return [lab.places(guest)[1] for guest in guests]


@pytest.mark.long
def test_guests_that_ran_are_named_and_started_by_a_second_run(lab: Lab, operator: Operator, guest: Make) -> None:
    auto, plain, held, off = guest("auto", "--autostart"), guest("plain"), guest("held"), guest("off", "--off")
    lab.virsh(1, "suspend", held)
    operator.protect()
    operator.power_cycle(1)
    assert states(lab, auto, plain, held, off) == ["shut off"] * 4

    predicted, own = operator.recover(1, "--check")
    assert (predicted.code, names(own["stayed_off"]), states(lab, plain)) == (0, [held, plain], ["shut off"]), predicted.text
    run, own = operator.recover(1)
    assert (run.code, names(own["started"]), names(own["stayed_off"]), own["failed"]) == (0, [auto], [held, plain], []), run.text
    assert "It was running before the host went down" in own["stayed_off"][1]["reason"], own
    assert "recover_host_start=as_recorded" in own["stayed_off"][1]["reason"], own
    assert f"OFF {plain} on {lab.host(1)}" in run.text
    assert states(lab, auto, plain, held, off) == ["running", "shut off", "shut off", "shut off"]

    operator.protect()
    run, own = operator.recover(1, recover_host_start="as_recorded")
    assert (run.code, names(own["started"]), own["stayed_off"], own["failed"]) == (0, [held, plain], [], []), run.text
    assert states(lab, auto, plain, held, off) == ["running", "running", "paused", "shut off"]
    lab.virsh(1, "destroy", plain)
    run, own = operator.recover(1, recover_host_start="as_recorded")
    assert (run.code, own["started"], own["stayed_off"], states(lab, plain)) == (0, [], [], ["shut off"]), run.text


@pytest.mark.long
def test_a_guest_that_stayed_off_for_a_whole_boot_is_no_longer_named(lab: Lab, operator: Operator, guest: Make) -> None:
    plain = guest("plain")
    operator.protect()
    operator.power_cycle(1)
    dummy, own = operator.recover(1)
    assert names(own["stayed_off"]) == [plain]
    operator.power_cycle(1)
    run, own = operator.recover(1, recover_host_start="as_recorded")
    assert (run.code, own["started"], own["stayed_off"], states(lab, plain)) == (0, [], [], ["shut off"]), run.text


@pytest.mark.long
def test_a_recorded_guest_that_may_run_elsewhere_is_not_started(lab: Lab, operator: Operator, guest: Make) -> None:
    there, silent = guest("there"), guest("silent")
    xml = lab.virsh(1, "dumpxml", "--inactive", there)
    operator.protect()
    operator.power_cycle(1)
    lab("virsh", lab.host(2), "define", "/dev/stdin", stdin=xml)
    lab.virsh(2, "start", there)
    lab("poweroff", lab.host(3))
    run, own = operator.recover(1, recover_host_start="as_recorded")
    assert (run.code != 0, own["started"], own["stayed_off"], names(own["failed"])) == (True, [], [], [silent]), run.text
    assert lab.host(3) in own["failed"][0]["reason"], own
    assert (lab.places(there), lab.places(silent)) == ({1: "shut off", 2: "running"}, {1: "shut off"})
    run, own = operator.recover(1, recover_host_start="as_recorded", recover_host_accept_silent=[lab.host(3)])
    assert (run.code, names(own["started"]), lab.places(there)) == (0, [silent], {1: "shut off", 2: "running"}), run.text


@pytest.mark.long
def test_a_guest_that_moved_here_after_it_was_saved_is_named(lab: Lab, operator: Operator, guest: Make) -> None:
    moved = guest("moved", on=2)
    operator.protect()
    operator.drain(2)
    (place,) = lab.places(moved)
    operator.power_cycle(place)
    run, own = operator.recover(place)
    assert (run.code, names(own["stayed_off"])) == (0, [moved]), run.text


@pytest.mark.long
def test_a_guest_that_moved_to_a_host_nobody_protects_is_named_and_never_started(lab: Lab, operator: Operator, guest: Make) -> None:
    moved = guest("moved")
    for host in (1, 2, 3):
        operator.task(host, "host", {"state": "enabled"})
    operator.drain(1)
    (place,) = lab.places(moved)
    operator.power_cycle(place)
    run, own = operator.recover(place, recover_host_start="as_recorded")
    assert (run.code, names(own["stayed_off"]), own["started"], lab.places(moved)) == (0, [moved], [], {place: "shut off"}), run.text
    assert f"{lab.host(place)} is not protected, so the ledger does not show whether somebody has stopped it since." in own["stayed_off"][0]["reason"]


@pytest.mark.long
def test_an_unknown_value_is_refused_before_anything_is_done(lab: Lab, operator: Operator, guest: Make) -> None:
    auto = guest("auto", "--autostart")
    operator.protect()
    operator.power_cycle(1)
    run = operator.playbook("recover", target=lab.host(1), recover_host_start="as-recorded")
    assert (run.code != 0, "invalid_argument" in run.text, "Nothing was changed" in run.text) == (True, True, True), run.text
    assert (lab.places(auto), operator.task(1, "boot_guard", {}).result["guard"]["released"]) == ({1: "shut off"}, None)


@pytest.mark.long
def test_nothing_is_started_on_request_and_everything_that_ran_is_named(lab: Lab, operator: Operator, guest: Make) -> None:
    auto, plain = guest("auto", "--autostart"), guest("plain")
    operator.protect()
    operator.power_cycle(1)
    run, own = operator.recover(1, recover_host_start=False)
    assert (run.code, own["started"], names(own["stayed_off"]), own["released"]) == (0, [], [auto, plain], True), run.text
    run, own = operator.recover(1)
    assert (run.code, names(own["started"]), names(own["stayed_off"])) == (0, [auto], [plain]), run.text
