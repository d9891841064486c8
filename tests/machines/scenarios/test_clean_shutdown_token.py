# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that may release its own boot after a clean shutdown: it does so once; and when a person has revoked that, it is evacuated and starts nothing."""

from __future__ import annotations

import json

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

GUARD = "/usr/local/lib/kvmfleet/kvmfleet-guard status"


# The guests have nothing that could shut them down, and libvirt-guests would wait five minutes for each.
QUICK_SHUTDOWN = "printf 'SHUTDOWN_TIMEOUT=5\\nPARALLEL_SHUTDOWN=2\\n' >/etc/default/libvirt-guests"


def test_a_clean_reboot_releases_the_host_and_a_revoked_token_does_not(protected: Site) -> None:
    site, machines = protected, protected.machines
    machines.on(1, QUICK_SHUTDOWN)
    site.succeed("protect", target="m1", protect_host_clean_shutdown_token=True)

    machines("reboot", "m1")
    # Nobody released it, and web starts with its host.
    assert machines.active() == {1: {"web"}, 2: set(), 3: set()}

    machines.shut_down(1)
    refused = site.play_book("evacuate", source="m1")
    assert refused.code != 0, refused.text
    assert "token" in refused.text, refused.text
    assert machines.active() == {2: set(), 3: set()}
    assert site.record_summaries() == []

    # By a host that sees its storage: there it will read this.
    revoked = site.do(2, "host", name="m1", revoke_token=True, reason="Its board is broken")
    assert revoked.code == 0, revoked.text
    site.succeed("evacuate", source="m1")
    evacuated = machines.active()
    assert "web" in evacuated[2] | evacuated[3]

    # Its disk still has the token and the right to leave one; it was switched off before anybody could tell it.
    machines("poweron", "m1")
    assert machines.active() == {1: set(), **evacuated}, "the host released itself by a token that was revoked"
    status = json.loads(machines.on(1, GUARD))
    assert "revoked" in status["held"]["why"], status
    assert (status["grant"], status["token"]) == (None, None), status
    site.succeed("recover", target="m1")
    assert machines.active() == {1: set(), **evacuated}
    site.verify_audit()
