# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The interface of a host: the protocols that L(LibvirtHost) and the fakes of the unit tests implement."""

from __future__ import annotations

import typing as t

from .._model import domain_states
from .._model.codec import JsonObject
from .._model.domain_states import DomainInfo, DomainView, JobStats
from .._model.facts import GuestPlatform, HardwareFacts, Surroundings
from .._model.fleet_cpus import CpuFeatures
from .._model.record_parts import Checkpoint
from .._model.watched_moves import CpuVerdict
from .values import DefinitionList, DomainState, DomainUse, Image, Permissions, Volume


class Folder(t.Protocol):
    """A folder of a host, as a storage pool shows it."""

    path: str

    def refresh_listing(self) -> None:
        """Read the folder again; later calls use this listing."""

    def available_bytes(self) -> int:
        """The free space in bytes."""

    def find_volume(self, name: str) -> t.Optional[Volume]:
        """The file of that name, if it exists."""

    def find_users(self, path: str) -> t.List[str]:
        """The files of the folder that have this one as their backing file."""

    def read_piece(self, name: str, offset: int = 0, length: int = 4096) -> bytes:
        """A piece of a file; less at the end of the file."""

    def create_image(self, name: str, image_format: str, capacity_bytes: int) -> None:
        """Make a new image. Raises L(Conflict) if the name is taken."""

    def remove_file(self, name: str) -> None:
        """Remove a file; nothing happens if it is gone."""

    def write_file(self, name: str, content: bytes, permissions: Permissions) -> None:
        """Make a new file with that content. Its host may lose it in a power failure. Raises L(Conflict) if the name is taken."""

    def copy_file(self, name: str, new_name: str, permissions: Permissions) -> None:
        """Make a copy. It is on disk when this returns, unless libvirt recognizes the file as an image. Raises L(Conflict) if the name is taken."""


class Host(t.Protocol):
    """One libvirt host behind one connection. Every call may raise L(Unreachable) when the connection is gone.

    Over a read-only connection, every call that acts raises L(Forbidden), and calls that read return null, or nothing, for what libvirt withholds there.
    """

    uri: str

    @property
    def is_read_only(self) -> bool:
        """Whether the connection is libvirt's read-only one."""

    def is_connected(self) -> bool:
        """Whether the connection is still open, as far as is known without a query."""

    def host_id(self) -> t.Optional[str]:
        """The host's own ID, null if it has none, or if it cannot be read."""

    def host_uuid(self) -> str:
        """Libvirt's UUID of the host."""

    def read_hostname(self) -> str:
        """The host's own name."""

    def read_versions(self) -> t.Dict[str, int]:
        """C(libvirt) and C(hypervisor) as libvirt's numbers, e.g. 9000000."""

    def find_domain(self, name: t.Optional[str] = None, uuid: t.Optional[str] = None) -> DomainInfo:
        """The domain of that UUID, or else of that name. Raises L(NotFound)."""

    def list_states(self) -> t.List[DomainState]:
        """C({uuid, name, active, state, reason, autostart}) of every domain, in one answer and without their definitions."""

    def view_domain(self, uuid: str) -> DomainView:
        """The current state of the domain; L(NOT_THERE) if it has none."""

    def read_state(self, uuid: str) -> t.Tuple[str, str]:
        """Only state and reason of the domain, for every poll; C(shut off) if it does not exist."""

    def read_job(self, uuid: str) -> t.Optional[JobStats]:
        """Figures of the outgoing migration of the domain; null without such a job."""

    def completed_job(self, uuid: str) -> t.Optional[JobStats]:
        """Figures of the migration that the domain has just ended, if the host still has them."""

    def is_incoming(self, uuid: str) -> bool:
        """Whether the domain is an incoming domain of this host."""

    def migrate_domain(self, uuid: str, destination_uri: str, flags: t.Sequence[str], parameters: JsonObject) -> None:
        """Move the domain peer-to-peer and wait for the end. Raises L(MigrationFailed) or L(Aborted). Neither states where the guest is."""

    def abort_job(self, uuid: str) -> None:
        """Cancel the outgoing migration. Raises L(InvalidState) without a migration, L(NotSupported) in post-copy."""

    def max_downtime_ms(self, uuid: str) -> int:
        """The maximum downtime of the domain's migrations."""

    def set_max_downtime_ms(self, uuid: str, milliseconds: int) -> None:
        """Allow that downtime, at once."""

    def bandwidth_mib(self, uuid: str) -> int:
        """The bandwidth of the domain's migrations that libvirt keeps, in MiB/s; a huge number is no limit."""

    def set_bandwidth_mib(self, uuid: str, mib: int) -> None:
        """Limit the running job's memory stream to that many MiB/s, at once; 0 is no limit."""

    def start_post_copy(self, uuid: str) -> None:
        """Switch the running job to post-copy. Raises L(InvalidState) if it was not started with the permission to do so."""

    def pause_post_copy(self, uuid: str) -> None:
        """Break a post-copy migration that is under way, so that it can be resumed over a new link."""

    def suspend_domain(self, uuid: str) -> None:
        """Stop the domain, also while it is being moved."""

    def listen_for_completion(self, uuid: str) -> None:
        """Remember the host's event of the end of the domain's job, for L(completed_job)."""

    def listen_for_arrivals(self, arrived: t.Callable[[str], None]) -> None:
        """Call the function, from another thread, with the UUID of each domain that runs on this host with all of its memory after a migration."""

    def resume_domain(self, uuid: str) -> None:
        """Let the paused domain run. Never for a domain with a job: libvirt would do it later."""

    def destroy_domain(self, uuid: str) -> None:
        """Kill this host's copy of the domain."""

    def undefine_domain(self, uuid: str) -> None:
        """Remove an inactive definition and its checkpoints; NVRAM and TPM state are kept. Nothing happens if the domain is active or gone."""

    def set_autostart(self, uuid: str, autostart: bool) -> None:
        """Set whether the domain starts with its host."""

    def emulator_uid(self) -> t.Optional[int]:
        """The user ID that QEMU runs as, null if libvirt does not report it."""

    def read_memory(self) -> t.Dict[str, int]:
        """C(total_bytes) and C(free_bytes)."""

    def count_cpus(self) -> int:
        """Number of active CPUs."""

    def read_hardware(self) -> HardwareFacts:
        """CPUs, NUMA cells, and the kinds of guests that can run."""

    def read_surroundings(self) -> Surroundings:
        """Pools, networks, devices, network filters and secrets; null for what libvirt could not report."""

    def list_definitions(self) -> DefinitionList:
        """Every domain of the host, each definition read once."""

    def list_use(self) -> t.List[DomainUse]:
        """What every active domain has used of the host, in one answer. Does not wait for domains with a job: of those, some figures are null."""

    def start_dirty_rates(self, uuids: t.Sequence[str], seconds: int) -> t.List[str]:
        """Start to measure the dirty rate of these domains for that many seconds. Returns those that are measured: others have a job, or cannot be."""

    def read_dirty_rates(self, uuids: t.Sequence[str]) -> t.Dict[str, int]:
        """The dirty rate in bytes a second of those of the domains whose measurement was started by L(start_dirty_rates) and has ended. Does not wait."""

    def recent_dirty_rates(self, uuids: t.Sequence[str], seconds: int) -> t.Dict[str, int]:
        """The dirty rate in bytes a second of those of the domains that anybody has measured within the last C(seconds). Does not wait."""

    def list_domains(self) -> t.List[domain_states.DomainInfo]:
        """Every domain, defined or active."""

    def list_presence(self) -> t.Dict[str, bool]:
        """Whether it is active, of every domain, defined or active, by UUID. One query, however many domains there are."""

    def compare_cpu(self, platform: GuestPlatform, cpu_xml: str) -> CpuVerdict:
        """Whether the host can run a guest with that CPU. Raises L(KvmfleetError) if that is unknown."""

    def baseline_cpu(self, platform: GuestPlatform, cpus: t.Sequence[str]) -> CpuFeatures:
        """The best CPU that all of these have in common, and that this host knows. Raises L(KvmfleetError) if there is none."""

    def carry_padding(self, length: int) -> None:
        """Send so many bytes to the host in a query that changes nothing, and wait for its answer. At most 4 MiB are possible."""

    def has_path(self, path: str) -> t.Optional[bool]:
        """Whether the host has that file, folder or device; null if that is unknown."""

    def list_images(self, uuid: str) -> t.List[Image]:
        """The images that the domain writes to. Raises L(NotFound)."""

    def users_of(self, path: str) -> t.List[str]:
        """The names of all domains, active or not, that have that file as an image, also as a volume, below another image, or by another path; and of those
        for which this is not known, with the reason.
        """

    def open_folder(self, path: str) -> t.ContextManager[Folder]:
        """The folder of that path. Raises L(NotFound) if the host cannot open it."""

    def make_folder(self, path: str, permissions: Permissions) -> None:
        """Make a folder, and those above it; nothing happens if it exists."""

    def find_uuid(self, name: str) -> t.Optional[str]:
        """The UUID of the domain that has this name."""

    def list_emulators(self) -> t.List[str]:
        """The programs with which the host runs guests."""

    def saved_memory(self, name: str) -> t.Optional[str]:
        """The file of a saved memory image from which a start of that name would resume."""

    def define_domain(self, definition: str) -> None:
        """Create a persistent definition on this host."""

    def start_domain(self, uuid: str, paused: bool = False) -> None:
        """Start a domain that is defined on this host, from its managed-save image if it has one, which is then used up."""

    def save_domain(self, uuid: str, path: str, image_format: str) -> None:
        """Save the memory of the domain to a new file, and stop it. Raises L(MigrationFailed); the domain then continues to run."""

    def save_managed(self, uuid: str, resumes_as: str) -> None:
        """Save the memory of the domain to a managed-save image, from which its next start resumes it in that state, and stop it.

        Raises L(MigrationFailed); the domain then stays as it was.
        """

    def restore_paused(self, path: str, definition: t.Optional[str] = None) -> None:
        """Restore a domain, paused, from a file with its memory, which stays. Raises L(MigrationFailed).

        :arg definition: the one that it gets instead of that in the file, which may differ in what the guest does not see.
        """

    def read_saved_definition(self, path: str) -> str:
        """The definition in a file with the memory of a domain, with its passwords. Raises L(MigrationFailed)."""

    def read_saved_uuid(self, path: str) -> t.Optional[str]:
        """The UUID of the domain whose memory is in that file; null if the file is not complete, or cannot be read."""

    def create_domain(self, definition: str, paused: bool) -> None:
        """Start a transient domain."""

    def undefine_if_inactive(self, uuid: str) -> None:
        """Remove an inactive definition, and nothing else. Raises L(NotSupported) if libvirt would delete the state of a TPM with it."""

    def on_poweroff(self, uuid: str) -> str:
        """What libvirt does when the guest has switched itself off: C(destroy), C(restart), C(preserve)."""

    def listen_for_stop(self, uuid: str) -> None:
        """Remember how the domain stops, for L(stopped_by)."""

    def stopped_by(self, uuid: str) -> t.Optional[str]:
        """How the domain stopped, in the words of virsh (C(shutdown), C(migrated)...); null until the event arrives."""

    def shut_down(self, uuid: str) -> None:
        """Ask the guest to shut down, by its agent if it has one, else by its power button. Nothing happens if the domain has stopped in the meantime."""

    def read_whole_definition(self, uuid: str, persistent: bool) -> str:
        """The definition with its passwords, the inactive one of a persistent domain. Raises L(NotFound)."""

    def read_movable_definition(self, uuid: str, persistent: bool) -> str:
        """The definition that a migrate call would send, with its passwords: the live one, or the inactive one of a persistent domain. Raises L(NotFound)."""

    def read_definition(self, uuid: str) -> str:
        """The inactive definition, without passwords. Raises L(NotFound)."""

    def iterate_definitions(self) -> t.Iterator[t.Tuple[str, str, str]]:
        """UUID, name and definition of every domain; of an active domain both."""

    def has_managed_save(self, uuid: str) -> bool:
        """Whether the next start would restore a saved memory image."""

    def count_snapshots(self, uuid: str) -> t.Tuple[int, int]:
        """How many snapshots and checkpoints libvirt knows of the domain."""

    def find_other_job(self, uuid: str) -> str:
        """The job other than a migration that occupies the domain or one of its disks, e.g. C(a backup); empty for none."""

    def list_checkpoints(self, uuid: str) -> t.Tuple[Checkpoint, ...]:
        """The checkpoints that libvirt has of the domain, parents first. Raises L(NotFound)."""

    def redefine_checkpoint(self, uuid: str, checkpoint: Checkpoint) -> None:
        """Define a checkpoint whose bitmaps are in the images already. Raises L(KvmfleetError) if they are not, or are damaged."""

    def keeps_tpm(self) -> bool:
        """Whether undefining can keep the state of an emulated TPM."""

    def undefine_inactive(self, uuid: str) -> None:
        """Undefine an inactive domain and delete nothing of it. Raises L(NotSupported) if libvirt would delete the state of a TPM with it."""

    def close(self) -> None:
        """Close the connection; never raises."""


class OpenHost(t.Protocol):
    """Opens a host within the given seconds, or within the default limit of a connection. Raises L(Unreachable)."""

    def __call__(self, uri: str, timeout_seconds: t.Optional[float] = None) -> Host: ...
