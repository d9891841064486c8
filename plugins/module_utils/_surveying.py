# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The survey as it is made on a real host: over libvirt to all candidates, with the host's own mounts."""

from __future__ import annotations

import typing as t

from ._facts.gather import gather
from ._hypervisor.storage import is_on_shared_mount, read_mounts
from ._hypervisor.storage_host import LibvirtStorageHost
from ._hypervisor.storage_host import open_storage_host as open_host
from ._hypervisor.uri import is_local
from ._migration.survey import survey
from ._storage.inspect import inspect

Facts = t.Dict[str, t.Any]


def surveyed(uri: str, wanted: t.Sequence[t.Mapping[str, t.Any]], may_examine: bool) -> Facts:
    """Return what L(survey) finds for these moves.

    :arg uri: of the host that the moves start from.
    :arg may_examine: whether the storage of both hosts may be tested where a move wants disks copied; it needs root and a local URI.
    """
    mounts = read_mounts() if is_local(uri) else None
    source = open_host(uri)
    try:
        return survey(
            source,
            wanted,
            open_host,
            lambda path: mounts is not None and is_on_shared_mount(path, mounts),
            lambda host: gather(host)[0],
            _examine if may_examine else None,
        )
    finally:
        source.close()


def _examine(uuid: str, source: LibvirtStorageHost, destination: LibvirtStorageHost) -> t.List[Facts]:
    return inspect(source.images(uuid), destination)
