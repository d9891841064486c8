# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._logins import FREE_LOGINS, LOGINS_PER_SECOND, spread_logins, spread_seconds


def uris(count: int, scheme: str = "qemu+ssh") -> list[str]:
    return [f"{scheme}://root@kvm{number}/system" for number in range(count)]


def at_rest() -> float:
    """A clock while no time passes."""
    return 0.0


def test_few_hosts_are_asked_at_once() -> None:
    slept: list[float] = []
    opened = [spread_logins(str.upper, uris(FREE_LOGINS), sleep=slept.append, clock=at_rest)(uri) for uri in uris(FREE_LOGINS)]
    assert (opened, slept) == ([uri.upper() for uri in uris(FREE_LOGINS)], [])


@pytest.mark.parametrize("scheme", ["qemu+tls", "qemu+tcp", "qemu"])
def test_logins_without_ssh_do_not_wait(scheme: str) -> None:
    assert spread_logins(str.upper, uris(300, scheme)) == str.upper


def test_each_host_has_a_slot_of_its_own_and_only_once() -> None:
    slept: list[float] = []
    opening = spread_logins(str.upper, uris(300), sleep=slept.append, clock=at_rest)
    assert [opening(uri) for uri in uris(300)] == [uri.upper() for uri in uris(300)]
    assert len(set(slept)) > 290
    assert min(slept) >= 0
    assert max(slept) <= spread_seconds(300)
    opening(uris(1)[0])
    assert len(slept) == 300


def test_a_host_whose_slot_has_come_is_opened_at_once() -> None:
    """Workers that ask one host after another would otherwise add up their waits: ten minutes in a fleet of a thousand hosts."""
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    opening = spread_logins(str.upper, uris(300), sleep=sleep, clock=lambda: now[0])
    for uri in uris(300):
        opening(uri)
    assert sum(slept) <= spread_seconds(300)


def test_logins_of_all_hosts_at_one_host_stay_below_the_number_at_which_its_server_drops_all() -> None:
    """Every one of 300 hosts asks all others; a login takes a thirtieth of a second, one after the other."""
    begins = []
    for _asking in range(299):
        slept: list[float] = []
        spread_logins(str.upper, uris(299), sleep=slept.append, clock=at_rest)(uris(1)[0])
        begins += slept
    waiting = longest = 0.0
    before = 0.0
    for begin in sorted(begins):
        waiting = max(0.0, waiting - (begin - before) * LOGINS_PER_SECOND) + 1
        longest, before = max(longest, waiting), begin
    # Some come together by chance, and are dropped and repeated; above 100 (MaxStartups 10:30:100) all would be dropped. Without slots there are 299.
    assert longest < 100


def test_a_period_can_be_limited_where_few_hosts_ask() -> None:
    slept: list[float] = []
    opening = spread_logins(str.upper, uris(1000), 1.0, slept.append, at_rest)
    for uri in uris(1000):
        opening(uri)
    assert len(slept) == 1000
    assert 0.5 < max(slept) <= 1.0
