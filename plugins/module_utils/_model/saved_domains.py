# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What C(protect) saves about a domain while its host is healthy, and what the halves of an evacuation exchange about starting it elsewhere."""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .clock import BootMoment
from .codec import ABSENT, Absent, JsonObject, Maybe
from .domain_states import PAUSED, RUNNING, SeenDomain
from .references import HostRef

_NETWORK, _VOLUME = "network", "volume"
# The states of a domain that ran.
RAN = (RUNNING, PAUSED)


@dataclass(frozen=True)
class SavedMount:
    """The file system that a path is on.

    :arg path: where it is mounted.
    :arg kind: of the file system, e.g. C(nfs4).
    :arg store: its name on every host that mounts it; null for a local one.
    """

    path: str
    kind: str
    store: t.Union[str, Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


class _SavedImage:
    """What disks and other files have in common."""

    kind: str
    path: str
    folders: t.Tuple[str, ...]
    seen_by: t.Union[t.Tuple[str, ...], Absent, None]

    @property
    def seeing_hosts(self) -> t.FrozenSet[str]:
        """The IDs of the hosts that were proved to see it."""
        return frozenset(self.seen_by or ())


@dataclass(frozen=True)
class SavedDisk(_SavedImage):
    """A disk, as its host sees it. Version 0.1.0 did not save all of these keys.

    :arg kind: C(file), C(dir), C(block), C(network), or C(volume) if the pool is unknown.
    :arg optional: whether libvirt may leave the disk out.
    :arg folders: the folders whose tokens prove the store of the image and of what it is built on.
    :arg shareable: whether several guests may write it.
    :arg backing: the files that the image is built on; C(backing_devices) are devices, each with its identity.
    :arg backing_problem: why that is not known, or that the running domain has another image as this disk.
    :arg locks: what becomes of the locks on the image when its host dies, see L(classify_locks).
    :arg wwn: the identity of a block device on every host.
    :arg seen_by: the IDs of the hosts that were proved to see the disk.
    """

    target: str
    kind: str
    path: str
    readonly: bool
    optional: bool
    folders: t.Tuple[str, ...]
    shareable: t.Union[bool, Absent, None] = ABSENT
    format: t.Union[str, Absent, None] = ABSENT
    backing: t.Union[t.Tuple[str, ...], Absent, None] = ABSENT
    backing_devices: t.Union[t.Mapping[str, t.Optional[str]], Absent, None] = ABSENT
    backing_problem: t.Union[str, Absent, None] = ABSENT
    mount: t.Union[SavedMount, Absent, None] = ABSENT
    locks: t.Union[str, Absent, None] = ABSENT
    shared: t.Union[bool, Absent, None] = ABSENT
    wwn: t.Union[str, Absent, None] = ABSENT
    seen_by: t.Union[t.Tuple[str, ...], Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def is_needed(self) -> bool:
        """Whether the domain cannot be started without it; an empty drive and a disk that libvirt may leave out can be missing."""
        return bool(self.path and not self.optional) or self.kind == _VOLUME

    @property
    def is_everywhere(self) -> bool:
        """Whether every host sees it by its nature: an image of the network that neither its host serves nor is built on anything of its host."""
        return self.kind == _NETWORK and not (self.is_served_locally or self.folders or self.backing_devices or self.backing_problem)

    @property
    def is_served_locally(self) -> bool:
        """Whether it is an image of the network whose server is its host itself, as far as the definition shows."""
        return self.kind == _NETWORK and self.shared is None

    @property
    def is_lockable(self) -> bool:
        """Whether QEMU locks the image against all other writers. A lock on a shareable disk proves nothing."""
        return self.path.startswith("/") and not (self.readonly or self.shareable)


@dataclass(frozen=True)
class NeededFile:
    """The description in a definition of a file that the domain needs in addition to its disks; see L(SavedFile)."""

    what: str
    kind: str
    path: str


@dataclass(frozen=True)
class SavedFile(_SavedImage):
    """A file, folder or device of its host that a domain needs in addition to its disks.

    :arg what: e.g. C(nvram).
    :arg kind: C(file), C(dir), C(block), C(network) or C(device).
    :arg present: whether the file existed; libvirt makes some files when they are first needed.
    """

    what: str
    kind: str
    path: str
    folders: t.Tuple[str, ...]
    mount: t.Union[SavedMount, Absent, None] = ABSENT
    shared: t.Union[bool, Absent, None] = ABSENT
    wwn: t.Union[str, Absent, None] = ABSENT
    present: t.Union[bool, Absent, None] = ABSENT
    seen_by: t.Union[t.Tuple[str, ...], Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def is_everywhere(self) -> bool:
        """Whether every host sees it by its nature."""
        return self.kind == _NETWORK and not self.folders

    @property
    def is_expected(self) -> bool:
        """Whether the file existed when the domain was saved, and must therefore exist now."""
        return self.kind in ("file", "dir") and (self.present is ABSENT or bool(self.present))


@dataclass(frozen=True)
class HostTokens:
    """The tokens that a host has left in folders of images.

    :arg folders: each folder with its nonce.
    """

    host_id: str
    folders: t.Mapping[str, str]


@dataclass(frozen=True)
class SavedDomain:
    """A domain as a host reports it to be saved.

    :arg definition: with passwords, as the next start uses it.
    :arg state: the state that a restart has to restore; null if it is not an intended state.
    :arg request: what the domain needs of a host.
    :arg policy: its own policy.
    :arg reason: of the state that libvirt has now; C(boot_id), the boot of its host.
    :arg own_act: as of L(SeenDomain).
    :arg unread: the paths of images whose storage did not answer, so that folders and backing files of them may be missing.
    :arg awaits_start: whether it is off until the recovery of its host starts it again.
    """

    uuid: str
    name: str
    definition: str
    active: bool
    persistent: bool
    autostart: bool
    state: t.Optional[str]
    request: JsonObject
    policy: JsonObject
    nvram: t.Optional[str]
    tpm: t.Optional[str]
    disks: t.Tuple[SavedDisk, ...]
    files: t.Union[t.Tuple[SavedFile, ...], Absent, None] = ABSENT
    reason: t.Union[str, Absent, None] = ABSENT
    boot_id: t.Union[str, Absent, None] = ABSENT
    own_act: t.Union[str, Absent, None] = ABSENT
    unread: t.Union[t.Tuple[str, ...], Absent, None] = ABSENT
    awaits_start: t.Union[bool, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def seen(self) -> SeenDomain:
        """The domain without its definition."""
        return SeenDomain(self.uuid, self.name, self.active, self.state, self.reason or "", self.autostart, self.boot_id, self.own_act)

    @property
    def images(self) -> t.Tuple[t.Union[SavedDisk, SavedFile], ...]:
        """The disks and the other files."""
        return (*self.disks, *(self.files or ()))


@dataclass(frozen=True)
class EarlierState:
    """The state in which a domain was last seen before the boot of its host in which it is off, and when that was saved."""

    state: str
    at: Maybe[str] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class DomainProtection:
    """What the ledger keeps of a domain that C(protect) has saved; see L(SavedDomain). A value of another form counts as missing.

    :arg host: on which the domain was saved, C(at) that time and C(by) whom.
    :arg state_at: since when the state was seen.
    :arg boot_id: the boot of the host in which the state was seen.
    :arg own_act: the last start or stop by this collection that was seen, see L(SeenDomain).
    :arg ran_before: null if the domain has run in that boot, or was off before it.
    :arg origin: the name of the host that the domain was displaced from; null while it is at home.
    :arg returned: when the newest record was accepted of which the ledger knew when the domain was back at its home.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    definition: Maybe[str] = ABSENT
    persistent: Maybe[bool] = ABSENT
    autostart: Maybe[bool] = ABSENT
    state: Maybe[str] = ABSENT
    request: Maybe[JsonObject] = ABSENT
    policy: Maybe[JsonObject] = ABSENT
    nvram: Maybe[str] = ABSENT
    tpm: Maybe[str] = ABSENT
    disks: Maybe[t.Tuple[JsonObject, ...]] = ABSENT
    files: Maybe[t.Tuple[JsonObject, ...]] = ABSENT
    at: Maybe[str] = ABSENT
    by: Maybe[str] = ABSENT
    host: Maybe[HostRef] = ABSENT
    state_at: Maybe[str] = ABSENT
    boot_id: Maybe[str] = ABSENT
    own_act: Maybe[str] = ABSENT
    ran_before: Maybe[EarlierState] = ABSENT
    origin: Maybe[str] = ABSENT
    returned: Maybe[str] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def folders(self) -> t.FrozenSet[str]:
        """The folders whose tokens prove its disks and files."""
        named = (image.get("folders") for image in (*(self.disks or ()), *(self.files or ())))
        return frozenset(str(folder) for folders in named if isinstance(folders, list) for folder in folders)

    def state_before(self, boot_id: t.Optional[str]) -> t.Optional[EarlierState]:
        """Return the state of a domain that ran before the given boot of its host and was not seen to run in it; null for any other.

        What version 0.1.0 has saved names no boot, and counts as seen before. The same applies if the boot is not known.
        """
        if boot_id is not None and self.boot_id == boot_id:
            return self.ran_before or None
        return EarlierState(self.state, self.at) if self.state in RAN else None


@dataclass(frozen=True)
class UnreadableDomain:
    """A domain that could not be read, and why."""

    uuid: str
    name: str
    why: str


@dataclass(frozen=True)
class SavedDomains:
    """What a host reports of its domains.

    :arg arriving: UUIDs of domains that are still moving to the host.
    """

    domains: t.Tuple[SavedDomain, ...]
    arriving: t.Tuple[str, ...]
    unreadable: t.Tuple[UnreadableDomain, ...]


def lockable_paths(disks: t.Iterable[SavedDisk]) -> t.List[str]:
    """Return the paths of the images that QEMU locks against all other writers."""
    return [disk.path for disk in disks if disk.is_lockable]


@dataclass(frozen=True)
class StorageToken:
    """The token of a host in one folder. A host that reads the same nonce sees the same storage.

    :arg inode: the number of the file, which a copy does not have; absent where hosts may number the files of one file system differently.
    """

    host_id: str
    nonce: str
    inode: t.Union[int, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


NVRAM, TPM = "nvram", "tpm"
# A guest can start with fresh ones of these, without what it has kept in them.
REPLACEABLE = (NVRAM, TPM)
# What a person does about those that only their own host has.
REPLACEABLE_ADVICE = "keep them on shared storage, or let the guest start with fresh ones (evacuate_host_accept_fresh)"

# STARTED: the domain has the wanted state. FAILED: nothing is left on this host. DEFERRED: not tried. OVERTAKEN: a newer run has the domain.
# UNKNOWN: the state could not be determined, or is not the wanted one. The domain must not be started elsewhere.
STARTED, FAILED, DEFERRED, OVERTAKEN, UNKNOWN = "started", "failed", "deferred", "overtaken", "unknown"


@dataclass(frozen=True)
class DomainToProbe:
    """A domain whose images and files a survivor searches.

    :arg files: the other files that were proved; C(fresh) are the paths of files that a start would create.
    :arg tokens: of the host that the domain was saved on.
    :arg request: what the domain needs of a host.
    :arg wanted: the state that the domain is to have.
    """

    uuid: str
    disks: t.Tuple[SavedDisk, ...]
    files: t.Tuple[SavedFile, ...]
    fresh: t.Tuple[str, ...]
    tokens: HostTokens
    request: JsonObject
    wanted: t.Union[str, Absent] = ABSENT


@dataclass(frozen=True)
class RestartOrder:
    """One domain that is to be started on a survivor.

    :arg record: the ID of its record.
    :arg note: the whole record with C(ledger_id), which the host keeps as it is.
    :arg rejoin: the record was C(pre-migrating) before this run.
    :arg settle_only: start nothing.
    :arg definition: with passwords; null if none was sent.
    :arg wanted: the state that the domain is to have.
    :arg sources: target and source of each disk by the request.
    :arg accepted_locks: images whose locks a person accepts. QEMU still refuses a locked image.
    """

    record: str
    note: JsonObject
    generation: int
    rejoin: bool
    settle_only: bool
    uuid: str
    name: str
    definition: t.Optional[str]
    persistent: bool
    autostart: bool
    wanted: str
    sources: t.Tuple[t.Tuple[str, ...], ...]
    disks: t.Tuple[SavedDisk, ...]
    files: t.Tuple[SavedFile, ...]
    fresh: t.Tuple[str, ...]
    accepted_locks: t.Tuple[str, ...]
    tokens: HostTokens


@dataclass(frozen=True)
class RestartResult:
    """The result of an order.

    :arg outcome: STARTED, FAILED, DEFERRED, OVERTAKEN or UNKNOWN.
    :arg generation: of the record, as the host knows it now.
    """

    uuid: str
    outcome: str
    changed: bool
    generation: int
    msg: str
    error_code: t.Optional[str]


@dataclass(frozen=True)
class PeerAnswers:
    """The answers of the other hosts about domains that are to be started.

    :arg active: UUID of a domain to the host on which it is active.
    :arg silent: a sentence for each host that did not answer.
    :arg uuids: the domains that the hosts were asked about, sorted.
    :arg moment: when the question was asked.
    """

    active: t.Mapping[str, str]
    silent: t.Tuple[str, ...]
    uuids: t.Tuple[str, ...]
    moment: BootMoment
