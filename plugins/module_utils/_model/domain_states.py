# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a host reports about a domain: its states, its job, the figures of a migration, and its disks. And what was done to it by others."""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .codec import ABSENT, JsonObject, Maybe
from .references import HostRef

# States of a domain and their reasons, with the names that virsh prints.
RUNNING = "running"
PAUSED = "paused"
SHUTOFF = "shut off"
CRASHED = "crashed"
OTHER_STATE = "other"

MIGRATION = "migration"
STARTING_UP = "starting up"
POST_COPY = "post-copy"
POST_COPY_FAILED = "post-copy failed"
# Of a domain that is shut off: it was moved to another host, or its memory was saved.
MIGRATED = "migrated"
SAVED = "saved"
# Why a domain is off that someone, or its guest, has stopped since the daemon of its host started. A failure of the host leaves none of these reasons.
STOPPED_REASONS = ("shutdown", "destroyed", MIGRATED, SAVED, "from snapshot")

# Why a domain is off that failed, or whose daemon lost its state, so that nobody has stopped it.
FAILED_REASONS = ("crashed", "failed", "daemon")
# Reasons of a pause that a person wanted; not of a short pause by the hypervisor, or after an error.
_HELD_BY_A_PERSON = ("user", "from snapshot", "API error", "")

# The job of a domain, from the point of view of the host that was queried.
JOB_NONE = "none"
JOB_OUTGOING = "outgoing migration"
JOB_INCOMING = "incoming migration"
JOB_OTHER = "other"


@dataclass(frozen=True)
class DomainView:
    """The answer of one host about one domain.

    If C(answered) is false, the host did not answer, and all other fields are meaningless.
    """

    IS_WHOLE: t.ClassVar[bool] = True

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
        """Whether a job occupies the domain: libvirt would delay a change until the job ends, and then carry it out although nobody waits for it."""
        return self.job != JOB_NONE or self.reason in (POST_COPY, POST_COPY_FAILED)

    @property
    def is_leaving(self) -> bool:
        """Whether the domain is being migrated away from the host, post-copy included."""
        in_post_copy = self.state == PAUSED and self.reason in (POST_COPY, POST_COPY_FAILED)
        return self.active and (self.job == JOB_OUTGOING or in_post_copy)

    def state_to_restore(self, is_held: bool) -> t.Optional[str]:
        """Return the state that a restart has to restore; null while a job uses the domain or its host is held, because the current state is then not intended.

        :arg is_held: whether the boot guard holds the host.
        """
        if not self.active:
            return None if is_held else SHUTOFF
        if self.is_busy:
            return None
        return PAUSED if self.state == PAUSED and self.reason in _HELD_BY_A_PERSON else RUNNING


NO_ANSWER = DomainView(answered=False)
NOT_THERE = DomainView()


@dataclass(frozen=True)
class JobStats:
    """Figures of a running outgoing migration, or of a completed one (docs/libvirt.md, "Figures of a job")."""

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


@dataclass(frozen=True)
class Disk:
    """A disk of a domain: its target (C(vda)), kind (file, block, network, volume), where its bytes are, and how it may be used."""

    IS_WHOLE: t.ClassVar[bool] = True

    target: str
    kind: str
    source: str
    readonly: bool = False
    shareable: bool = False


@dataclass(frozen=True)
class DomainInfo:
    """What is known of a domain at its host before it moves."""

    IS_WHOLE: t.ClassVar[bool] = True

    uuid: str
    name: str
    view: DomainView
    autostart: bool = False
    memory_bytes: int = 0
    vcpus: int = 0
    disks: t.Tuple[Disk, ...] = ()
    has_nvram: bool = False
    has_tpm: bool = False
    policy_xml: str = ""

    @property
    def undefine_options(self) -> str:
        """The options of C(virsh undefine) with which the files of the domain stay. virsh before 8.9 does not know the one for the state of a TPM."""
        return "--keep-nvram --keep-tpm" if self.has_tpm else "--keep-nvram"


@dataclass(frozen=True)
class SeenDomain:
    """A domain as its host reports it to find out what was done to it by others.

    :arg state: as of L(DomainView.state_to_restore).
    :arg boot_id: the boot of its host; null or absent if it is not known.
    :arg own_act: the ID of the last start or stop by this collection in this boot; null for none, absent if this user may not know.
    """

    uuid: str
    name: str
    active: bool
    state: t.Optional[str]
    reason: str
    autostart: bool
    boot_id: Maybe[str] = ABSENT
    own_act: Maybe[str] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


# What somebody has done to a domain without this collection.
MOVED, STOPPED, STARTED = "moved", "stopped", "started"


@dataclass(frozen=True)
class ForeignAct:
    """A move, stop or start of a domain that was done without this collection, as it was found out.

    :arg at: when it was found out, by C(by).
    :arg host: on which the domain was found; C(source), the only one that it was on before, null if that is the same host or is not known.
    :arg before: the state that the ledger had; C(state), the state that was found; C(reason), libvirt's reason for it.
    :arg generation: of the domain at that time.
    """

    act: str
    at: str
    by: str
    host: HostRef
    source: t.Optional[HostRef]
    before: t.Optional[str]
    state: t.Optional[str]
    reason: str
    generation: int
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def description(self) -> str:
        """What was done, without the name of the domain, e.g. C(was moved from kvm1 to kvm2 without this collection)."""
        where = f"on {self.host.label}"
        if self.act == MOVED:
            where = f"from {self.source.label} to {self.host.label}" if self.source else f"to {self.host.label}"
        elif self.source:
            where = f"{where} instead of {self.source.label}"
        why = f" (libvirt's reason: {self.reason})" if self.reason and self.act == STOPPED else ""
        return f"was {self.act} {where} without this collection{why}"
