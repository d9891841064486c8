# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""That something begins is told before it is over: the receiver has it while the work is going on, and a receiver that never answers holds nothing up."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._notices.config import config_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._notices.notices import Notices
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver, silence
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuation.fleet import Site
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuation.test_cleanup import Scene
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._moves.test_mirror import Mirrored


class Ear:
    """Lets a receiver hear of a ledger, and keeps what it has heard by certain moments."""

    def __init__(self, folder: Path, receiver: Receiver) -> None:
        self._folder = folder
        self._receiver = receiver
        self.heard: list[list[str]] = []

    def listen(self, ledger: Ledger, **values: t.Any) -> Notices:
        given = {"url": self._receiver.url, "spool": str(self._folder / "spool"), "wait_seconds": 30, **values}
        notices = Notices(config_of(given), ledger.ledger_id, lambda: open_ledger(str(self._folder / "ledger")))
        ledger.witness = notices
        return notices

    def await_heard(self, count: int) -> None:
        """Go on when so many notices have come."""
        self._receiver.await_requests(count)
        self.heard.append(self._receiver.kinds())


@pytest.fixture
def ear(tmp_path: Path, receiver: Receiver) -> Ear:
    return Ear(tmp_path, receiver)


@pytest.fixture
def deaf(receiver: Receiver) -> dict[str, t.Any]:
    """A receiver that takes everything and never answers, in the words of C(kvmfleet_notices)."""
    receiver.answers.extend([silence] * 100)
    return {"timeout_seconds": 60, "wait_seconds": 0.2}


def test_an_abort_is_told_while_the_guest_still_moves(tmp_path: Path, receiver: Receiver, ear: Ear) -> None:
    mirrored = Mirrored(tmp_path)
    notices = ear.listen(mirrored.ledger)
    mirror = mirrored.mirror(owner=True)
    mirror.follow(mirrored.moves_on(s.PREPARING, s.RUNNING))
    schema.note(mirrored.state, s.ABORT_START, "root@other")
    mirror.follow(mirrored.moves_on())
    ear.await_heard(2)
    assert (ear.heard, mirrored.written) == ([["move.started", "abort.started"]], s.RUNNING)
    assert receiver.events()[-1]["data"]["by"] == "root@other"
    mirror.follow(mirrored.moves_on(s.CANCELLED))
    assert notices.finish() == []
    assert receiver.kinds() == ["move.started", "abort.started", "abort.completed", "move.cancelled"]
    assert len(receiver.requests) == 4


def test_an_abort_ends_although_nobody_takes_its_notice(tmp_path: Path, ear: Ear, deaf: dict[str, t.Any]) -> None:
    mirrored = Mirrored(tmp_path)
    notices = ear.listen(mirrored.ledger, **deaf)
    mirror = mirrored.mirror(owner=True)
    mirror.follow(mirrored.moves_on(s.PREPARING, s.RUNNING))
    schema.note(mirrored.state, s.ABORT_START, "root@other")
    for statuses in ((), (s.CANCELLED,)):
        mirror.follow(mirrored.moves_on(*statuses))
    assert mirrored.written == s.CANCELLED
    assert "not sent to http://127.0.0.1" in notices.finish()[0]


def test_an_evacuation_is_told_before_its_domain_is_started(tmp_path: Path, receiver: Receiver, ear: Ear) -> None:
    site = Site(tmp_path)
    site.save("web")
    site.save("app")
    notices = ear.listen(site.ledger)
    site.before_start = lambda: ear.await_heard(2)
    site.evacuate()
    assert (ear.heard, site.running()) == ([["evacuation.started"] * 2], {"kvm2": ["app", "web"]})
    assert notices.finish() == []
    assert receiver.kinds() == ["evacuation.started"] * 2 + ["evacuation.completed"] * 2


def test_an_evacuation_goes_on_although_nobody_takes_its_notice(tmp_path: Path, ear: Ear, deaf: dict[str, t.Any]) -> None:
    site = Site(tmp_path)
    site.save("web")
    notices = ear.listen(site.ledger, **deaf)
    site.evacuate()
    assert (site.running(), site.told()) == ({"kvm2": ["web"]}, [("web", "done", "kvm2")])
    assert "not sent to http://127.0.0.1" in notices.finish()[0]


def test_a_cleanup_is_told_before_anything_is_removed(tmp_path: Path, receiver: Receiver, ear: Ear) -> None:
    scene = Scene(tmp_path)
    scene.evacuation()
    notices = ear.listen(scene.ledger)
    ask = scene.host.phase

    def cleaning(name: str, work: dict[str, t.Any]) -> dict[str, t.Any]:
        if name == "clean":
            ear.await_heard(1)
        return ask(name, work)

    scene.host.phase = cleaning  # type: ignore[method-assign]
    scene.run()
    assert ear.heard == [["cleanup.started"]]
    assert notices.finish() == []
    assert receiver.kinds() == ["cleanup.started", "cleanup.completed"]
