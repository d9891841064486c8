# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host with a clean shutdown token, which an operator revokes while the host is off."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site

Make = t.Callable[..., str]
PROGRAM = "/usr/local/lib/kvmfleet/kvmfleet-guard"


@pytest.mark.long
def test_a_clean_shutdown_token_that_was_revoked_elsewhere_does_not_release_the_boot(site: Site, guest: Make) -> None:
    # Through such mounts the locks of images do not conflict: nothing but the guard keeps the guest from running twice.
    guest("auto", "--autostart", storage="bindfs")
    # One run of the role is enough: a host is granted a token only after the others' sight of its folders was recorded.
    code, text = site.playbook("protect", target="kvmfleet_hosts", protect_host_clean_shutdown_token=True)
    assert code == 0, text
    assert site.task(1, "host", {}).result["host"]["protected"]["token_id"], text
    again = site.task(1, "protect", {"guard": True, "clean_shutdown_token": True})
    assert (again.code, again.changed) == (0, False), again.text
    assert "nobody could revoke" not in again.result["guard"]["note"]
    shut_down(site)
    assert site.evacuate(2).refused() == "unsafe"

    # Another host and its token, which nobody revoked.
    site.bring_back(1)
    assert site.fleet() == {1: {"auto"}, 2: set(), 3: set()}
    # The token was good for that boot only, also in an earlier copy of the host's disk.
    before = site.task(1, "host", {}).result["host"]["protected"]["token_id"]
    runs = [site.task(1, "protect", {"guard": True, "clean_shutdown_token": True}).changed for _run in range(2)]
    assert runs == [True, False]
    assert site.task(1, "host", {}).result["host"]["protected"]["token_id"] not in (None, before)

    shut_down(site)
    revocation = {"name": site.name(1), "revoke_token": True, "reason": "it is to be evacuated"}
    revoked = site.task(2, "host", revocation)
    assert (revoked.code, revoked.changed) == (0, True), revoked.text
    assert not site.task(3, "host", revocation).changed
    done = site.evacuate(2)
    assert done.code == 0, done.text
    site.bring_back(1)
    site.check_end_state({1: [], 2: ["auto"], 3: []}, site.line("auto", "done", 1, 2))
    boot = site.task(1, "boot_guard", {}).result["guard"]
    assert boot["released"] is None
    assert "was revoked while this host was off" in boot["held"]["why"]
    code, text = site.playbook("recover", target=site.name(1))
    assert code == 0, text
    site.check_end_state({1: [], 2: ["auto"], 3: []}, site.line("auto", "completed", 1, 2))


def shut_down(site: Site) -> None:
    """Shut the first host down cleanly, so that it leaves a token."""
    assert "Left a token" in site.lab.on(1, PROGRAM, "shutdown")
    site.lab.virsh(1, "destroy", "auto")
    site.lose(1)


@pytest.mark.long
def test_a_host_without_shared_storage_gets_no_grant_and_is_held(site: Site, guest: Make) -> None:
    guest("auto", "--autostart", storage="local")
    code, text = site.playbook("protect", target="kvmfleet_hosts", protect_host_clean_shutdown_token=True)
    assert code == 0, text
    assert "nobody could revoke" in text
    assert site.task(1, "host", {}).result["host"]["protected"]["token_id"] is None
    assert "No token is left" in site.lab.on(1, PROGRAM, "shutdown")
    site.lab.virsh(1, "destroy", "auto")
    site.lose(1)
    site.bring_back(1)
    assert site.fleet() == {1: set(), 2: set(), 3: set()}
