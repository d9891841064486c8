# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Orders to start a domain of a dead host."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import HostTokens, RestartOrder, SavedDisk


def restart_order(
    uuid: str, name: str, definition: str | None, sources: tuple[tuple[str, str], ...] = (), disks: tuple[SavedDisk, ...] = (), record: str = "record"
) -> RestartOrder:
    """Return an order to have the domain running, with these disks and nothing beside them."""
    return RestartOrder(
        record=record,
        note={"id": record},
        generation=1,
        rejoin=False,
        settle_only=False,
        uuid=uuid,
        name=name,
        definition=definition,
        persistent=True,
        autostart=True,
        wanted="running",
        sources=sources,
        disks=disks,
        files=(),
        fresh=(),
        accepted_locks=(),
        tokens=HostTokens("source", {}),
    )
