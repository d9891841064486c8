# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters that are switched off by name: the check and the record say so; those that protect data or a guest cannot be switched off."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk, check_moved, check_refused, check_untouched, reasons, verdict
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
WRITER = ("--mib", "64", "--dirty-mib", "8", "--rate", "500", "--integrity")


@pytest.mark.long
def test_a_filter_that_is_off_is_in_the_check_and_in_the_record(lab: Lab, control: Desk, web: str) -> None:
    control.set_policy(web, labels=["ssd"])
    check_refused(lab, control, control.move(web, 2), web, "ssd", "kvmfleet_scheduler.labels")
    tried = control.check(2, 3, name=web, scheduler={"filters": {"labels": False}})
    assert (tried.code, verdict(tried.result, lab.host(2))["filters_off"]) == (0, ["labels"]), tried.text

    control.scheduler(2, filters={"labels": False, "anti_affinity": "no"})
    seen = control.check(2, 3, name=web)
    assert (seen.result["selected"], verdict(seen.result, lab.host(2))["filters_off"]) == (lab.host(2), ["anti_affinity", "labels"]), seen.text
    assert (set(reasons(seen.result, lab.host(3))), verdict(seen.result, lab.host(3))["filters_off"]) == ({"labels"}, [])
    predicted = control.move(web, 2, "--check")
    assert predicted.record["filters_off"] == ["anti_affinity", "labels"], predicted.text
    done = control.move(web, None)
    check_moved(lab, done, web, 2)
    assert done.record["filters_off"] == ["anti_affinity", "labels"]
    assert "Switched off there: anti_affinity, labels." in str(done.record["history"])
    assert "filters_off" not in control.records()[0]
    control.verify_audit()


@pytest.mark.long
@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({"storage": False}, "switches off what protects data or the life of a guest: storage"),
        ({"labels": False, "memory": "off", "cpu_model": False}, "memory"),
        ({"luck": False}, "unknown keys: luck. Valid names are: not_source, up, enabled"),
        ({"labels": "perhaps"}, "Give true or false"),
        (["labels"], "Give a dictionary"),
    ],
)
def test_invalid_filters_are_refused_and_nothing_moves(lab: Lab, control: Desk, web: str, filters: t.Any, words: str) -> None:
    control.scheduler(2, filters=filters)
    for done in (control.move(web, 2), control.check(2, name=web)):
        assert done.refused() == "invalid_argument", done.text
        assert [text for text in ("kvmfleet_scheduler.filters", lab.host(2), words) if text not in done.msg] == [], done.msg
    assert control.records() == []
    check_untouched(lab, web)


@pytest.mark.long
def test_a_drain_uses_a_host_whose_filter_is_off(lab: Lab, control: Desk, guest: Make) -> None:
    """The second host is drained, since the first has a guest that no scenario may move. Without the filter's switch no host could accept the domain."""
    name = guest("picky", *WRITER, on=2)
    control.set_policy(name, on=2, labels=["ssd"])
    control.scheduler(3, filters={"labels": False})
    code, text = control.drain(2)
    assert code == 0, text
    assert lab.places(name) == {3: "running"}
    assert lab.check(name)["intact"]
    assert control.only_record()["filters_off"] == ["labels"]
