# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket
import threading

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.knock import ANSWERS, REFUSED, SILENT, UNKNOWN, knock, knock_at_all


def test_a_port_that_takes_connections_answers_whatever_is_behind_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert knock("127.0.0.1", port) == ANSWERS
    assert knock("127.0.0.1", port) == REFUSED


def test_a_name_that_leads_nowhere_is_no_silence() -> None:
    assert knock("no-such-host.invalid", 22) == UNKNOWN
    assert knock("x" * 300, 22) == UNKNOWN


def test_all_doors_are_knocked_at_at_once_and_told_in_their_order() -> None:
    """Each knock waits until the other one was begun."""
    both = threading.Barrier(2, timeout=10)

    def wait_for_the_other(address: str, port: int) -> str:
        both.wait()
        return SILENT if port == 22 else REFUSED

    doors = [{"address": "192.0.2.1", "port": 22}, {"address": "192.0.2.2", "port": 2222}]
    assert knock_at_all(doors, wait_for_the_other) == [{**doors[0], "says": SILENT}, {**doors[1], "says": REFUSED}]
    assert knock_at_all([], wait_for_the_other) == []
