# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a person should know of a host's libvirt UUID: that it changes, or that another host has the same one."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Iterator, Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import shares_uuid

from .identity import Identity
from .places import HOW_TO_SET_UUID

Body = Mapping[str, t.Any]

_WHY_IT_CHANGES = "Where the firmware (DMI) has no usable UUID, libvirt makes a random one at each start of its daemon."


def uuid_notes(before: t.Optional[Body], identity: Identity, entries: Iterable[Body]) -> list[str]:
    """Return a sentence for each thing that is wrong with the host's libvirt UUID; empty where nothing is.

    :arg before: the host's entry as it was.
    :arg entries: of all hosts.
    """
    return [*_changed(before, identity), *_shared(identity, entries)]


def _changed(before: t.Optional[Body], identity: Identity) -> Iterator[str]:
    now = identity.as_dict()
    if before is None or not identity.host_id or any(before.get(key) != now[key] for key in ("host_id", "machine_id")):
        return
    was = before.get("host_uuid")
    if was and identity.host_uuid and was != identity.host_uuid:
        yield (
            f"The libvirt UUID of {identity.name} was {was}, and is {identity.host_uuid} now, though it is the same host by its host ID and machine ID. "
            f"{_WHY_IT_CHANGES} The host is known by its host ID all the same. {HOW_TO_SET_UUID}"
        )


def _shared(identity: Identity, entries: Iterable[Body]) -> Iterator[str]:
    names = sorted(str(entry["name"]) for entry in entries if shares_uuid(entry, identity.as_dict()))
    if names:
        yield (
            f"{identity.name} and {', '.join(names)} have the same libvirt UUID ({identity.host_uuid}): libvirt refuses to migrate between them. "
            f"{HOW_TO_SET_UUID}"
        )
