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

from ansible_collections.kvmfleet.migration.plugins.module_utils import _patience
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotFound, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._patience import asking, limited, patient, within

HANGING = """
import concurrent.futures, time
from ansible_collections.kvmfleet.migration.plugins.module_utils import _patience
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError
_patience.QUESTION_SECONDS, _patience._END_SECONDS = 1.0, 0.5

@_patience.patient
def survey():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(ask).result()

def ask():
    with _patience.asking("read the capabilities of kvm2"):
        time.sleep(600)

try:
    survey()
except KvmfleetError as error:
    print(error.message, flush=True)
"""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions may take half a second, and nobody ends the process of the tests."""
    monkeypatch.setattr(_patience, "QUESTION_SECONDS", 0.5)
    monkeypatch.setattr(_patience, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(_patience, "_END_SECONDS", 3600.0)


def test_an_answer_and_an_error_pass() -> None:
    @patient
    def look(host: str, *, is_there: bool) -> str:
        if not is_there:
            raise NotFound(f"{host} is not there.")
        return host

    assert look("kvm1", is_there=True) == "kvm1"
    with pytest.raises(NotFound, match="kvm1 is not there"):
        look("kvm1", is_there=False)


def test_a_question_that_is_not_answered_is_named_and_its_process_ends() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("Failed to read the capabilities of kvm2: libvirt did not answer within 1 s")


@pytest.mark.usefixtures("hasty")
def test_many_short_questions_may_take_long() -> None:
    @patient
    def look() -> str:
        with asking("list the domains of kvm1"):
            for _number in range(8):
                with asking("read a domain of kvm1"):
                    time.sleep(0.1)
        return "seen"

    assert look() == "seen"


@pytest.mark.usefixtures("hasty")
def test_who_waits_within_a_limit_of_their_own_is_not_hurried() -> None:
    released = threading.Event()

    def hang() -> str:
        with asking("open kvm2"):
            released.wait(60)
        return "late"

    @patient
    def look() -> str:
        assert within(0.1, hang) is None
        time.sleep(1)
        return "seen"

    try:
        assert look() == "seen"
    finally:
        released.set()


@pytest.mark.usefixtures("hasty")
def test_after_a_limit_has_ended_its_thread_is_hurried_again() -> None:
    released = threading.Event()

    @patient
    def look() -> None:
        with limited(), asking("open kvm1"):
            pass
        with asking("list the domains of kvm1"):
            released.wait(60)

    try:
        with pytest.raises(Unreachable, match="list the domains of kvm1"):
            look()
    finally:
        released.set()


def test_an_error_of_the_file_system_is_no_answer() -> None:
    def fail() -> str:
        raise OSError("gone")

    assert within(5, fail) is None
    assert within(5, lambda: "here") == "here"
