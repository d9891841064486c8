# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A libvirt host that tells of itself in one pass: as few calls as it takes, for a host may have hundreds of domains."""

from __future__ import annotations

import time
import typing as t

from .._errors import KvmfleetError, NotFound
from .._facts.ports import Definition, Roll
from .._migration import hypervisor as h
from .cpus import compare_cpu
from .domain import definition_root, info_of, state_words
from .errors import libvirt_errors
from .hardware import hardware
from .host import LibvirtHost
from .paths import Paths
from .surroundings import surroundings

Json = t.Dict[str, t.Any]

# virConnectListAllDomainsFlags, virDomainStatsTypes, virConnectGetAllDomainStatsFlags.
_PERSISTENT, _AUTOSTART, _WITH_SNAPSHOT = 4, 1024, 4096
_STATE, _DIRTY_RATE = 1, 512
_NO_WAIT = 1 << 29
# virDomainDirtyRateStatus: measured.
_MEASURED = 2
_SLACK_SECONDS = 3.0
_POLL_SECONDS = 0.2


class LibvirtFactsHost(LibvirtHost):
    """Implements L(GatheredHost)."""

    def __init__(self, uri: str, timeout_seconds: t.Optional[float] = None) -> None:
        super().__init__(uri, timeout_seconds)
        self._hardware: t.Optional[Json] = None
        self._paths = Paths(self._connection, uri)

    def hardware(self) -> Json:
        if self._hardware is None:
            self._hardware = hardware(self._connection, self.uri, self._capabilities())
        return self._hardware

    def surroundings(self) -> Json:
        return surroundings(self._connection, self.uri)

    def has_path(self, path: str) -> t.Optional[bool]:
        """Return whether the host has that file, folder or device; null where libvirt cannot tell."""
        return self._paths.has(path)

    def compare_cpu(self, platform: t.Mapping[str, t.Any], cpu_xml: str) -> Json:
        """Return C(passed) and C(reason); see L(cpus.compare_cpu)."""
        kinds = [kind for kind in self.hardware()["platforms"] if (kind["arch"], kind["virt_type"]) == (platform["arch"], platform["virt_type"])]
        able = next((kind["cpu"]["features"] for kind in kinds if kind["cpu"]), ())
        return compare_cpu(self._connection, self.uri, platform, cpu_xml, able)

    def roll(self) -> Roll:
        with libvirt_errors(f"list the domains of {self.uri}"):
            states = self._connection.getAllDomainStats(_STATE, _NO_WAIT)
            persistent, autostart, with_snapshot = (
                {domain.UUIDString() for domain in self._connection.listAllDomains(flag)} for flag in (_PERSISTENT, _AUTOSTART, _WITH_SNAPSHOT)
            )
        roll = Roll([])
        for domain, stats in states:
            uuid = domain.UUIDString()
            try:
                view = self._seen(domain, stats, uuid in persistent)
                roll.definitions.append(self._definition(domain, view, uuid in autostart, uuid in with_snapshot))
            except NotFound:
                roll.vanished.append(domain.name())
        return roll

    def dirty_rates(self, uuids: t.Sequence[str], seconds: int) -> t.Dict[str, int]:
        measured = [domain for domain in map(self._measure(seconds), uuids) if domain is not None]
        if not measured:
            return {}
        time.sleep(seconds)
        deadline = time.monotonic() + _SLACK_SECONDS
        while True:
            with libvirt_errors(f"read the dirty rates of {self.uri}"):
                stats = {domain.UUIDString(): found for domain, found in self._connection.domainListGetStats(measured, _DIRTY_RATE, _NO_WAIT)}
            rates = {uuid: int(found["dirtyrate.megabytes_per_second"]) for uuid, found in stats.items() if _is_measured(found)}
            if len(rates) == len(measured) or time.monotonic() > deadline:
                return rates
            time.sleep(_POLL_SECONDS)

    def _measure(self, seconds: int) -> t.Callable[[str], t.Any]:
        """Return a function that starts the measuring of a domain and returns it, or null where it cannot be.

        It would wait 30 s on a domain with a job, so that is asked right before (libvirt.md, section 0).
        """

        def start(uuid: str) -> t.Any:
            try:
                with libvirt_errors(f"measure the dirty rate of domain {uuid} on {self.uri}"):
                    domain = self._connection.lookupByUUIDString(uuid)
                    if self._job_of(domain) != h.JOB_NONE:
                        return None
                    domain.startDirtyRateCalc(seconds, 0)
                    return domain
            except KvmfleetError:
                return None

        return start

    def _seen(self, domain: t.Any, stats: t.Mapping[str, t.Any], persistent: bool) -> h.GuestView:
        active = domain.ID() >= 0
        state, reason = state_words(stats.get("state.state", -1), stats.get("state.reason", -1))
        with libvirt_errors(f"read the job of domain {domain.name()} on {self.uri}"):
            job = self._job_of(domain) if active else h.JOB_NONE
        return h.GuestView(present=True, active=active, persistent=persistent, state=state, reason=reason, job=job)

    def _definition(self, domain: t.Any, view: h.GuestView, autostart: bool, has_snapshots: bool) -> Definition:
        known: Json = {"uuid": domain.UUIDString(), "name": domain.name(), "view": view, "autostart": view.persistent and autostart}
        try:
            # Of an active domain the plain definition is the live one, with the CPU that the guest really sees: that is what a destination is held to.
            # The migratable one names the CPU that was asked for, which may be more than even its own host gave.
            with libvirt_errors(f"read the definition of domain {domain.name()} on {self.uri}"):
                root = definition_root(domain.XMLDesc(0))
            return Definition(h.DomainInfo(**known, **info_of(root)), root, has_snapshots)
        except NotFound:
            raise
        except KvmfleetError as error:
            problem = f"Its definition could not be read: {error}"
        with libvirt_errors(f"read domain {domain.name()} of {self.uri}"):
            _state, memory_kib, _used, vcpus, _time = domain.info()
        return Definition(h.DomainInfo(**known, memory_bytes=memory_kib * 1024, vcpus=vcpus), None, has_snapshots, problem)


def _is_measured(stats: t.Mapping[str, t.Any]) -> bool:
    return stats.get("dirtyrate.calc_status") == _MEASURED and "dirtyrate.megabytes_per_second" in stats


def open_facts_host(uri: str, timeout_seconds: t.Optional[float] = None) -> LibvirtFactsHost:
    """Open a host. Raises L(Unreachable)."""
    return LibvirtFactsHost(uri, timeout_seconds)
