# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entries of hosts and domains for tests, from their keys as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, decode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DomainEntry, HostEntry


def host_entry(keys: Mapping[str, Json]) -> HostEntry:
    """Return the entry with these keys; what they leave out of its identity is not known, and the host is enabled."""
    return decode(HostEntry, {"name": "kvm", "host_id": None, "host_uuid": None, "state": "enabled", **keys})


def domain_entry(keys: Mapping[str, Json]) -> DomainEntry:
    """Return the entry with these keys."""
    return decode(DomainEntry, keys)
