# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the ledger to a receiver that is well, slow, down or hostile: each outcome is told in the end, and no task waits for it for ever."""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import os
import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import advance
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger, Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._notices.notices import notices_of, waiting
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings
from ansible_collections.kvmfleet.migration.tests.integration.support import receiver as r
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._notices.conftest import SECRET, Site, lead, new_move

Move = Callable[[Ledger], Stored]
TOLD = ["move.started", "move.completed"]


def in_child(act: Callable[[], None]) -> None:
    """Do it in a process that ends there and then, as a killed one does."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def test_start_and_outcome_are_told_in_their_order_and_signed(site: Site, receiver: r.Receiver, move: Move) -> None:
    ledger, notices = site.begin()
    record = move(ledger).record
    assert notices.finish() == []
    assert receiver.kinds() == TOLD
    assert len(receiver.requests) == 2
    assert site.spooled() == []
    for request in receiver.requests:
        assert request.event["data"]["record"] == record["id"]
        signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
        expected = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
        assert request.headers["webhook-signature"] == f"v1,{expected}"
        assert request.headers["webhook-id"] == request.event["id"]


def test_a_receiver_that_is_down_fails_nothing_and_the_next_task_tells_it(site: Site, move: Move) -> None:
    with r.Receiver() as gone:
        port = gone.port
    down = f"http://127.0.0.1:{port}/T0KEN"
    ledger, notices = site.begin(url=down, retries=0)
    assert move(ledger).record["status"] == "completed"
    (warning,) = notices.finish()
    assert f"not sent to http://127.0.0.1:{port}: 2 (" in warning
    assert "Connection refused" in warning
    assert "T0KEN" not in warning
    assert SECRET not in warning
    assert len(site.spooled()) == 2
    with r.Receiver(port=port) as receiver:
        _ledger, later = site.begin(url=down)
        receiver.await_requests(2)
        assert later.finish() == []
        assert receiver.kinds() == TOLD
    assert waiting(Settings({"hostvars": {"kvm1": {"kvmfleet_notices": {**site.value, "url": down}}}}), "kvm1", ledger.ledger_id) == 0


def test_a_task_ends_although_the_receiver_never_answers(site: Site, receiver: r.Receiver, move: Move) -> None:
    receiver.answers.extend([r.silence] * 100)
    ledger, notices = site.begin(timeout_seconds=60, wait_seconds=0.2)
    assert move(ledger).record["status"] == "completed"
    (warning,) = notices.finish()
    assert ": 2 (it has not answered yet)" in warning
    assert len(site.spooled()) == 2


def test_what_a_task_does_not_wait_for_is_not_its_own(site: Site, receiver: r.Receiver, move: Move) -> None:
    in_child(lambda: (move(site.begin(retries=0, url="http://127.0.0.1:1/")[0]), None)[1])
    receiver.answers.extend([r.silence] * 100)
    _ledger, notices = site.begin(timeout_seconds=60, wait_seconds=60)
    receiver.await_requests(1)
    assert notices.finish() == []


@pytest.mark.parametrize("trouble", [r.status(500), r.status(429, Retry_After="1"), r.hang_up, r.drip, r.silence])
def test_what_passes_is_tried_again_and_a_duplicate_has_the_same_id(site: Site, receiver: r.Receiver, move: Move, trouble: r.Answer) -> None:
    receiver.answers.append(trouble)
    ledger, notices = site.begin()
    move(ledger)
    assert notices.finish() == []
    assert receiver.kinds() == TOLD
    assert len(receiver.requests) == 3
    assert receiver.requests[0].event == receiver.requests[1].event


def test_no_sooner_than_the_receiver_wants(site: Site, receiver: r.Receiver, move: Move) -> None:
    receiver.answers.append(r.status(503, Retry_After="2"))
    ledger, notices = site.begin()
    move(ledger)
    notices.finish()
    assert receiver.requests[1].at - receiver.requests[0].at >= 2


def test_a_refusal_is_told_once_and_not_kept(site: Site, receiver: r.Receiver, move: Move) -> None:
    with r.Receiver() as elsewhere:
        receiver.answers.extend([r.status(404), r.status(307, Location=elsewhere.url)])
        ledger, notices = site.begin()
        move(ledger)
        (warning,) = notices.finish()
        assert "refused: 2 (" in warning
        assert "redirect" in warning
        assert elsewhere.requests == []
    assert site.spooled() == []


def test_a_killed_process_loses_no_outcome(any_site: Site, receiver: r.Receiver, move: Move) -> None:
    in_child(lambda: (move(any_site.begin(url="http://127.0.0.1:1/")[0]), None)[1])
    assert receiver.requests == []
    assert len(any_site.spooled()) == 2
    _ledger, notices = any_site.begin()
    receiver.await_requests(2)
    assert notices.finish() == []
    assert receiver.kinds() == TOLD


def test_what_was_not_written_before_the_kill_is_not_told(any_site: Site, receiver: r.Receiver) -> None:
    stored = lead(any_site.ledger(), any_site.ledger().open_record(new_move()), s.SCHEDULED, s.QUEUED)

    def killed_before_the_write() -> None:
        _ledger, notices = any_site.begin(url="http://127.0.0.1:1/")
        record = copy.deepcopy(stored.record)
        advance(record, s.RUNNING, "me")
        with notices.change(stored.record, record):
            os._exit(0)

    in_child(killed_before_the_write)
    assert len(any_site.spooled()) == 1
    ledger, notices = any_site.begin()
    done = lead(ledger, stored, s.COMPLETED)
    receiver.await_requests(1)
    assert notices.finish() == []
    _ledger, last = any_site.begin()
    last.finish()
    assert receiver.kinds() == ["move.completed"]
    assert receiver.events()[0]["data"]["record"] == done.record["id"]


def test_who_comes_second_tells_nothing(any_site: Site, receiver: r.Receiver) -> None:
    ledger, notices = any_site.begin()
    stored = ledger.open_record(new_move())
    lead(any_site.ledger(), stored, s.SCHEDULED)
    late = copy.deepcopy(stored.record)
    advance(late, s.CONFLICT, "me")
    with pytest.raises(Conflict):
        ledger.update(stored, late)
    assert notices.finish() == []
    assert receiver.requests == []
    assert any_site.spooled() == []


def test_without_a_disk_it_works_from_memory(site: Site, receiver: r.Receiver, move: Move) -> None:
    (site.folder / "file").write_text("no folder")
    ledger, notices = site.begin(spool=str(site.folder / "file"))
    move(ledger)
    (warning,) = notices.finish()
    assert "cannot be kept" in warning
    assert receiver.kinds() == TOLD


def test_what_only_memory_had_is_said_to_be_lost(site: Site, move: Move) -> None:
    (site.folder / "file").write_text("no folder")
    ledger, notices = site.begin(url="http://127.0.0.1:1/", retries=0, spool=str(site.folder / "file"))
    move(ledger)
    assert "They are lost" in notices.finish()[-1]


def settings(value: t.Any) -> Settings:
    return Settings({"hostvars": {"kvm1": {"kvmfleet_notices": value}}})


@pytest.mark.parametrize("value", [{"url": "hunter2"}, "hunter2", {"url": "https://h.example/", "ca_file": "/none/hunter"}])
def test_a_value_that_cannot_be_used_is_a_warning_and_stops_nothing(site: Site, value: t.Any) -> None:
    notices, (warning,) = notices_of(settings(value), "kvm1", site.ledger(), site.ledger)
    assert notices is None
    assert "kvmfleet_notices" in warning
    assert "hunter2" not in warning
    assert waiting(settings({"url": "hunter2"}), "kvm1", site.ledger().ledger_id) is None


def test_who_wants_none_gets_none(site: Site) -> None:
    assert notices_of(settings(None), "kvm1", site.ledger(), site.ledger) == (None, ())
