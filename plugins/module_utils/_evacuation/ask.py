# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Where domains are now: every host of the fleet is asked over libvirt, all at once."""

from __future__ import annotations

import concurrent.futures
import typing as t

from .._errors import KvmfleetError, Unreachable
from .._migration import hypervisor as h
from .._patience import within

MAX_AT_ONCE = 32
# A busy host may take 60 s to open a connection, and a daemon that is starting a domain answers nothing until that domain runs. Such a connection stays alive.
PATIENCE_SECONDS = 90.0

Answer = t.Dict[str, t.Any]


class AskedHost(t.Protocol):
    """A host that can name its domains."""

    def host_id(self) -> t.Optional[str]:
        """The host's own ID, null where it cannot be read."""

    def host_uuid(self) -> str:
        """Libvirt's UUID of the host."""

    def roster(self) -> t.List[t.Dict[str, t.Any]]:
        """C({uuid, name, active, ...}) of every domain."""

    def view(self, uuid: str) -> h.GuestView:
        """One domain, or that it is not there."""

    def close(self) -> None:
        """Close the connection; never raises."""


def ask_fleet(
    uris: t.Mapping[str, str],
    open_host: t.Callable[[str], AskedHost],
    uuids: t.Optional[t.Collection[str]] = None,
    patience_seconds: float = PATIENCE_SECONDS,
    identify: bool = True,
) -> t.Dict[str, Answer]:
    """Return, by the host's name, C({answered: true, host_id, host_uuid, domains: {uuid: {active}}}), or C({answered: false, msg, error_code}).

    :arg uris: name of each host to its URI.
    :arg uuids: the domains that are asked for, each for itself: a list of all waits for every domain that the host is starting. None means all.
    :arg identify: whether each host's own ID is asked for; else C(host_id) is null.
    :arg patience_seconds: who has not answered by then is silent.
    """
    names = sorted(uris)
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, min(MAX_AT_ONCE, len(names)))) as pool:
        return dict(zip(names, pool.map(lambda name: _in_time(uris[name], open_host, uuids, patience_seconds, identify), names)))


def _in_time(uri: str, open_host: t.Callable[[str], AskedHost], uuids: t.Optional[t.Collection[str]], seconds: float, identify: bool) -> Answer:
    answer = within(seconds, lambda: _ask(uri, open_host, uuids, identify))
    return answer or {"answered": False, **Unreachable(f"libvirt at {uri} did not answer within {seconds:.0f} s.").as_result()}


def _ask(uri: str, open_host: t.Callable[[str], AskedHost], uuids: t.Optional[t.Collection[str]], identify: bool) -> Answer:
    try:
        host = open_host(uri)
    except KvmfleetError as error:
        return {"answered": False, **error.as_result()}
    try:
        domains = {uuid: {"active": active} for uuid, active in _domains(host, uuids).items()}
        host_id = host.host_id() if identify else None
        return {"answered": True, "host_id": host_id, "host_uuid": host.host_uuid(), "domains": domains}
    except KvmfleetError as error:
        return {"answered": False, **error.as_result()}
    finally:
        host.close()


def _domains(host: AskedHost, uuids: t.Optional[t.Collection[str]]) -> t.Dict[str, bool]:
    """Return the domains of the host, or those of these that it has, and whether they are active."""
    if uuids is None:
        return {entry["uuid"]: entry["active"] for entry in host.roster()}
    views = ((uuid, host.view(uuid)) for uuid in sorted(uuids))
    return {uuid: view.active for uuid, view in views if view.present}
