# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A post-copy migration that breaks without a watcher is recovered by the rulebook."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.integration.eda.conftest import Begin
from ansible_collections.kvmfleet.migration.tests.integration.eda.support.rulebook import PLAY_SECONDS, START_SECONDS
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.phases import POST_COPY, await_post_copy
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import eventually
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site


def test_a_broken_post_copy_is_reported_when_disarmed_and_recovered_when_armed(site: Site, guest: Make, begin: Begin) -> None:
    """It broke before the rulebook started, which finds it when it connects. Disarmed, the rulebook reports it; armed, it recovers it."""
    guest("web", "--mib", "64", "--dirty-mib", "40", "--rate", "500", storage="none")
    running = site.begin_move("web", 2, **POST_COPY)
    state = await_post_copy(site.lab, "web")
    running.kill()
    site.lab.on(1, "kill", "-9", str(state["watcher"]["pid"]))
    site.lab.virsh(1, "domjobabort", "web", "--postcopy")
    eventually(lambda: "post-copy failed" in site.lab.virsh(1, "domstate", "web", "--reason"), "the post-copy is broken")

    unarmed = begin("kvmfleet.migration.post_copy_failed")
    unarmed.says(f"Post-copy of web from {site.name(1)} has failed", START_SECONDS)
    unarmed.end()
    assert "post-copy failed" in site.lab.virsh(1, "domstate", "web", "--reason")

    armed = begin("kvmfleet.migration.post_copy_failed", kvmfleet_events_recover=True)
    armed.meanwhile(lambda: site.record_summaries() == [site.line("web", "completed", 1, 2)], "the record is closed", PLAY_SECONDS)
    assert site.lab.places("web") == {2: "running"}
    assert site.lab.check("web")["intact"]
    armed.says("failed=0", PLAY_SECONDS)
    armed.end()
    site.verify_audit()
