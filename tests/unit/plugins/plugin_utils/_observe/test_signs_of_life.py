# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports that are probed on the loopback interface, and the leases of hosts by their names."""

from __future__ import annotations

import asyncio
import dataclasses
import socket

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HostLease, LeaseFleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.leases import SeenLease
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import signs_of_life
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.signs_of_life import leases_by_name, probe_port

LEASE = HostLease("1", "kvm1", "b", 1, 1, 15, 3, LeaseFleet("a", 3), "direct", "2026-11-26T20:00:00.000Z")


def test_a_port_that_answers_or_refuses_has_answered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert asyncio.run(probe_port("127.0.0.1", port)).answers
    assert asyncio.run(probe_port("127.0.0.1", port)).answers


def test_an_address_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # A server whose queue is full answers nobody.
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        fill = [socket.socket() for _number in range(4)]
        for one in fill:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        monkeypatch.setattr(signs_of_life, "_PROBE_TIMEOUT_SECONDS", 0.3)
        answer = asyncio.run(probe_port("127.0.0.1", port))
        for one in fill:
            one.close()
    assert (answer.answers, answer.says) == (False, "no answer within 0.3 s")


def test_an_address_that_cannot_be_reached_does_not_answer() -> None:
    # A name that is none.
    assert not asyncio.run(probe_port("host.invalid", 22)).answers


def test_of_two_leases_of_one_name_the_one_renewed_last_counts() -> None:
    old, new = SeenLease(7, LEASE), SeenLease(9, dataclasses.replace(LEASE, host_id="2"))
    assert leases_by_name({"2": new, "1": old}) == {"kvm1": new}
    assert leases_by_name({"1": old, "2": new}) == {"kvm1": new}
