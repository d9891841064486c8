# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of sbd: their options, their headers as sbd prints them, and whether a message on them could be evidence."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import sbd_disks as m

HEADER = """==Dumping header on disk /dev/loop0
Header version     : 2.1
UUID               : 275255be-b420-492a-a52e-d88d12ce9516
Number of slots    : 255
Sector size        : 512
Timeout (watchdog) : 5
Timeout (allocate) : 2
Timeout (loop)     : 1
Timeout (msgwait)  : 10
==Header on disk /dev/loop0 is dumped
"""
NOT_DUMPED = "==Dumping header on disk /dev/loop7\n==Header on disk /dev/loop7 NOT dumped\nsbd failed; please check the logs.\n"
FIT, SLOW = m.DiskTimes(5, 10), m.DiskTimes(5, 12)


def test_the_times_of_a_disk() -> None:
    assert m.parse_times(HEADER) == FIT


@pytest.mark.parametrize(
    "text", ["", NOT_DUMPED, HEADER + NOT_DUMPED, HEADER.replace(": 5", ": 0"), HEADER.replace("msgwait", "other"), "Timeout (msgwait) : 10"]
)
def test_what_is_no_header(text: str) -> None:
    assert m.parse_times(text) is None


def test_the_disks_that_an_agent_is_given() -> None:
    assert m.parse_disks({"devices": "/dev/a, /dev/b,", "plug": "kvm1"}, "x") == m.SbdDisks(m.PROGRAM, ("/dev/a", "/dev/b"), "kvm1")
    disks = m.parse_disks({"devices": "/dev/a", "port": "kvm1", "sbd-path": "/opt/sbd"}, "x")
    assert disks == m.SbdDisks("/opt/sbd", ("/dev/a",), "kvm1")
    assert disks.dump_arguments("/dev/a") == ["-d", "/dev/a", "dump"]
    assert m.parse_disks({"devices": "/dev/a,/dev/b", "plug": "kvm1"}, "x").off_arguments() == ["-d", "/dev/a", "-d", "/dev/b", "message", "kvm1", "off"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"plug": "kvm1"}, "one to 3 different disks"),
        ({"plug": "kvm1", "devices": " , "}, "one to 3 different disks"),
        ({"plug": "kvm1", "devices": "/a,/b,/c,/d"}, "one to 3 different disks"),
        ({"plug": "kvm1", "devices": "/a,/a"}, "one to 3 different disks"),
        ({"plug": "kvm1", "devices": "-R"}, "one to 3 different disks"),
        ({"devices": "/a"}, "plug must be the name of the host"),
        ({"devices": "/a", "plug": "-h"}, "plug must be the name of the host"),
        ({"devices": "/a", "plug": "kvm1", "sbd_path": "sbd"}, "no absolute path|not an absolute path"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        m.parse_disks(options, "kvmfleet_fencing of kvm1")


def test_a_message_counts_after_msgwait_on_most_disks() -> None:
    assert m.compute_wait({"/a": FIT}, "x") == 10
    assert m.compute_wait({"/a": FIT, "/b": None, "/c": FIT}, "x") == 10


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({"/a": None}, "1 of its 1 disks cannot be read as disks of sbd: /a"),
        ({"/a": FIT, "/b": None}, "1 of its 2 disks"),
        ({"/a": FIT, "/b": None, "/c": None}, "2 of its 3 disks cannot be read as disks of sbd: /b, /c"),
        ({"/a": m.DiskTimes(5, 9)}, "would still run when the message counts"),
        ({"/a": FIT, "/b": FIT, "/c": m.DiskTimes(6, 11)}, "/c has a msgwait of 11 s and a watchdog of 6 s"),
        ({"/a": FIT, "/b": SLOW}, "different times: /a watchdog 5 s, msgwait 10 s, /b watchdog 5 s, msgwait 12 s"),
    ],
)
def test_disks_that_are_refused(times: dict[str, m.DiskTimes | None], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        m.compute_wait(times, "kvmfleet_fencing of kvm1")
