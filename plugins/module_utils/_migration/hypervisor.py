# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the engine needs of a hypervisor, in the engine's own words. The libvirt side and the fake of the tests both implement it."""

from __future__ import annotations

import dataclasses
import typing as t

# States of a domain and why it is in them, by the names that virsh prints.
RUNNING = "running"
PAUSED = "paused"
SHUTOFF = "shut off"
CRASHED = "crashed"
OTHER_STATE = "other"

MIGRATION = "migration"
STARTING_UP = "starting up"
POST_COPY = "post-copy"
POST_COPY_FAILED = "post-copy failed"

# What a domain's job is, seen from the host that was asked.
JOB_NONE = "none"
JOB_OUTGOING = "outgoing migration"
JOB_INCOMING = "incoming migration"
JOB_OTHER = "other"


@dataclasses.dataclass(frozen=True)
class GuestView:
    """What one host, when it was asked, said of one domain.

    C(answered) is false where the host did not answer: then nothing else in here means anything.
    """

    answered: bool = True
    present: bool = False
    active: bool = False
    persistent: bool = False
    state: str = SHUTOFF
    reason: str = ""
    job: str = JOB_NONE

    def describe(self) -> str:
        """Return the view in a few words, e.g. C(paused (migration)) or C(not there)."""
        if not self.answered:
            return "no answer"
        if not self.present:
            return "not there"
        return f"{self.state} ({self.reason})" if self.reason else self.state

    @property
    def is_busy(self) -> bool:
        """Whether a job has the domain: then whatever changes it would wait in libvirt, and be done later, unasked."""
        return self.job != JOB_NONE or self.reason in (POST_COPY, POST_COPY_FAILED)


NO_ANSWER = GuestView(answered=False)
NOT_THERE = GuestView()


@dataclasses.dataclass(frozen=True)
class JobStats:
    """Figures of a running outgoing migration, or of a completed one (libvirt.md, section 2.2)."""

    elapsed_ms: int = 0
    downtime_ms: t.Optional[int] = None
    setup_ms: t.Optional[int] = None
    data_processed_bytes: int = 0
    memory_total_bytes: int = 0
    memory_processed_bytes: int = 0
    memory_remaining_bytes: int = 0
    disk_total_bytes: int = 0
    disk_processed_bytes: int = 0
    disk_remaining_bytes: int = 0
    bandwidth_bytes: int = 0
    dirty_rate_bytes: int = 0
    iteration: int = 0
    throttle_percent: int = 0


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk of a domain: its target (C(vda)), kind (file, block, network, volume), where its bytes are, and how it may be used."""

    target: str
    kind: str
    source: str
    readonly: bool = False
    shareable: bool = False


@dataclasses.dataclass(frozen=True)
class DomainInfo:
    """What is known of a domain at its host before it moves."""

    uuid: str
    name: str
    view: GuestView
    autostart: bool = False
    memory_bytes: int = 0
    vcpus: int = 0
    disks: t.Tuple[Disk, ...] = ()
    has_nvram: bool = False
    has_tpm: bool = False
    policy_xml: str = ""


class Host(t.Protocol):
    """One libvirt host behind one connection. Every call may raise L(Unreachable) when the connection is gone."""

    uri: str

    def answers(self) -> bool:
        """Whether the connection is still there, as far as is known without asking."""

    def host_id(self) -> t.Optional[str]:
        """The host's own ID, null where it has none, or where it cannot be read."""

    def host_uuid(self) -> str:
        """Libvirt's UUID of the host."""

    def hostname(self) -> str:
        """The host's own name."""

    def versions(self) -> t.Dict[str, int]:
        """C(libvirt) and C(hypervisor) as libvirt's numbers, e.g. 9000000."""

    def find(self, name: t.Optional[str] = None, uuid: t.Optional[str] = None) -> DomainInfo:
        """The domain of that UUID, or else of that name. Raises L(NotFound)."""

    def census(self) -> t.List[t.Dict[str, t.Any]]:
        """C({uuid, name, active, state, reason, autostart}) of every domain, in one answer and without their definitions."""

    def view(self, uuid: str) -> GuestView:
        """What the host says of the domain now; L(NOT_THERE) where it has none."""

    def state(self, uuid: str) -> t.Tuple[str, str]:
        """State and reason of the domain now, and no more than that: what is asked at every poll; C(shut off) where it is not there."""

    def job(self, uuid: str) -> t.Optional[JobStats]:
        """Figures of the domain's outgoing migration, or none where there is no such job."""

    def completed_job(self, uuid: str) -> t.Optional[JobStats]:
        """Figures of the migration that the domain has just ended, where the host still has them."""

    def incoming_from(self, uuid: str) -> bool:
        """Whether the domain is being received here."""

    def migrate(self, uuid: str, destination_uri: str, flags: t.Sequence[str], parameters: t.Mapping[str, t.Any]) -> None:
        """Move the domain peer-to-peer and wait for the end. Raises L(MigrationFailed) or L(Aborted); neither says where the guest is."""

    def abort(self, uuid: str) -> None:
        """Cancel the outgoing migration. Raises L(InvalidState) where there is none, L(NotSupported) in post-copy."""

    def max_downtime_ms(self, uuid: str) -> int:
        """The downtime that the domain's migrations are allowed."""

    def set_max_downtime_ms(self, uuid: str, milliseconds: int) -> None:
        """Allow that downtime, at once."""

    def set_bandwidth_mib(self, uuid: str, mib: int) -> None:
        """Cap the running job's memory stream at so many MiB/s, at once; 0 is no cap."""

    def start_post_copy(self, uuid: str) -> None:
        """Switch the running job over. Raises L(InvalidState) where it was not started so that it may."""

    def pause_post_copy(self, uuid: str) -> None:
        """Break a post-copy migration that is under way, so that it can be resumed over a new link."""

    def suspend(self, uuid: str) -> None:
        """Stop the domain, also while it is being moved."""

    def listen(self, uuid: str) -> None:
        """Remember what the host says of the end of the domain's job, for L(completed_job)."""

    def listen_for_arrivals(self, arrived: t.Callable[[str], None]) -> None:
        """Call that, from another thread, with the UUID of each domain that begins to run here and has all of its memory, after a migration."""

    def resume(self, uuid: str) -> None:
        """Let the paused domain run. Never on a domain with a job: libvirt would do it later, unasked."""

    def destroy(self, uuid: str) -> None:
        """Kill this host's copy of the domain."""

    def undefine(self, uuid: str) -> None:
        """Remove an inactive definition; NVRAM and TPM state are kept. Nothing happens where the domain is active or gone."""

    def set_autostart(self, uuid: str, autostart: bool) -> None:
        """Set whether the domain starts with its host."""

    def close(self) -> None:
        """Close the connection; never raises."""


class OpenHost(t.Protocol):
    """Opens a host within the given seconds, or within the default limit of a connection. Raises L(Unreachable)."""

    def __call__(self, uri: str, timeout_seconds: t.Optional[float] = None) -> Host: ...
