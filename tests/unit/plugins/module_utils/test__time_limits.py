# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What only reads does not wait for ever: not for a file server that is gone, nor for a libvirt daemon that hangs."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _time_limits
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotFound, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._time_limits import (
    answer_all_within,
    answer_within,
    limit_questions,
    own_time_limit,
    timed_question,
)

HANGING = """
import concurrent.futures, time
from ansible_collections.kvmfleet.migration.plugins.module_utils import _time_limits
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
_time_limits.QUESTION_SECONDS, _time_limits._END_SECONDS = 1.0, 0.5

@_time_limits.limit_questions
def survey():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(ask).result()

def ask():
    with _time_limits.timed_question("read the capabilities of kvm2"):
        time.sleep(600)

try:
    survey()
except KvmfleetError as error:
    print(error.message, flush=True)
"""


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions may take half a second, and nobody ends the process of the tests."""
    monkeypatch.setattr(_time_limits, "QUESTION_SECONDS", 0.5)
    monkeypatch.setattr(_time_limits, "_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(_time_limits, "_END_SECONDS", 3600.0)


def test_an_answer_and_an_error_are_passed_through() -> None:
    @limit_questions
    def look(host: str, *, is_there: bool) -> str:
        if not is_there:
            raise NotFound(f"{host} is not there.")
        return host

    assert look("kvm1", is_there=True) == "kvm1"
    with pytest.raises(NotFound, match="kvm1 is not there"):
        look("kvm1", is_there=False)


def test_an_unanswered_question_ends_the_process_with_a_message() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("Failed to read the capabilities of kvm2: libvirt did not answer within 1 s")


@pytest.mark.usefixtures("short_limits")
def test_the_time_limit_applies_to_each_question() -> None:
    @limit_questions
    def look() -> str:
        with timed_question("list the domains of kvm1"):
            for _number in range(8):
                with timed_question("read a domain of kvm1"):
                    time.sleep(0.1)
        return "seen"

    assert look() == "seen"


@pytest.mark.usefixtures("short_limits")
def test_a_question_with_its_own_limit_is_exempt_from_the_common_one() -> None:
    released = threading.Event()

    def hang() -> str:
        with timed_question("open kvm2"):
            released.wait(60)
        return "late"

    @limit_questions
    def look() -> str:
        assert answer_within(0.1, hang) is None
        time.sleep(1)
        return "seen"

    try:
        assert look() == "seen"
    finally:
        released.set()


@pytest.mark.usefixtures("short_limits")
def test_the_common_limit_applies_again_after_an_own_limit() -> None:
    released = threading.Event()

    @limit_questions
    def look() -> None:
        with own_time_limit(), timed_question("open kvm1"):
            pass
        with timed_question("list the domains of kvm1"):
            released.wait(60)

    try:
        with pytest.raises(Unreachable, match="list the domains of kvm1"):
            look()
    finally:
        released.set()


def test_an_error_of_the_file_system_counts_as_no_answer() -> None:
    def fail() -> str:
        raise OSError("gone")

    assert answer_within(5, fail) is None
    assert answer_within(5, lambda: "here") == "here"


def test_questions_that_are_asked_together_share_one_limit() -> None:
    all_asked, is_over = threading.Barrier(3), threading.Event()

    def hang() -> str:
        all_asked.wait(60)
        is_over.wait(60)
        return "too late"

    def fail() -> str:
        raise OSError("gone")

    def answer() -> str:
        all_asked.wait(60)
        return "here"

    assert answer_all_within(1, {"a": hang, "b": hang, "c": answer, "d": fail}) == {"a": None, "b": None, "c": "here", "d": None}
    is_over.set()
