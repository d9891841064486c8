# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A file server hangs when a host dies: its guests wait, and the others are started without waiting for each of them."""

from __future__ import annotations

import contextlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site

Make = t.Callable[..., str]


@contextlib.contextmanager
def hung_server(lab: Lab, number: int) -> t.Iterator[None]:
    """Stop the process that serves the shared file system to a host."""
    (server,) = lab.on(number, "pgrep", "-x", "bindfs").split()
    lab.on(number, "kill", "-STOP", server)
    try:
        yield
    finally:
        lab.on(number, "kill", "-CONT", server)


@pytest.mark.long
def test_a_file_server_that_hangs_keeps_only_its_own_guests_down(site: Site, guest: Make) -> None:
    served = [guest(f"db{number}", storage="bindfs") for number in range(5)]
    guest("web")
    site.protect()
    site.lose(1)
    with hung_server(site.lab, 2):
        done = site.evacuate(2)
    assert done.result["error_code"] == "unsafe", done.text
    assert site.fleet() == {2: {"web"}, 3: set()}
    for name in served:
        assert f"Domain {name} cannot be started on {site.name(2)}: disk vda: the token that its host left in" in done.msg
    assert done.msg.count("does not answer") == len(served)
    # Their server is back, and so are they.
    again = site.evacuate(2)
    assert again.code == 0, again.text
    assert site.fleet() == {2: {"web", *served}, 3: set()}


@pytest.mark.long
def test_protecting_while_a_file_server_hangs_withdraws_no_proof(site: Site, guest: Make) -> None:
    """A timer protects the fleet during the outage, and the host dies at its end."""
    names = {guest("db0", storage="bindfs"), guest("off", "--off", storage="bindfs")}
    site.protect()
    with contextlib.ExitStack() as outage:
        for number in (1, 2, 3):
            outage.enter_context(hung_server(site.lab, number))
        site.protect()
    site.lose(1)
    done = site.evacuate(2)
    assert done.code == 0, done.text
    assert site.fleet() == {2: {"db0"}, 3: set()}
    assert all(site.has_definition(name, 2) for name in names)


@pytest.mark.long
def test_guests_go_where_their_file_server_answers(site: Site, guest: Make) -> None:
    """Libvirt of either host would hang with a move of one of them, and the others would wait for it."""
    served = {guest(f"db{number}", storage="bindfs") for number in range(2)}
    alone = {guest(f"web{number}", storage="none") for number in range(2)}
    site.protect()
    with hung_server(site.lab, 1):
        code, text = site.playbook("drain", target=site.name(1), drain_host_candidates=[site.name(3)])
        assert code != 0, text
        assert "that file system does not answer" in text
        assert site.fleet() == {1: served, 2: set(), 3: alone}
    with hung_server(site.lab, 2):
        code, text = site.playbook("drain", target=site.name(1), drain_host_candidates=[site.name(2)])
        assert code != 0, text
        assert "that file system does not answer" in text
        assert site.fleet() == {1: served, 2: set(), 3: alone}
        site.lose(1)
        code, text = site.playbook("evacuate", source=site.name(1))
        assert code == 0, text
        assert "cannot be started" not in text
        assert site.fleet() == {2: set(), 3: {*alone, *served}}
