# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Somebody who asks before moving; a guest that nothing may touch; hosts that are not like the others for a while."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk, check_untouched
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

Make = t.Callable[..., str]
Remake = t.Callable[..., str]

# Small guests that write, so that their memory proves that it was moved, or not, as a whole.
WRITER = ("--mib", "64", "--dirty-mib", "8", "--rate", "500", "--integrity")


@pytest.fixture
def control_type() -> type[Desk]:
    return Desk


@pytest.fixture
def web(guest: Make) -> str:
    return guest("web", *WRITER)


@pytest.fixture
def remade(lab: Lab, guest: Make) -> Remake:
    """Return a function that makes a guest on the first host of which parts of the definition are replaced by others."""

    def make(name: str, *options: str, parts: t.Mapping[str, str], on: int = 1) -> str:
        guest(name, *WRITER, *options, "--off", on=on)
        xml = lab.virsh(on, "dumpxml", "--inactive", name)
        for old, new in parts.items():
            assert old in xml, xml
            xml = xml.replace(old, new, 1)
        lab("virsh", lab.host(on), "define", "/dev/stdin", stdin=xml)
        lab.virsh(on, "start", name)
        return name

    return make


@pytest.fixture
def believing(lab: Lab) -> t.Iterator[t.Callable[..., None]]:
    """Return a function that lets a host believe in an older QEMU or processor; it finds its own again after the test."""
    hosts: list[int] = []

    def believe(number: int, *options: str) -> None:
        hosts.append(number)
        lab("believe", lab.host(number), *options)

    yield believe
    for number in dict.fromkeys(hosts):
        lab("believe", lab.host(number))


@pytest.fixture
def stopped(lab: Lab) -> t.Iterator[t.Callable[[int], None]]:
    """Return a function that stops a host's libvirtd; it runs again after the test."""
    hosts: list[int] = []

    def stop(number: int) -> None:
        hosts.append(number)
        lab("libvirtd", lab.host(number), "stop")
        eventually(lambda: not lab.rows()[lab.host(number)]["libvirtd"], "libvirtd has stopped")

    yield stop
    for number in hosts:
        lab("libvirtd", lab.host(number), "start")


@pytest.fixture(scope="module")
def web_for_all(lab: Lab) -> t.Iterator[str]:
    """A guest that all tests of a file share, since none of them may move it."""
    lab("guest", "shared", "--host", lab.host(1), *WRITER)
    yield "shared"
    check_untouched(lab, "shared")
    lab("rmguest", "shared")
