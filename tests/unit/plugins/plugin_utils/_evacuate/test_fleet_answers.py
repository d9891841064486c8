# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fleet_answers import list_dead_names, list_libvirt_uris
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.source import Source
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import Site
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry


def test_a_host_that_was_fenced_earlier_is_asked_like_the_dead_host(site: Site) -> None:
    """Its port is silent while it waits for its repair. It is not waited for as for a host that is busy."""
    saved = {"libvirt_uri": "qemu+tcp://192.0.2.1/system"}
    entries = [
        host_entry({"name": "kvm1", "host_id": None, "state": "enabled", "addresses": saved}),
        host_entry({"name": "kvm2", "host_id": None, "state": "fenced"}),
        host_entry({"name": "kvm3", "host_id": None, "state": "maintenance"}),
    ]
    source = Source(entries[0])
    uris = list_libvirt_uris(site.settings(), entries, "kvm4", source)
    assert list_dead_names(source, entries, uris) == ["kvm1", "kvm2", "kvm1 (at its saved address)"]
