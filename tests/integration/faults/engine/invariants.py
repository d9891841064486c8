# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds at the end of every scenario, whether its text says so or not."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s

from ...support.control import Record
from ...support.fleet import eventually
from .text import Task, Verdict

if t.TYPE_CHECKING:
    from .stage import Stage

SETTLING_SECONDS = 400
WATCHERS_SECONDS = 300
_OFF = ("shut off", "crashed")
_WHATEVER = Verdict("any", None, (), (), None)


def check(stage: Stage) -> None:
    """Fail the test where a guest is lost or runs twice, its memory is not whole, a record cannot be settled, or something is left on a host."""
    check_once(stage)
    for name, wish in stage.scenario.guests.items():
        if wish.get("dirty_mib") and name not in stage.scenario.unsettled and _running(stage, name):
            assert stage.lab.check(name)["intact"], f"memory of {name} was lost"
    stage.repair()
    settle(stage)
    check_once(stage)
    check_records(stage)
    check_returned(stage)
    eventually(lambda: not stage.watchers(), "no watcher is left on any host", WATCHERS_SECONDS)
    check_images(stage)
    stage.site.verify_audit()


def check_once(stage: Stage) -> None:
    """Each guest runs on one host at most; and on one at least, unless the text says where it is."""
    told = stage.told_guests()
    for name, wish in stage.scenario.guests.items():
        places = stage.lab.places(name)
        active = {number: state for number, state in places.items() if state not in _OFF}
        running = [number for number, state in active.items() if state == "running"]
        assert len(running) <= 1, f"{name} runs on {running}: {places}"
        assert name in told or wish.get("off") or active, f"{name} ran, and runs nowhere: {places}"


def settle(stage: Stage) -> None:
    """Run once more what each open record is about, as an operator does afterwards."""
    for record in stage.site.records():
        if record["status"] in s.UNSETTLED:
            task = _settling(stage, record)
            run = stage.begin(f"settling {record['domain']['name']}", task, _number(stage, record["source"]["host"]))
            run.check(_WHATEVER, SETTLING_SECONDS)


def _settling(stage: Stage, record: Record) -> Task:
    destination = _number(stage, record["destination"]["host"])
    if record["type"] == s.EVACUATION:
        return Task("evacuate", {"source": _number(stage, record["source"]["host"]), "on": destination}, {})
    return Task("move", {"guest": record["domain"]["name"], "to": destination}, {})


def _number(stage: Stage, host: str) -> int:
    return next(number for number in stage.numbers if stage.site.name(number) == host)


def check_records(stage: Stage) -> None:
    """Every record has come to an end, but those of which the text says that a person has to settle them."""
    left = {record["domain"]["name"]: record["status"] for record in stage.site.records() if record["status"] in s.UNSETTLED}
    assert left == dict.fromkeys(stage.scenario.unsettled, s.ERROR), f"unsettled after a settling run: {left}\n{stage.story()}"


def check_returned(stage: Stage) -> None:
    """What a task of moves has returned of a closed record is what the ledger says of it; one without an id was never written."""
    told = {record["id"]: _lasting(record) for record in stage.site.records()}
    for run in stage.runs():
        returned = [record for record in run.records if run.task and run.task.kind in ("move", "moves") and record["id"] and record["status"] in s.CLOSED]
        for record in (one for one in returned if not stage.was_set_back_after(one["id"])):
            # What the ledger has lost, a task that ended well never returns.
            there = told.get(record["id"], _lasting(record) if run.code else None)
            assert there == _lasting(record), f"'{run.name}' has returned another record {record['id']} than the ledger has"


def _lasting(record: Record) -> Record:
    """A record without what a later one may change in it."""
    return {key: value for key, value in record.items() if key != "superseded_by"}


def check_images(stage: Stage) -> None:
    """No host has an image of a guest that it does not know, but for the original of one that was copied away: that is its owner's."""
    places = {name: stage.lab.places(name) for name in stage.scenario.guests}
    for number in stage.hosts_on():
        away = {name for name, there in places.items() if number not in there and number != stage.home(name)}
        images = stage.lab.on(number, "find", "/var/lib/libvirt/images", "-name", "*.qcow2", "-printf", "%f\\n").split()
        left = [image for image in images if image.removesuffix(".qcow2") in away]
        assert not left, f"on host {number} is left: {left}"


def _running(stage: Stage, name: str) -> bool:
    return "running" in stage.lab.places(name).values()
