# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the ledger to a receiver that works, is slow, down or hostile: each outcome is sent in the end, and no task waits for it without limit."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import threading
import time
import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.notices import count_waiting, open_notices
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings
from ansible_collections.kvmfleet.migration.tests.integration.support import receiver as r
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.conftest import SECRET, Site, lead, new_move

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


def refuse_threads(monkeypatch: pytest.MonkeyPatch, *kinds: type[threading.Thread], times: int) -> None:
    """Let this machine have no process left for the next threads of these kinds."""
    start, refused = threading.Thread.start, list[threading.Thread]()

    def refuse(thread: threading.Thread) -> None:
        if type(thread) in kinds and len(refused) < times:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_a_change_is_made_although_no_thread_can_send_its_notice(site: Site, receiver: r.Receiver, move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error after the write would end the task that follows the move, and with its heartbeats all moves that wait."""
    ledger, notices = site.begin()
    refuse_threads(monkeypatch, threading.Thread, times=2)
    stored = move(ledger)
    assert ledger.read_record(stored.record.record_id).record.status == s.COMPLETED
    assert notices.finish() == []
    assert [request.event["type"].rpartition("migration.")[2] for request in receiver.requests] == TOLD


def test_notices_for_which_no_thread_can_be_started_are_sent_by_the_next_task(site: Site, move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, notices = site.begin()
    with monkeypatch.context() as full:
        refuse_threads(full, threading.Thread, times=100)
        move(ledger)
        begun = time.monotonic()
        assert len(notices.finish()) == 1
        assert time.monotonic() - begun < 10
    _ledger, notices = site.begin()
    site.await_sent()
    notices.finish()


def test_a_notice_for_which_no_time_limit_can_be_started_is_sent_again(site: Site, receiver: r.Receiver, move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, notices = site.begin()
    refuse_threads(monkeypatch, threading.Timer, times=1)
    move(ledger)
    assert notices.finish() == []
    assert len(receiver.requests) == len(TOLD)


def test_start_and_outcome_are_sent_in_order_and_signed(site: Site, receiver: r.Receiver, move: Move) -> None:
    ledger, notices = site.begin()
    record = move(ledger).record
    assert notices.finish() == []
    assert receiver.kinds() == TOLD
    assert len(receiver.requests) == 2
    assert site.spooled() == []
    for request in receiver.requests:
        assert request.event["data"]["record"] == record.id
        signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
        expected = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
        assert request.headers["webhook-signature"] == f"v1,{expected}"
        assert request.headers["webhook-id"] == request.event["id"]


def test_notices_for_a_receiver_that_is_down_are_sent_by_the_next_task(site: Site, move: Move) -> None:
    with r.Receiver() as gone:
        port = gone.port
    down = f"http://127.0.0.1:{port}/T0KEN"
    ledger, notices = site.begin(url=down, retries=0)
    assert move(ledger).record.status == "completed"
    (warning,) = notices.finish()
    assert f"not sent to http://127.0.0.1:{port}: 2 (" in warning
    assert "Connection refused" in warning
    assert "T0KEN" not in warning
    assert SECRET not in warning
    assert len(site.spooled()) == 2
    with r.Receiver(port=port) as receiver:
        _ledger, later = site.begin(url=down)
        receiver.await_requests(2)
        site.await_sent()
        assert later.finish() == []
        assert receiver.kinds() == TOLD
    assert count_waiting(Settings({"hostvars": {"kvm1": {"kvmfleet_notices": {**site.value, "url": down}}}}), "kvm1", ledger.ledger_id) == 0


def test_a_task_ends_although_the_receiver_never_answers(site: Site, receiver: r.Receiver, move: Move) -> None:
    receiver.answers.extend([r.silence] * 100)
    ledger, notices = site.begin(timeout_seconds=60, wait_seconds=0.2)
    assert move(ledger).record.status == "completed"
    (warning,) = notices.finish()
    assert ": 2 (it has not answered yet)" in warning
    assert len(site.spooled()) == 2


def test_a_task_does_not_wait_for_notices_of_others(site: Site, receiver: r.Receiver, move: Move) -> None:
    in_child(lambda: (move(site.begin(retries=0, url="http://127.0.0.1:1/")[0]), None)[1])
    receiver.answers.extend([r.silence] * 100)
    _ledger, notices = site.begin(timeout_seconds=60, wait_seconds=60)
    receiver.await_requests(1)
    assert notices.finish() == []


@pytest.mark.parametrize("trouble", [r.status(500), r.status(429, Retry_After="1"), r.hang_up, r.drip, r.silence])
def test_a_temporary_failure_is_retried_with_the_same_id(site: Site, receiver: r.Receiver, move: Move, trouble: r.Answer) -> None:
    receiver.answers.append(trouble)
    ledger, notices = site.begin()
    move(ledger)
    assert notices.finish() == []
    assert receiver.kinds() == TOLD
    assert len(receiver.requests) == 3
    assert receiver.requests[0].event == receiver.requests[1].event


def test_retry_after_of_the_receiver_is_respected(site: Site, receiver: r.Receiver, move: Move) -> None:
    receiver.answers.append(r.status(503, Retry_After="2"))
    ledger, notices = site.begin()
    move(ledger)
    notices.finish()
    assert receiver.requests[1].at - receiver.requests[0].at >= 2


def test_a_permanent_refusal_is_one_warning_and_not_kept(site: Site, receiver: r.Receiver, move: Move) -> None:
    with r.Receiver() as elsewhere:
        receiver.answers.extend([r.status(404), r.status(307, Location=elsewhere.url)])
        ledger, notices = site.begin()
        move(ledger)
        (warning,) = notices.finish()
        assert "refused: 2 (" in warning
        assert "redirect" in warning
        assert elsewhere.requests == []
    assert site.spooled() == []


def test_notices_of_a_killed_process_are_sent_by_the_next_task(any_site: Site, receiver: r.Receiver, move: Move) -> None:
    in_child(lambda: (move(any_site.begin(url="http://127.0.0.1:1/")[0]), None)[1])
    assert receiver.requests == []
    assert len(any_site.spooled()) == 2
    _ledger, notices = any_site.begin()
    receiver.await_requests(2)
    assert notices.finish() == []
    assert receiver.kinds() == TOLD


def test_a_notice_of_a_change_that_was_not_written_is_not_sent(any_site: Site, receiver: r.Receiver) -> None:
    stored = lead(any_site.ledger(), any_site.ledger().open_record(new_move()), s.SCHEDULED, s.QUEUED)

    def killed_before_the_write() -> None:
        _ledger, notices = any_site.begin(url="http://127.0.0.1:1/")
        record = stored.record.advance(s.RUNNING, "me")
        with notices.watch_change(stored.record, record):
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
    assert receiver.events()[0]["data"]["record"] == done.record.id


@pytest.mark.parametrize("spoil", ["record", "notice"])
def test_a_notice_that_only_a_later_version_can_judge_is_kept_and_does_not_block_others(site: Site, receiver: r.Receiver, move: Move, spoil: str) -> None:
    def killed_after_two_moves() -> None:
        ledger, _notices = site.begin(url="http://127.0.0.1:1/")
        move(ledger)
        move(ledger)

    in_child(killed_after_two_moves)
    kept = site.spooled()[:2]
    events = [json.loads(path.read_text())["event"] for path in kept]
    if spoil == "record":
        (path,) = [path for path in (site.folder / "ledger").rglob(f"*{events[0]['data']['record']}*") if path.is_file()]
        envelope = json.loads(path.read_text())
        path.write_text(json.dumps({**envelope, "body": {**envelope["body"], "schema": 2}}))
    else:
        for path, event in zip(kept, events, strict=True):
            path.write_text(json.dumps({"sure": False, "event": {**event, "data": {"novel": event["data"]["record"]}}}))
    _ledger, notices = site.begin()
    receiver.await_requests(2)
    site.await_sent(but=2)
    notices.finish()
    assert receiver.kinds() == TOLD
    assert events[0]["data"]["record"] not in str(receiver.events())
    assert site.spooled() == kept


def test_a_refused_change_sends_no_notice(any_site: Site, receiver: r.Receiver) -> None:
    ledger, notices = any_site.begin()
    stored = ledger.open_record(new_move())
    lead(any_site.ledger(), stored, s.SCHEDULED)
    late = stored.record.advance(s.CONFLICT, "me")
    with pytest.raises(Conflict):
        ledger.update_record(stored, late)
    assert notices.finish() == []
    assert receiver.requests == []
    assert any_site.spooled() == []


def test_notices_are_sent_without_a_usable_spool(site: Site, receiver: r.Receiver, move: Move) -> None:
    (site.folder / "file").write_text("no folder")
    ledger, notices = site.begin(spool=str(site.folder / "file"))
    move(ledger)
    (warning,) = notices.finish()
    assert "cannot be kept" in warning
    assert receiver.kinds() == TOLD


def test_notices_lost_without_a_spool_are_reported(site: Site, move: Move) -> None:
    (site.folder / "file").write_text("no folder")
    ledger, notices = site.begin(url="http://127.0.0.1:1/", retries=0, spool=str(site.folder / "file"))
    move(ledger)
    assert "They are lost" in notices.finish()[-1]


def settings(value: t.Any) -> Settings:
    return Settings({"hostvars": {"kvm1": {"kvmfleet_notices": value}}})


@pytest.mark.parametrize("value", [{"url": "hunter2"}, "hunter2", {"url": "https://h.example/", "ca_file": "/none/hunter"}])
def test_an_invalid_configuration_is_a_warning(site: Site, value: t.Any) -> None:
    notices, (warning,) = open_notices(settings(value), "kvm1", site.ledger(), site.ledger)
    assert notices is None
    assert "kvmfleet_notices" in warning
    assert "hunter2" not in warning
    assert count_waiting(settings({"url": "hunter2"}), "kvm1", site.ledger().ledger_id) is None


def test_the_notices_in_a_folder_that_cannot_be_read_are_not_counted(site: Site) -> None:
    value = {**site.value, "spool": str(site.folder / "file")}
    (site.folder / "file").write_text("no folder")
    assert count_waiting(settings(value), "kvm1", site.ledger().ledger_id) is None


def test_no_notices_are_sent_without_a_configuration(site: Site) -> None:
    assert open_notices(settings(None), "kvm1", site.ledger(), site.ledger) == (None, ())
