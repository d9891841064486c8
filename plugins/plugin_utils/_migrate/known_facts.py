# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What is known of a host or a domain: what a survey has read, completed by the facts of the host, by profiles and by the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, replace

from ansible.errors import AnsibleError

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, JsonObject, Maybe, ShapeError, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import Pools, locate_volume
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.device_names import may_be_numbered
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import PARTS, PLATFORM_CPUS, DomainFacts, HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import PROFILE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DiskNeed, DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import SavedDisk
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import UnprovedDevice
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import HostEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import list_entries
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.sights import Sights, list_dated_sights_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings

_FACT_NAMES = tuple(fact.name for fact in fields(HostFacts) if fact.name != "extra")
_STORE_FACTS = ("shared", "store", "bytes", "below_bytes")

ProfileOf = Callable[[str], JsonObject]


def fill_facts(seen: HostFacts, own: HostFacts | None) -> HostFacts:
    """Return the surveyed facts, completed by the host's own facts if they are not known, if both are of the same host.

    :arg seen: as a survey has them.
    :arg own: what the host's own C(host_facts) gathered within the last minute, or None.
    """
    if own is None or seen.answered is False or not own.host.is_same(seen.host):
        return seen
    filled_in = {name: getattr(own, name) for name in _FACT_NAMES if not _is_known(seen, name) and _is_known(own, name)}
    facts = replace(seen, **filled_in)
    if own.traits is not ABSENT:
        # The host's own probe has precedence over a derived value, except where it could not tell.
        untold = own.unverified or ()
        missing = facts.missing_traits if own.missing_traits is ABSENT else {**_only(facts.missing_traits, untold), **(own.missing_traits or {})}
        facts = replace(facts, traits=(*(own.traits or ()), *(trait for trait in seen.traits or () if trait in untold)), missing_traits=missing)
    determined = {*(facts.traits or ()), *(facts.missing_traits or ())}
    if PLATFORM_CPUS in (seen.unverified or ()) and PLATFORM_CPUS not in (own.unverified or ()) and own.platforms:
        facts = replace(facts, platforms=own.platforms)
        determined.add(PLATFORM_CPUS)
    # What the own facts do not know in part, the survey has read.
    open_before = {*(seen.unverified or ()), *(what for what in own.unverified or () if what not in PARTS)}
    unverified = tuple(sorted(what for what in open_before if what not in determined and not _is_known(facts, what)))
    return replace(facts, unverified=unverified, unverified_reasons=_keep_reasons(seen, own, unverified))


def _only(reasons: Maybe[Mapping[str, str]], names: Sequence[str]) -> dict[str, str]:
    return {name: why for name, why in (reasons or {}).items() if name in names}


def _keep_reasons(seen: HostFacts, own: HostFacts, unverified: Sequence[str]) -> Mapping[str, str] | Absent:
    """Return why these are unknown, as far as a user who is not root has read the facts."""
    reasons = {**(own.unverified_reasons or {}), **(seen.unverified_reasons or {})}
    return {what: reasons[what] for what in unverified if what in reasons} or ABSENT


def _is_known(facts: HostFacts | DiskNeed, name: str) -> bool:
    return getattr(facts, name, None) not in (None, ABSENT)


def readable_profiles(settings: Settings, host: str) -> ProfileOf:
    """Return what L(add_profile_groups) needs. A profile that cannot be read is not available: the error is reported by the domain's own move."""

    def profile_of(name: str) -> JsonObject:
        try:
            return settings.profile(host, name)
        except (InvalidArgument, AnsibleError):
            return {}

    return profile_of


def add_profile_groups(facts: HostFacts, profile_of: ProfileOf) -> HostFacts:
    """Return a host's facts in which each domain with a profile has the group of that profile. Hosts do not know profiles.

    :arg profile_of: the profile of that name; empty if it is not available.
    """
    domains = facts.domains or ()
    if not any((domain.policy or {}).get(PROFILE) for domain in domains):
        return facts
    return replace(facts, domains=tuple(_add_profile_group(domain, profile_of) for domain in domains))


def _add_profile_group(domain: DomainFacts, profile_of: ProfileOf) -> DomainFacts:
    name, request = (domain.policy or {}).get(PROFILE), domain.request or {}
    if not isinstance(name, str) or not name or request.get("group"):
        return domain
    return replace(domain, request={**request, "group": profile_of(name).get("group")})


def fill_disks(needs: DomainRequest, own: HostFacts | None, uuid: str) -> DomainRequest:
    """Return a domain's requirements, with unknown stores of disks completed from the facts of its host."""
    request = _read_needs(own.find_domain(uuid) if own else None)
    known = {(disk.target, disk.source or None): disk for disk in (request.disks if request else None) or ()}
    if not needs.disks or not known:
        return needs
    return replace(needs, disks=tuple(_fill_disk(disk, known.get((disk.target, disk.source or None))) for disk in needs.disks))


def _read_needs(domain: DomainFacts | None) -> DomainRequest | None:
    """Return the request in the facts of a domain; None if it is missing or unreadable."""
    try:
        return domain.needs if domain else None
    except ShapeError:
        return None


def _fill_disk(disk: DiskNeed, known: DiskNeed | None) -> DiskNeed:
    if known is None:
        return disk
    filled_in = replace(disk, **{name: getattr(known, name) for name in _STORE_FACTS if not _is_known(disk, name) and _is_known(known, name)})
    if known.files is ABSENT:
        return filled_in
    # Remotely, only the definition shows the backing files of an image; its own host has also read the images.
    problem = filled_in.files_problem if known.files_problem is ABSENT else known.files_problem
    return replace(filled_in, files=known.files, files_problem=problem)


@dataclass(frozen=True)
class SeenStorage:
    """The storage of the source according to the ledger.

    :arg sights: what each other host sees of it, by its ID; C(boots), in which boot it saw that.
    :arg saved: the disks of the domain that moves, as C(protect) has saved them on the host that it has left since; empty if it has not.
    """

    entries: Sequence[HostEntry]
    source: HostRef
    sights: Sights
    boots: Mapping[str, str] = field(default_factory=dict)
    saved: Sequence[SavedDisk] = ()

    @classmethod
    def from_ledger(cls, ledger: Ledger | None, source: HostRef, uuid: str | None) -> SeenStorage:
        """Read the ledger, for the domain of that UUID."""
        entries = list_entries(ledger)
        own = _find_entry(entries, source)
        host_id = own.host_id if own else None
        return cls(entries, source, *list_dated_sights_of(ledger, entries, host_id), _read_saved_disks(ledger, uuid, source))


def _read_saved_disks(ledger: Ledger | None, uuid: str | None, source: HostRef) -> list[SavedDisk]:
    """Return the disks of a domain that was saved on another host. On the same one, what the other hosts have seen is newer."""
    document = ledger.read_domain(uuid) if ledger and uuid else None
    saved = document.domain.saved if document else None
    if not saved or not saved.host or saved.host.is_same(source):
        return []
    try:
        return [decode(SavedDisk, disk) for disk in saved.disks or ()]
    except ShapeError:
        return []


def find_seen_devices(
    devices: Sequence[UnprovedDevice], known: SeenStorage, destination: HostRef, pools: Pools = (), pools_there: Pools = (), boot_there: str | None = None
) -> tuple[str, ...]:
    """Return the paths of these devices of the source that the destination also has, with the same path and the current identity.

    C(protect) has seen them on both hosts, or for a domain that has moved since, on the destination and the host that the domain had then.

    :arg boot_there: the present boot of the destination, if it is known. A name that it assigns itself may be that of another device after the next one.
    :arg pools: of the source, in which a device may be a volume (C(pool/volume)); C(pools_there) those of the destination.
    """
    own, peer = _find_entry(known.entries, known.source), _find_entry(known.entries, destination)
    if peer is None or not peer.host_id:
        return ()
    reported, sees = (own.devices or {}) if own and own.host_id else {}, known.sights.get(peer.host_id, {})
    paths = {device.path: _find_common_path(device.path, pools, pools_there) for device in devices}
    is_of_this_boot = boot_there is not None and known.boots.get(peer.host_id) == boot_there

    def is_seen(path: str, store: str | None) -> bool:
        if not store:
            return False
        if reported.get(path) == sees.get(path) == store and (is_of_this_boot or not may_be_numbered(path)):
            return True
        return not may_be_numbered(path) and any(_is_proved(disk, path, store, str(peer.host_id)) for disk in known.saved)

    return tuple(device.path for device in devices if is_seen(paths[device.path], device.store))


def _is_proved(disk: SavedDisk, path: str, store: str, host_id: str) -> bool:
    """Whether that host was proved to see this device, when C(protect) saved the domain."""
    identity = disk.wwn if disk.path == path else (disk.backing_devices or {}).get(path)
    return identity == store and host_id in disk.seeing_hosts


def _find_common_path(device: str, pools: Pools, pools_there: Pools) -> str:
    """Return the path of a device; empty for a volume that has none, or another one at the destination."""
    if device.startswith("/"):
        return device
    path = locate_volume(device, pools)[1]
    return path if path == locate_volume(device, pools_there)[1] else ""


def _find_entry(entries: Iterable[HostEntry], host: HostRef) -> HostEntry | None:
    """Return the only entry of that host; None if it has none or several."""
    found = [entry for entry in entries if entry.host_ref.is_same(host)]
    return found[0] if len(found) == 1 else None
