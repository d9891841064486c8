# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One libvirt host, as the engine wants to see it."""

from __future__ import annotations

import contextlib
import os
import typing as t
import uuid as uuid_module
from xml.etree import ElementTree

from .._errors import Aborted, Conflict, InvalidState, KvmfleetError, MigrationFailed, NotFound, NotSupported, Unsafe
from .._facts.identity import HOST_ID_FILE
from .._migration import hypervisor as h
from .._policy.change import CONFIG, LIVE
from .._policy.document import NAMESPACE, PREFIX, element_of
from .._xml import parse_libvirts
from .connection import open_connection
from .domain import definition_root, job_stats, job_words, parse_definition, state_words
from .errors import libvirt_errors, translated
from .folder import open_folder
from .library import libvirt
from .uri import check_migrate_uri, check_uri

_COMPLETED_KEEP = 1 | 2  # VIR_DOMAIN_JOB_STATS_COMPLETED | _KEEP_COMPLETED
_JOB_COMPLETED = 3
# What libvirt itself says for "unlimited"; 0 would be refused.
_NO_CAP_MIB = 8796093022207
_UNDEFINE_KEEPING = 1 | 8 | 64  # MANAGED_SAVE | KEEP_NVRAM | KEEP_TPM
_KEEP_TPM_SINCE = 8009000
_XML_INACTIVE = 2
_METADATA_ELEMENT = 2
# virConnectListAllDomainsFlags, virDomainStatsTypes, virConnectGetAllDomainStatsFlags.
_AUTOSTART = 1024
_STATE_STATS, _NO_WAIT = 1, 1 << 29
# VIR_DOMAIN_EVENT_RESUMED, _RESUMED_MIGRATED
_RESUMED_MIGRATED = (4, 1)
_AFFECT = {LIVE: 1, CONFIG: 2}


class LibvirtHost:
    """Implements L(Host) over one connection. See there for what each call does and raises."""

    def __init__(self, uri: str, timeout_seconds: t.Optional[float] = None) -> None:
        self.uri = uri
        self._completed: t.Dict[str, t.Mapping[str, t.Any]] = {}
        self._host_capabilities: t.Optional[ElementTree.Element] = None
        self._connection = open_connection(uri) if timeout_seconds is None else open_connection(uri, timeout_seconds)

    def answers(self) -> bool:
        with libvirt_errors(f"ask for the connection to {self.uri}"):
            return bool(self._connection.isAlive())

    def host_uuid(self) -> str:
        return self._capabilities().findtext("host/uuid") or ""

    def host_id(self) -> t.Optional[str]:
        """Return the host's own ID from its file there; null where it has none, or where libvirt cannot read it."""
        folder, name = os.path.split(HOST_ID_FILE)
        try:
            with open_folder(self._connection, folder, self.uri) as opened:
                return str(uuid_module.UUID(opened.read(name).decode("ascii").strip()))
        except (KvmfleetError, ValueError):
            return None

    def emulator_uid(self) -> t.Optional[int]:
        """Return the user ID that QEMU runs as, null where libvirt does not tell it."""
        for model in self._capabilities().findall("host/secmodel"):
            label = model.findtext("baselabel[@type='kvm']") or model.findtext("baselabel") or ""
            uid = label.partition(":")[0].lstrip("+")
            if model.findtext("model") == "dac" and uid.isdecimal():
                return int(uid)
        return None

    def hostname(self) -> str:
        with libvirt_errors(f"read the host name of {self.uri}"):
            return str(self._connection.getHostname())

    def versions(self) -> t.Dict[str, int]:
        with libvirt_errors(f"read the versions of {self.uri}"):
            return {"libvirt": self._connection.getLibVersion(), "hypervisor": self._connection.getVersion()}

    def find(self, name: t.Optional[str] = None, uuid: t.Optional[str] = None) -> h.DomainInfo:
        wanted = uuid or name
        with libvirt_errors(f"look up domain {wanted!r} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid) if uuid else self._connection.lookupByName(name)
            return self._info(domain)

    def domains(self) -> t.List[h.DomainInfo]:
        """Return every domain of the host, defined or active; one that goes away meanwhile is left out."""
        infos = []
        for domain in self._all_domains():
            with contextlib.suppress(NotFound), libvirt_errors(f"read a domain of {self.uri}"):
                infos.append(self._info(domain))
        return infos

    def roster(self) -> t.List[t.Dict[str, t.Any]]:
        """Return C({uuid, name, active, memory_bytes, vcpus}) of every domain: what capacity needs, and no definition is read."""
        roster = []
        for domain in self._all_domains():
            with contextlib.suppress(NotFound), libvirt_errors(f"read a domain of {self.uri}"):
                _state, memory_kib, _used, vcpus, _time = domain.info()
                roster.append(
                    {
                        "uuid": domain.UUIDString(),
                        "name": domain.name(),
                        "active": bool(domain.isActive()),
                        "memory_bytes": memory_kib * 1024,
                        "vcpus": vcpus,
                    }
                )
        return roster

    def census(self) -> t.List[t.Dict[str, t.Any]]:
        with libvirt_errors(f"list the domains of {self.uri}"):
            states = self._connection.getAllDomainStats(_STATE_STATS, _NO_WAIT)
            autostart = {domain.UUIDString() for domain in self._connection.listAllDomains(_AUTOSTART)}
        return [self._counted(domain, stats, autostart) for domain, stats in states]

    def memory(self) -> t.Dict[str, int]:
        """Return C(total_bytes) and C(free_bytes) of the host (free: what the kernel could give at once, caches not counted)."""
        with libvirt_errors(f"read the memory of {self.uri}"):
            total = self._connection.getInfo()[1] * 1024**2
            stats = self._connection.getMemoryStats(-1)
        return {"total_bytes": stats.get("total", total // 1024) * 1024, "free_bytes": stats.get("free", 0) * 1024}

    def cpus(self) -> int:
        """Return the number of the host's active CPUs."""
        with libvirt_errors(f"read the CPUs of {self.uri}"):
            return int(self._connection.getInfo()[2])

    def view(self, uuid: str) -> h.GuestView:
        try:
            with libvirt_errors(f"ask {self.uri} for domain {uuid}"):
                return self._view(self._connection.lookupByUUIDString(uuid))
        except NotFound:
            return h.NOT_THERE

    def state(self, uuid: str) -> t.Tuple[str, str]:
        try:
            with libvirt_errors(f"ask {self.uri} for the state of domain {uuid}"):
                return state_words(*self._connection.lookupByUUIDString(uuid).state()[:2])
        except NotFound:
            return h.SHUTOFF, ""

    def job(self, uuid: str) -> t.Optional[h.JobStats]:
        stats = self._job_statistics(uuid)
        return job_stats(stats) if job_words(stats) == h.JOB_OUTGOING else None

    def completed_job(self, uuid: str) -> t.Optional[h.JobStats]:
        told = self._completed.get(uuid)
        stats = told if told is not None else self._job_statistics(uuid, _COMPLETED_KEEP)
        return job_stats(stats) if told is not None or stats.get("type") == _JOB_COMPLETED else None

    def incoming_from(self, uuid: str) -> bool:
        return self.view(uuid).job == h.JOB_INCOMING

    def migrate(self, uuid: str, destination_uri: str, flags: t.Sequence[str], parameters: t.Mapping[str, t.Any]) -> None:
        attempt = f"move domain {uuid} to {check_uri(destination_uri, 'The URI of the destination')}"
        if "migrate_uri" in parameters:
            check_migrate_uri(parameters["migrate_uri"])
        bits = 0
        for flag in flags:
            bits |= self._flag(flag)
        try:
            self._lookup(uuid, attempt).migrateToURI3(destination_uri, dict(parameters), bits)
        except libvirt().libvirtError as error:
            ours = translated(error, attempt)
            if isinstance(ours, (Aborted, Conflict, InvalidState, NotSupported, Unsafe)):
                raise ours from error
            raise MigrationFailed(ours.message, **ours.result) from error

    def abort(self, uuid: str) -> None:
        domain = self._lookup(uuid, "abort")
        try:
            with libvirt_errors(f"abort the migration of domain {uuid}"):
                domain.abortJob()
        except InvalidState as error:
            if self.view(uuid).reason in (h.POST_COPY, h.POST_COPY_FAILED):
                raise NotSupported(error.message, "In post-copy a migration cannot be aborted: wait for its end.") from error
            raise

    def max_downtime_ms(self, uuid: str) -> int:
        with libvirt_errors(f"read the downtime of domain {uuid}"):
            return int(self._lookup(uuid, "read the downtime").migrateGetMaxDowntime())

    def set_max_downtime_ms(self, uuid: str, milliseconds: int) -> None:
        with libvirt_errors(f"set the downtime of domain {uuid}"):
            self._lookup(uuid, "set the downtime").migrateSetMaxDowntime(milliseconds)

    def set_bandwidth_mib(self, uuid: str, mib: int) -> None:
        # Libvirt keeps two: what is set for pre-copy means nothing once the guest has switched over.
        in_post_copy = self.state(uuid)[1] in (h.POST_COPY, h.POST_COPY_FAILED)
        flags = libvirt().VIR_DOMAIN_MIGRATE_MAX_SPEED_POSTCOPY if in_post_copy else 0
        with libvirt_errors(f"set the bandwidth of domain {uuid}"):
            self._lookup(uuid, "set the bandwidth").migrateSetMaxSpeed(mib or _NO_CAP_MIB, flags)

    def start_post_copy(self, uuid: str) -> None:
        with libvirt_errors(f"switch domain {uuid} to post-copy"):
            self._lookup(uuid, "switch to post-copy").migrateStartPostCopy()

    def pause_post_copy(self, uuid: str) -> None:
        with libvirt_errors(f"pause the post-copy migration of domain {uuid}"):
            self._lookup(uuid, "pause post-copy").abortJobFlags(libvirt().VIR_DOMAIN_ABORT_JOB_POSTCOPY)

    def suspend(self, uuid: str) -> None:
        with libvirt_errors(f"suspend domain {uuid} on {self.uri}"):
            self._lookup(uuid, "suspend").suspend()

    def listen(self, uuid: str) -> None:
        with contextlib.suppress(NotFound), libvirt_errors(f"listen for the end of the job of domain {uuid}"):
            domain = self._connection.lookupByUUIDString(uuid)
            self._connection.domainEventRegisterAny(domain, libvirt().VIR_DOMAIN_EVENT_ID_JOB_COMPLETED, self._on_job_completed, None)

    def listen_for_arrivals(self, arrived: t.Callable[[str], None]) -> None:
        def seen(_connection: t.Any, domain: t.Any, event: int, detail: int, _opaque: t.Any) -> None:
            # In post-copy the guest is resumed with another detail first, and with this one when its memory is there.
            if (event, detail) == _RESUMED_MIGRATED:
                arrived(domain.UUIDString())

        with libvirt_errors(f"listen for arriving domains on {self.uri}"):
            self._connection.domainEventRegisterAny(None, libvirt().VIR_DOMAIN_EVENT_ID_LIFECYCLE, seen, None)

    def _on_job_completed(self, _connection: t.Any, domain: t.Any, stats: t.Mapping[str, t.Any], _opaque: t.Any) -> None:
        self._completed[domain.UUIDString()] = dict(stats)

    def resume(self, uuid: str) -> None:
        with libvirt_errors(f"resume domain {uuid} on {self.uri}"):
            self._lookup(uuid, "resume").resume()

    def destroy(self, uuid: str) -> None:
        with libvirt_errors(f"destroy domain {uuid} on {self.uri}"):
            self._lookup(uuid, "destroy").destroy()

    def undefine(self, uuid: str) -> None:
        flags = _UNDEFINE_KEEPING if self._connection.getLibVersion() >= _KEEP_TPM_SINCE else _UNDEFINE_KEEPING & ~64
        with contextlib.suppress(NotFound), libvirt_errors(f"undefine domain {uuid} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid)
            if not domain.isActive():
                domain.undefineFlags(flags)

    def set_autostart(self, uuid: str, autostart: bool) -> None:
        with libvirt_errors(f"set autostart of domain {uuid} on {self.uri}"):
            self._lookup(uuid, "set autostart").setAutostart(int(autostart))

    def policies(self, uuid: str) -> t.Dict[str, str]:
        """Return the XML of the domain's migration policy, empty for none, in each definition it has: C(live), C(config)."""
        with libvirt_errors(f"read the definition of domain {uuid} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid)
            texts = {LIVE: domain.XMLDesc(0)} if domain.isActive() else {}
            if domain.isPersistent():
                texts[CONFIG] = domain.XMLDesc(_XML_INACTIVE)
        return {scope: element_of(definition_root(xml)) for scope, xml in texts.items()}

    def set_policy(self, uuid: str, xml: str, scopes: t.Sequence[str]) -> None:
        """Write the domain's migration policy, empty for none, into these definitions.

        Raises L(InvalidState) where the domain has a job: libvirt would wait 30 s, and write it later all the same (libvirt.md, section 0).
        """
        view = self.view(uuid)
        if view.is_busy:
            raise InvalidState(f"Domain {uuid} on {self.uri} is {view.describe()} and has a job in progress ({view.job}).", "Wait for its end.")
        with libvirt_errors(f"write the migration policy of domain {uuid} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid)
            domain.setMetadata(_METADATA_ELEMENT, xml or None, PREFIX if xml else None, NAMESPACE, sum(_AFFECT[scope] for scope in scopes))

    def close(self) -> None:
        with contextlib.suppress(libvirt().libvirtError):
            self._connection.close()

    def _counted(self, domain: t.Any, stats: t.Mapping[str, t.Any], autostart: t.Set[str]) -> t.Dict[str, t.Any]:
        uuid = domain.UUIDString()
        state, reason = state_words(stats.get("state.state", -1), stats.get("state.reason", -1))
        return {"uuid": uuid, "name": domain.name(), "active": domain.ID() >= 0, "state": state, "reason": reason, "autostart": uuid in autostart}

    def _all_domains(self) -> t.List[t.Any]:
        with libvirt_errors(f"list the domains of {self.uri}"):
            return t.cast(t.List[t.Any], self._connection.listAllDomains())

    # -- reading -------------------------------------------------------------------------------------------------

    def _capabilities(self) -> ElementTree.Element:
        if self._host_capabilities is None:
            with libvirt_errors(f"read the capabilities of {self.uri}"):
                self._host_capabilities = parse_libvirts(self._connection.getCapabilities(), "capabilities")
        return self._host_capabilities

    def _lookup(self, uuid: str, attempt: str) -> t.Any:
        with libvirt_errors(f"{attempt}: find domain {uuid} on {self.uri}"):
            return self._connection.lookupByUUIDString(uuid)

    def _info(self, domain: t.Any) -> h.DomainInfo:
        persistent = bool(domain.isPersistent())
        return h.DomainInfo(
            uuid=domain.UUIDString(),
            name=domain.name(),
            view=self._view(domain),
            autostart=persistent and bool(domain.autostart()),
            **parse_definition(domain.XMLDesc(0)),
        )

    def _view(self, domain: t.Any) -> h.GuestView:
        state, reason = state_words(*domain.state()[:2])
        active = bool(domain.isActive())
        return h.GuestView(
            present=True,
            active=active,
            persistent=bool(domain.isPersistent()),
            state=state,
            reason=reason,
            job=self._job_of(domain) if active else h.JOB_NONE,
        )

    def _job_of(self, domain: t.Any) -> str:
        try:
            return job_words(domain.jobStats())
        except libvirt().libvirtError as error:
            # The destination refuses statistics of what it is receiving; that refusal is the answer.
            if isinstance(translated(error, ""), NotSupported):
                return h.JOB_INCOMING
            if isinstance(translated(error, ""), (InvalidState, NotFound)):
                return h.JOB_NONE
            raise

    def _job_statistics(self, uuid: str, flags: int = 0) -> t.Mapping[str, t.Any]:
        try:
            with libvirt_errors(f"read the job of domain {uuid} on {self.uri}"):
                return t.cast(t.Mapping[str, t.Any], self._connection.lookupByUUIDString(uuid).jobStats(flags))
        except (NotFound, NotSupported, InvalidState):
            return {}

    @staticmethod
    def _flag(name: str) -> int:
        try:
            return int(getattr(libvirt(), f"VIR_MIGRATE_{name}"))
        except AttributeError as error:
            raise NotSupported(f"This host's libvirt binding does not know VIR_MIGRATE_{name}.", "Update python3-libvirt.") from error


def open_host(uri: str, timeout_seconds: t.Optional[float] = None) -> LibvirtHost:
    """Open a host. Raises L(Unreachable)."""
    return LibvirtHost(uri, timeout_seconds)
