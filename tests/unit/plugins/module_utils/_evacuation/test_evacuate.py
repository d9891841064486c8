# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The starts of a survivor, some of which never end."""

from __future__ import annotations

import errno
import threading
import types
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import evacuate
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.restart import build_restart_result
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import saved_domains as r
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI
from ansible_collections.kvmfleet.migration.tests.unit.fakes.orders import restart_order

HUNG, FAILED = "hung", "failed"


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let the starts of domains with the name HUNG never end, and those of FAILED raise an error; return with which exit codes the process was to end."""
    released, codes = threading.Event(), list[int]()

    class Restart:
        def __init__(self, _host: object, order: r.RestartOrder, **_how: object) -> None:
            self.order = order

        def carry_out_order(self) -> r.RestartResult:
            if self.order.name == HUNG:
                released.wait(10)
            if self.order.name == FAILED:
                raise OSError(errno.EMFILE, "Too many open files")
            return build_restart_result(self.order, r.STARTED, changed=True)

    monkeypatch.setattr(evacuate, "Restart", Restart)
    monkeypatch.setattr(evacuate, "START_SECONDS", 2.0)
    monkeypatch.setattr(evacuate, "end_process_soon", codes.append)
    monkeypatch.setattr(evacuate, "open_host", lambda _uri: types.SimpleNamespace(close=lambda: None))
    for name in ("require_root", "prepare_run_folder"):
        monkeypatch.setattr(evacuate, name, lambda: None)
    monkeypatch.setattr(evacuate, "read_host_id", lambda: "h2")
    yield codes
    released.set()


def start(*names: str, parallel: int) -> list[dict[str, t.Any]]:
    orders = [encode(restart_order(f"uuid-{place}", name, None)) for place, name in enumerate(names)]
    work = {"host_id": "h2", "orders": orders, "ask": {}, "elsewhere": None, "start_until": None, "parallel": parallel}
    return t.cast("list[dict[str, t.Any]]", evacuate.start_domains(LOCAL_URI, t.cast("t.Any", work))["results"])


def test_a_start_that_hangs_leaves_the_other_domains_to_the_next_round(ends: list[int]) -> None:
    results = start("web1", HUNG, "web2", parallel=1)
    assert [result["outcome"] for result in results] == [r.STARTED, r.UNKNOWN, r.DEFERRED]
    assert (results[1]["changed"], results[1]["error_code"]) == (True, "unreachable")
    assert ends == [0]


def test_starts_beside_one_that_hangs_are_known(ends: list[int]) -> None:
    assert [result["outcome"] for result in start(HUNG, "web1", "web2", parallel=2)] == [r.UNKNOWN, r.STARTED, r.STARTED]
    assert ends == [0]


def test_a_host_on_which_no_start_ends_does_not_answer(ends: list[int]) -> None:
    with pytest.raises(Unreachable, match="libvirt has not ended the start of domain hung within 2 s"):
        start(HUNG, HUNG, parallel=2)
    assert ends == [0]


def test_starts_that_hang_in_the_whole_window_leave_the_other_domains_to_the_next_round(ends: list[int]) -> None:
    results = start(HUNG, HUNG, "web1", "web2", parallel=2)
    assert [result["outcome"] for result in results] == [r.UNKNOWN, r.UNKNOWN, r.DEFERRED, r.DEFERRED]
    assert [(result["changed"], result["error_code"]) for result in results[:2]] == [(True, "unreachable")] * 2
    assert ends == [0]


def test_a_start_for_which_no_file_can_be_opened_hides_no_other_result(ends: list[int]) -> None:
    """Without them, the records of domains that run would stay open, and the task would not say what it has started."""
    results = start("web1", FAILED, "web2", parallel=1)
    assert [result["outcome"] for result in results] == [r.STARTED, r.UNKNOWN, r.STARTED]
    assert "The start of domain failed ended early: [Errno 24] Too many open files. Run the task again" in results[1]["msg"]


def test_a_connection_for_which_there_is_no_thread_hides_no_other_result(ends: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def open_second(uri: str) -> object:
        opened.append(uri)
        if len(opened) == 1:
            raise RuntimeError("can't start new thread")
        return types.SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(evacuate, "open_host", open_second)
    assert [result["outcome"] for result in start("web1", "web2", parallel=1)] == [r.UNKNOWN, r.STARTED]


def test_starts_that_end_need_no_end_of_the_process(ends: list[int]) -> None:
    assert [result["outcome"] for result in start("web1", "web2", parallel=1)] == [r.STARTED, r.STARTED]
    assert ends == []
