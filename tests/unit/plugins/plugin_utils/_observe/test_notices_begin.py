# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Notices of a start arrive while the work is running, and a receiver that never answers delays nothing."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.notices import Notices
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.webhook import parse_config
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver, silence
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import Site
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.test_cleanup import Scene
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.test_job_record import Mirrored


class Ear:
    """Lets a receiver hear of a ledger, and keeps what it has heard by certain moments."""

    def __init__(self, folder: Path, receiver: Receiver) -> None:
        self._folder = folder
        self._receiver = receiver
        self.heard: list[list[str]] = []

    def listen(self, ledger: Ledger, **values: t.Any) -> Notices:
        given = {"url": self._receiver.url, "spool": str(self._folder / "spool"), "wait_seconds": 30, **values}
        notices = Notices(parse_config(given), ledger.ledger_id, lambda: open_ledger(str(self._folder / "ledger")))
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
def silent_receiver(receiver: Receiver) -> dict[str, t.Any]:
    """A receiver that takes everything and never answers, in the words of C(kvmfleet_notices)."""
    receiver.answers.extend([silence] * 100)
    return {"timeout_seconds": 60, "wait_seconds": 0.2}


def test_the_notice_of_an_abort_is_sent_while_the_move_runs(tmp_path: Path, receiver: Receiver, ear: Ear) -> None:
    mirrored = Mirrored(tmp_path)
    notices = ear.listen(mirrored.ledger)
    mirror = mirrored.mirror(owner=True)
    mirror.follow_state(mirrored.moves_on(s.PREPARING, s.RUNNING))
    mirrored.state = mirrored.state.note(s.ABORT_START, "root@other")
    mirror.follow_state(mirrored.moves_on())
    ear.await_heard(2)
    assert (ear.heard, mirrored.written) == ([["move.started", "abort_start"]], s.RUNNING)
    assert receiver.events()[-1]["data"]["by"] == "root@other"
    mirror.follow_state(mirrored.moves_on(s.CANCELLED))
    assert notices.finish() == []
    assert receiver.kinds() == ["move.started", "abort_start", "abort_end", "move.cancelled"]
    assert len(receiver.requests) == 4


def test_an_abort_completes_although_the_receiver_does_not_answer(tmp_path: Path, ear: Ear, silent_receiver: dict[str, t.Any]) -> None:
    mirrored = Mirrored(tmp_path)
    notices = ear.listen(mirrored.ledger, **silent_receiver)
    mirror = mirrored.mirror(owner=True)
    mirror.follow_state(mirrored.moves_on(s.PREPARING, s.RUNNING))
    mirrored.state = mirrored.state.note(s.ABORT_START, "root@other")
    for statuses in ((), (s.CANCELLED,)):
        mirror.follow_state(mirrored.moves_on(*statuses))
    assert mirrored.written == s.CANCELLED
    assert "not sent to http://127.0.0.1" in notices.finish()[0]


def test_the_notice_of_an_evacuation_is_sent_before_its_domain_is_started(tmp_path: Path, receiver: Receiver, ear: Ear) -> None:
    site = Site(tmp_path)
    site.save("web")
    site.save("app")
    notices = ear.listen(site.ledger)
    site.before_start = lambda: ear.await_heard(2)
    site.evacuate()
    assert (ear.heard, site.running()) == ([["evacuation.started"] * 2], {"kvm2": ["app", "web"]})
    assert notices.finish() == []
    assert receiver.kinds() == ["evacuation.started"] * 2 + ["evacuation.completed"] * 2


def test_an_evacuation_completes_although_the_receiver_does_not_answer(tmp_path: Path, ear: Ear, silent_receiver: dict[str, t.Any]) -> None:
    site = Site(tmp_path)
    site.save("web")
    notices = ear.listen(site.ledger, **silent_receiver)
    site.evacuate()
    assert (site.running(), site.record_summaries()) == ({"kvm2": ["web"]}, [("web", "done", "kvm2")])
    assert "not sent to http://127.0.0.1" in notices.finish()[0]


def test_the_notice_of_a_cleanup_is_sent_before_anything_is_removed(tmp_path: Path, receiver: Receiver, ear: Ear) -> None:
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
