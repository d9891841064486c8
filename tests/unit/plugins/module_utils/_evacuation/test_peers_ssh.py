# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket
import threading

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.peers import (
    SSH_ANSWERS,
    SSH_REFUSED,
    SSH_SILENT,
    SSH_UNKNOWN,
    probe_ssh,
    probe_ssh_endpoints,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import SshEndpoint


def test_an_open_port_answers_and_a_closed_one_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert probe_ssh("127.0.0.1", port) == SSH_ANSWERS
    assert probe_ssh("127.0.0.1", port) == SSH_REFUSED


def test_a_name_that_does_not_resolve_is_unknown_and_not_silent() -> None:
    assert probe_ssh("no-such-host.invalid", 22) == SSH_UNKNOWN
    assert probe_ssh("x" * 300, 22) == SSH_UNKNOWN


def test_all_endpoints_are_probed_at_once_and_returned_in_order() -> None:
    """Each attempt waits until the other one has started."""
    both = threading.Barrier(2, timeout=10)

    def wait_for_the_other(address: str, port: int) -> str:
        both.wait()
        return SSH_SILENT if port == 22 else SSH_REFUSED

    doors = [SshEndpoint("192.0.2.1", 22), SshEndpoint("192.0.2.2", 2222)]
    assert probe_ssh_endpoints(doors, wait_for_the_other) == (SshEndpoint("192.0.2.1", 22, SSH_SILENT), SshEndpoint("192.0.2.2", 2222, SSH_REFUSED))
    assert probe_ssh_endpoints([], wait_for_the_other) == ()
