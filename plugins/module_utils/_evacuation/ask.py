# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Where domains are now: every host of the fleet is asked over libvirt, all at once."""

from __future__ import annotations

import concurrent.futures
import typing as t

from .._errors import KvmfleetError

MAX_AT_ONCE = 32

Answer = t.Dict[str, t.Any]


class AskedHost(t.Protocol):
    """A host that can name its domains."""

    def host_uuid(self) -> str:
        """Libvirt's UUID of the host."""

    def roster(self) -> t.List[t.Dict[str, t.Any]]:
        """C({uuid, name, active, ...}) of every domain."""

    def close(self) -> None:
        """Close the connection; never raises."""


def ask_fleet(uris: t.Mapping[str, str], open_host: t.Callable[[str], AskedHost], uuids: t.Optional[t.Collection[str]] = None) -> t.Dict[str, Answer]:
    """Return, by the host's name, C({answered: true, host_uuid, domains: {uuid: {name, active}}}), or C({answered: false, msg, error_code}).

    :arg uris: name of each host to its URI.
    :arg uuids: the domains that are asked for; None means all.
    """
    names = sorted(uris)
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, min(MAX_AT_ONCE, len(names)))) as pool:
        return dict(zip(names, pool.map(lambda name: _ask(uris[name], open_host, uuids), names)))


def _ask(uri: str, open_host: t.Callable[[str], AskedHost], uuids: t.Optional[t.Collection[str]]) -> Answer:
    try:
        host = open_host(uri)
    except KvmfleetError as error:
        return {"answered": False, **error.as_result()}
    try:
        roster = host.roster()
        wanted = [entry for entry in roster if uuids is None or entry["uuid"] in uuids]
        domains = {entry["uuid"]: {"name": entry["name"], "active": entry["active"]} for entry in wanted}
        return {"answered": True, "host_uuid": host.host_uuid(), "domains": domains}
    except KvmfleetError as error:
        return {"answered": False, **error.as_result()}
    finally:
        host.close()
