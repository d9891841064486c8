# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.knock import ANSWERS, REFUSED, UNKNOWN, knock


def test_a_port_that_takes_connections_answers_whatever_is_behind_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert knock("127.0.0.1", port) == ANSWERS
    assert knock("127.0.0.1", port) == REFUSED


def test_a_name_that_leads_nowhere_is_no_silence() -> None:
    assert knock("no-such-host.invalid", 22) == UNKNOWN
    assert knock("x" * 300, 22) == UNKNOWN
