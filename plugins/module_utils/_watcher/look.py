# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A watcher's last act: it asks the hosts of its moves who is there, so that nobody has to start another module for that."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import typing as t

from .._errors import KvmfleetError
from .._facts.identity import read_host_id
from .._hypervisor.uri import is_local
from .._migration.hypervisor import Host
from .._records.clock import utc_now
from .files import RUN_FOLDER, seen_path, write_json
from .order import Order

Facts = t.Dict[str, t.Any]


def forget(run_id: str, folder: str = RUN_FOLDER) -> None:
    """Remove what an earlier watcher of this run has seen."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(seen_path(run_id, folder))


def look(orders: t.Sequence[Order], run_id: str, open_host: t.Callable[[str], Host], folder: str = RUN_FOLDER) -> None:
    """Write, by libvirt URI, what source and destinations say now; one that does not answer is left out."""
    uris = sorted({uri for order in orders for uri in (order.source_uri, order.destination_uri)})
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(uris))) as pool:
        answers = list(pool.map(lambda uri: _asked(uri, open_host), uris))
    # It only spares others a question: without room for it they ask themselves.
    with contextlib.suppress(OSError):
        write_json(seen_path(run_id, folder), {"seen": {uri: answer for uri, answer in zip(uris, answers) if answer}})


def _asked(uri: str, open_host: t.Callable[[str], Host]) -> t.Optional[Facts]:
    try:
        host = open_host(uri)
        try:
            itself = {"host_uuid": host.host_uuid(), "host_id": read_host_id() if is_local(uri) else host.host_id()}
            return {"gathered_at": utc_now(), **itself, "domains": host.census()}
        finally:
            host.close()
    except KvmfleetError:
        return None
