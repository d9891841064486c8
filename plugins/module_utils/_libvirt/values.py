# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The values that the calls of a host return."""

from __future__ import annotations

import dataclasses
import typing as t
from xml.etree.ElementTree import Element

from .._dataclass import dataclass
from .._model import domain_states


class DomainState(t.TypedDict):
    """A domain in a list of all domains of a host."""

    uuid: str
    name: str
    active: bool
    state: str
    reason: str
    autostart: bool


@dataclass(frozen=True)
class Definition:
    """A domain with its definition, the live one if it is active. If libvirt could not return the definition, C(root) is null and C(problem) is a sentence.

    :arg has_saved_memory: whether it has a managed-save image.
    :arg configuration: the inactive definition, only of an active domain whose live one names what its host has given it in place of what it asks for.
    """

    info: domain_states.DomainInfo
    root: t.Optional[Element] = None
    has_snapshots: bool = False
    problem: str = ""
    has_saved_memory: bool = False
    configuration: t.Optional[Element] = None


@dataclass(frozen=True)
class DefinitionList:
    """Every domain of a host, defined or active, and the names of those that disappeared while they were read."""

    definitions: t.List[Definition]
    vanished: t.List[str] = dataclasses.field(default_factory=list)


@dataclass(frozen=True)
class DomainUse:
    """What an active domain has used of its host since its start, as far as libvirt reports it.

    C(id) is libvirt's number of this start of the domain. C(resident_mib) is the memory of its process. C(available_in_guest_mib) is what the guest itself
    reported to its balloon at C(reported_at), in seconds of the epoch by the clock of the host.
    """

    uuid: str
    name: str
    id: int
    cpu_ns: t.Optional[int] = None
    network_bytes: t.Optional[int] = None
    disk_bytes: t.Optional[int] = None
    resident_mib: t.Optional[int] = None
    available_in_guest_mib: t.Optional[int] = None
    reported_at: t.Optional[int] = None


@dataclass(frozen=True)
class Image:
    """The image behind a domain's disk. Sizes in bytes: what the guest sees, and what is allocated of it.

    C(backing) are the paths of the files below it, where these are files; C(below_bytes) is what is allocated of all of them, null if that is not known.
    """

    target: str
    kind: str
    path: str
    format: str
    capacity_bytes: int
    allocation_bytes: int
    shareable: bool = False
    has_backing: bool = False
    backing: t.Tuple[str, ...] = ()
    below_bytes: t.Optional[int] = None
    encrypted: bool = False


@dataclass(frozen=True)
class Volume:
    """A file of a folder. C(changed_at) is its ctime in seconds."""

    name: str
    format: str
    capacity_bytes: int
    allocation_bytes: int
    backing_path: str = ""
    changed_at: float = 0.0


class Permissions(t.NamedTuple):
    """Who may use a file or a folder."""

    mode: int
    uid: int
    gid: int
