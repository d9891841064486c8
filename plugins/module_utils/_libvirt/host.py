# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A libvirt host: the one implementation of L(Host). It moves, starts, stops and defines domains."""

from __future__ import annotations

import contextlib
import typing as t

from .._model import domain_states
from .._model.codec import JsonObject
from .._model.definition_files import KEEPS_TPM_SINCE, has_deletable_tpm
from .._model.errors import Aborted, Conflict, InvalidState, MigrationFailed, NotFound, NotSupported, Unsafe
from .._model.libvirt_formats import check_migrate_uri, check_uri
from .._model.policy_documents import CONFIG, LIVE, POLICY_NAMESPACE, POLICY_PREFIX, read_policy_element
from .connection import Opened, libvirt_binding, libvirt_errors, open_connection, open_for_reading, translate_error
from .folders import make_folder
from .reading import job_stats, job_words, parse_domain_xml
from .saved_memory import LibvirtSavedMemory
from .values import Permissions

if t.TYPE_CHECKING:
    import libvirt

_COMPLETED_KEEP = 1 | 2  # VIR_DOMAIN_JOB_STATS_COMPLETED | _KEEP_COMPLETED
_JOB_COMPLETED = 3
# libvirt's own value for "unlimited"; it refuses 0.
_NO_CAP_MIB = 8796093022207
_METADATA_ELEMENT = 2
# VIR_DOMAIN_EVENT_RESUMED, VIR_DOMAIN_EVENT_RESUMED_MIGRATED
_RESUMED_MIGRATED = (4, 1)
_AFFECT = {LIVE: 1, CONFIG: 2}
# virDomainEventStoppedDetailType, in the words that virsh has for the state's reason.
_STOPPED = {0: "shutdown", 1: "destroyed", 2: "crashed", 3: "migrated", 4: "saved", 5: "failed", 6: "from snapshot"}
# virDomainCreateFlags, virDomainUndefineFlagsValues.
_START_PAUSED = 1
_DROP_MANAGED_SAVE, _KEEP_NVRAM, _DROP_CHECKPOINTS, _KEEP_TPM = 1, 8, 16, 64
_CHECKPOINTS_SINCE = 5006000
# virDomainXMLFlags: with passwords; what the next start would use.
_WITH_PASSWORDS, _INACTIVE, _MIGRATABLE = 1, 2, 8


class LibvirtHost(LibvirtSavedMemory):
    """Implements L(Host) over one connection; see L(Host) for what each call does and raises."""

    def __init__(self, uri: str, opened: Opened) -> None:
        super().__init__(uri, opened)
        self._completed: t.Dict[str, t.Mapping[str, int]] = {}
        self._stops: t.Dict[str, str] = {}

    def read_job(self, uuid: str) -> t.Optional[domain_states.JobStats]:
        stats = self._job_statistics(uuid)
        return job_stats(stats) if job_words(stats) == domain_states.JOB_OUTGOING else None

    def completed_job(self, uuid: str) -> t.Optional[domain_states.JobStats]:
        reported = self._completed.get(uuid)
        stats = reported if reported is not None else self._job_statistics(uuid, _COMPLETED_KEEP)
        return job_stats(stats) if reported is not None or stats.get("type") == _JOB_COMPLETED else None

    def is_incoming(self, uuid: str) -> bool:
        return self.view_domain(uuid).job == domain_states.JOB_INCOMING

    def migrate_domain(self, uuid: str, destination_uri: str, flags: t.Sequence[str], parameters: JsonObject) -> None:
        attempt = f"move domain {uuid} to {check_uri(destination_uri, 'The URI of the destination')}"
        if "migrate_uri" in parameters:
            check_migrate_uri(parameters["migrate_uri"])
        bits = 0
        for flag in flags:
            bits |= self._constant(f"VIR_MIGRATE_{flag}")
        try:
            self._look_up_domain(uuid, attempt).migrateToURI3(destination_uri, dict(parameters), bits)
        except libvirt_binding().libvirtError as error:
            ours = translate_error(error, attempt)
            if isinstance(ours, (Aborted, Conflict, InvalidState, NotSupported, Unsafe)):
                raise ours from error
            raise MigrationFailed(ours.message, **ours.result) from error

    def abort_job(self, uuid: str) -> None:
        domain = self._look_up_domain(uuid, "abort")
        try:
            with libvirt_errors(f"abort the migration of domain {uuid}"):
                domain.abortJob()
        except InvalidState as error:
            if self.view_domain(uuid).reason in (domain_states.POST_COPY, domain_states.POST_COPY_FAILED):
                raise NotSupported(error.message, "In post-copy a migration cannot be aborted: wait for its end.") from error
            raise

    def max_downtime_ms(self, uuid: str) -> int:
        with libvirt_errors(f"read the downtime of domain {uuid}"):
            return int(self._look_up_domain(uuid, "read the downtime").migrateGetMaxDowntime())

    def set_max_downtime_ms(self, uuid: str, milliseconds: int) -> None:
        with libvirt_errors(f"set the downtime of domain {uuid}"):
            self._look_up_domain(uuid, "set the downtime").migrateSetMaxDowntime(milliseconds)

    def bandwidth_mib(self, uuid: str) -> int:
        with libvirt_errors(f"read the bandwidth of domain {uuid}"):
            return int(self._look_up_domain(uuid, "read the bandwidth").migrateGetMaxSpeed())

    def set_bandwidth_mib(self, uuid: str, mib: int) -> None:
        # libvirt keeps two limits: that of pre-copy has no effect after the switch-over.
        in_post_copy = self.read_state(uuid)[1] in (domain_states.POST_COPY, domain_states.POST_COPY_FAILED)
        flags = libvirt_binding().VIR_DOMAIN_MIGRATE_MAX_SPEED_POSTCOPY if in_post_copy else 0
        with libvirt_errors(f"set the bandwidth of domain {uuid}"):
            self._look_up_domain(uuid, "set the bandwidth").migrateSetMaxSpeed(mib or _NO_CAP_MIB, flags)

    def start_post_copy(self, uuid: str) -> None:
        with libvirt_errors(f"switch domain {uuid} to post-copy"):
            self._look_up_domain(uuid, "switch to post-copy").migrateStartPostCopy()

    def pause_post_copy(self, uuid: str) -> None:
        flags = self._constant("VIR_DOMAIN_ABORT_JOB_POSTCOPY")
        with libvirt_errors(f"pause the post-copy migration of domain {uuid}"):
            self._look_up_domain(uuid, "pause post-copy").abortJobFlags(flags)

    def suspend_domain(self, uuid: str) -> None:
        with libvirt_errors(f"suspend domain {uuid} on {self.uri}"):
            self._look_up_domain(uuid, "suspend").suspend()

    def listen_for_completion(self, uuid: str) -> None:
        with contextlib.suppress(NotFound), libvirt_errors(f"listen for the end of the job of domain {uuid}"):
            domain = self._connection.lookupByUUIDString(uuid)
            self._connection.domainEventRegisterAny(domain, libvirt_binding().VIR_DOMAIN_EVENT_ID_JOB_COMPLETED, self._on_job_completed, None)

    def listen_for_arrivals(self, arrived: t.Callable[[str], None]) -> None:
        def report_arrival(_connection: libvirt.virConnect, domain: libvirt.virDomain, event: int, detail: int, _opaque: None) -> None:
            # In post-copy, the guest is first resumed with another detail, and with this one after all of its memory has arrived.
            if (event, detail) == _RESUMED_MIGRATED:
                arrived(domain.UUIDString())

        with libvirt_errors(f"listen for arriving domains on {self.uri}"):
            self._connection.domainEventRegisterAny(None, libvirt_binding().VIR_DOMAIN_EVENT_ID_LIFECYCLE, report_arrival, None)

    def resume_domain(self, uuid: str) -> None:
        with libvirt_errors(f"resume domain {uuid} on {self.uri}"):
            self._look_up_domain(uuid, "resume").resume()

    def destroy_domain(self, uuid: str) -> None:
        with libvirt_errors(f"destroy domain {uuid} on {self.uri}"):
            self._look_up_domain(uuid, "destroy").destroy()

    def undefine_domain(self, uuid: str) -> None:
        knows_checkpoints = self._connection.getLibVersion() >= _CHECKPOINTS_SINCE
        self._undefine_unless_active(uuid, _DROP_MANAGED_SAVE | (_DROP_CHECKPOINTS if knows_checkpoints else 0) | self._keeping_flags())

    def set_autostart(self, uuid: str, autostart: bool) -> None:
        with libvirt_errors(f"set autostart of domain {uuid} on {self.uri}"):
            self._look_up_domain(uuid, "set autostart").setAutostart(int(autostart))

    def read_policies(self, uuid: str) -> t.Dict[str, str]:
        """Return the XML of the domain's migration policy, empty for none, in each definition it has: C(live), C(config)."""
        with libvirt_errors(f"read the definition of domain {uuid} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid)
            texts = {LIVE: domain.XMLDesc(0)} if domain.isActive() else {}
            if domain.isPersistent():
                texts[CONFIG] = domain.XMLDesc(_INACTIVE)
        return {scope: read_policy_element(parse_domain_xml(xml)) for scope, xml in texts.items()}

    def set_policy(self, uuid: str, xml: str, scopes: t.Sequence[str]) -> None:
        """Write the domain's migration policy, empty for none, into these definitions.

        Raises L(InvalidState) if the domain has a job: libvirt would wait 30 s, and still write it later (docs/libvirt.md, "A domain with a job").
        """
        view = self.view_domain(uuid)
        if view.is_busy:
            raise InvalidState(f"Domain {uuid} on {self.uri} is {view.describe()} and has a job in progress ({view.job}).", "Wait for its end.")
        with libvirt_errors(f"write the migration policy of domain {uuid} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid)
            domain.setMetadata(_METADATA_ELEMENT, xml or None, POLICY_PREFIX if xml else None, POLICY_NAMESPACE, sum(_AFFECT[scope] for scope in scopes))

    def make_folder(self, path: str, permissions: Permissions) -> None:
        make_folder(self._connection, path, self.uri, permissions)

    def find_uuid(self, name: str) -> t.Optional[str]:
        """Return the UUID of the domain that has this name, or null."""
        with contextlib.suppress(NotFound), libvirt_errors(f"look up the name {name!r} on {self.uri}"):
            return str(self._connection.lookupByName(name).UUIDString())
        return None

    def list_emulators(self) -> t.List[str]:
        """Return the programs with which this host runs guests."""
        return sorted({emulator.text or "" for emulator in self._read_capabilities().iter("emulator")})

    def define_domain(self, definition: str) -> None:
        """Create a persistent definition on this host."""
        with libvirt_errors(f"define the domain on {self.uri}"):
            self._connection.defineXML(definition)

    def start_domain(self, uuid: str, paused: bool = False) -> None:
        """Start a domain that is defined on this host."""
        with libvirt_errors(f"start domain {uuid} on {self.uri}"):
            self._connection.lookupByUUIDString(uuid).createWithFlags(_START_PAUSED if paused else 0)

    def create_domain(self, definition: str, paused: bool) -> None:
        """Start a transient domain."""
        with libvirt_errors(f"start the transient domain on {self.uri}"):
            self._connection.createXML(definition, _START_PAUSED if paused else 0)

    def undefine_if_inactive(self, uuid: str) -> None:
        """Remove an inactive definition; NVRAM, TPM state and a memory image are kept. Nothing happens if the domain is active or gone.

        Raises L(NotSupported) if libvirt would delete TPM state.
        """
        self._undefine_unless_active(uuid, self._keeping_flags(), self._check_tpm_kept)

    def on_poweroff(self, uuid: str) -> str:
        with libvirt_errors(f"read the definition of domain {uuid} on {self.uri}"):
            xml = self._look_up_domain(uuid, "read the definition").XMLDesc(0)
        return parse_domain_xml(xml).findtext("on_poweroff") or "destroy"

    def listen_for_stop(self, uuid: str) -> None:
        with libvirt_errors(f"listen for the end of domain {uuid} on {self.uri}"):
            domain = self._look_up_domain(uuid, "listen for the end")
            self._connection.domainEventRegisterAny(domain, libvirt_binding().VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_lifecycle, None)

    def stopped_by(self, uuid: str) -> t.Optional[str]:
        return self._stops.get(uuid)

    def shut_down(self, uuid: str) -> None:
        try:
            with libvirt_errors(f"ask domain {uuid} on {self.uri} to shut down"):
                self._look_up_domain(uuid, "shut down").shutdown()
        except InvalidState:
            if self.view_domain(uuid).active:
                raise

    def read_whole_definition(self, uuid: str, persistent: bool) -> str:
        """Return the definition with its passwords: the inactive one of a persistent domain, the live one of a transient one as another host can start it.

        The plain live one has the bridge of each libvirt network, which a start on another host would use instead of the network.

        Raises L(NotFound), or L(Forbidden) on a connection that may only read.
        """
        with libvirt_errors(f"read the whole definition of domain {uuid} on {self.uri}"):
            return str(self._connection.lookupByUUIDString(uuid).XMLDesc(_WITH_PASSWORDS | (_INACTIVE if persistent else _MIGRATABLE)))

    def read_movable_definition(self, uuid: str, persistent: bool) -> str:
        """Return the definition that a migrate call would send, with its passwords: the live one, or the inactive one of a persistent domain.

        Raises L(NotFound), or L(Forbidden) on a connection that may only read.
        """
        with libvirt_errors(f"read the definition of domain {uuid} for its move from {self.uri}"):
            flags = _WITH_PASSWORDS | _MIGRATABLE | (_INACTIVE if persistent else 0)
            return str(self._connection.lookupByUUIDString(uuid).XMLDesc(flags))

    def read_definition(self, uuid: str) -> str:
        """Return the inactive definition, without passwords. Raises L(NotFound)."""
        with libvirt_errors(f"read the definition of domain {uuid} on {self.uri}"):
            return str(self._connection.lookupByUUIDString(uuid).XMLDesc(_INACTIVE))

    def iterate_definitions(self) -> t.Iterator[t.Tuple[str, str, str]]:
        """Yield UUID, name and definition of every domain of the host, of an active one the live definition and the inactive one."""
        for domain in self._all_domains():
            with contextlib.suppress(NotFound), libvirt_errors(f"read a domain of {self.uri}"):
                uuid, name = domain.UUIDString(), domain.name()
                yield uuid, name, domain.XMLDesc(0)
                if domain.isActive() and domain.isPersistent():
                    yield uuid, name, domain.XMLDesc(_INACTIVE)

    def count_snapshots(self, uuid: str) -> t.Tuple[int, int]:
        """Return how many snapshots and checkpoints libvirt has of the domain; undefining it would delete their metadata."""
        with libvirt_errors(f"count the snapshots of domain {uuid} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid)
            snapshots = int(domain.snapshotNum())
        try:
            with libvirt_errors(f"count the checkpoints of domain {uuid} on {self.uri}"):
                return snapshots, len(domain.listAllCheckpoints())
        except NotSupported:
            return snapshots, 0

    def keeps_tpm(self) -> bool:
        """Whether this libvirt can undefine a domain and keep the state of its emulated TPM."""
        return bool(self._connection.getLibVersion() >= KEEPS_TPM_SINCE)

    def undefine_inactive(self, uuid: str) -> None:
        """Undefine an inactive domain; NVRAM and TPM stay. Nothing happens if the domain is gone.

        Raises L(InvalidState) if it is active, or if libvirt would have to delete a managed-save image or snapshots with it; L(NotSupported) if it would
        delete TPM state.
        """
        flags = self._keeping_flags()
        with contextlib.suppress(NotFound), libvirt_errors(f"undefine domain {uuid} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid)
            if domain.isActive():
                raise InvalidState(f"Domain {domain.name()} ({uuid}) is active on {self.uri}: it was not undefined.")
            self._check_tpm_kept(domain)
            domain.undefineFlags(flags)

    def _keeping_flags(self) -> int:
        """Return the flags with which libvirt keeps firmware variables, and the state of a TPM where it can."""
        return _KEEP_NVRAM | (_KEEP_TPM if self.keeps_tpm() else 0)

    def _check_tpm_kept(self, domain: libvirt.virDomain) -> None:
        """Raise L(NotSupported) if the state of a TPM would go with the definition: on storage that hosts share, it may be the only one."""
        if self.keeps_tpm() or not has_deletable_tpm(parse_domain_xml(domain.XMLDesc(_INACTIVE))):
            return
        raise NotSupported(
            f"Domain {domain.name()} ({domain.UUIDString()}) was not undefined on {self.uri}: its libvirt would delete the state of the emulated TPM with the "
            "definition (libvirt 8.9 keeps it).",
            "Update libvirt there, or copy that state and undefine the domain by hand. Then run the task again.",
        )

    def _undefine_unless_active(self, uuid: str, flags: int, check: t.Callable[[libvirt.virDomain], None] = lambda domain: None) -> None:
        """:arg check: raises the reason why an inactive domain stays defined."""
        with contextlib.suppress(NotFound), libvirt_errors(f"undefine domain {uuid} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid)
            if not domain.isActive():
                check(domain)
                domain.undefineFlags(flags)

    def _on_job_completed(self, _connection: libvirt.virConnect, domain: libvirt.virDomain, stats: t.Mapping[str, int], _opaque: None) -> None:
        self._completed[domain.UUIDString()] = dict(stats)

    def _job_statistics(self, uuid: str, flags: int = 0) -> t.Mapping[str, int]:
        try:
            with libvirt_errors(f"read the job of domain {uuid} on {self.uri}"):
                return self._connection.lookupByUUIDString(uuid).jobStats(flags)
        except (NotFound, NotSupported, InvalidState):
            return {}

    @staticmethod
    def _constant(name: str) -> int:
        try:
            return int(getattr(libvirt_binding(), name))
        except AttributeError as error:
            raise NotSupported(f"This host's libvirt binding does not know {name}.", "Update python3-libvirt.") from error

    def _on_lifecycle(self, _connection: libvirt.virConnect, domain: libvirt.virDomain, event: int, detail: int, _opaque: None) -> None:
        if event == libvirt_binding().VIR_DOMAIN_EVENT_STOPPED:
            self._stops[domain.UUIDString()] = _STOPPED.get(detail, "")


def open_host(uri: str, timeout_seconds: t.Optional[float] = None) -> LibvirtHost:
    """Open a host to act on it. Raises L(Unreachable), and L(Forbidden) for a user who may not."""
    return LibvirtHost(uri, Opened(open_connection(uri, timeout_seconds)))


def open_reader(uri: str, timeout_seconds: t.Optional[float] = None) -> LibvirtHost:
    """Open a host to read it, over libvirt's read-only connection if this user has no other. Raises as L(open_host)."""
    return LibvirtHost(uri, open_for_reading(uri, timeout_seconds))
