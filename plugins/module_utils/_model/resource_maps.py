# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The resource maps of a host: what the host calls a bridge, a folder or a device that the fleet knows by another name.

A move translates the name on its source into the fleet's name, and that into the name on its destination. The way back needs no memory of the move.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import typing as t

from .._dataclass import dataclass
from .codec import JsonObject
from .errors import InvalidArgument
from .libvirt_formats import format_ids, parse_ids, parse_ip

Names = t.Mapping[str, str]


def _no_names() -> Names:
    return {}


@dataclass(frozen=True)
class ResourceMaps:
    """The maps of one host: by kind, the host's own name of each resource by its fleet-wide name.

    :arg bridges: bridges.
    :arg networks: libvirt networks.
    :arg images: folders of files.
    :arg devices: addresses of host devices.
    :arg cpus: sets of CPUs.
    :arg numa_nodes: sets of NUMA nodes.
    :arg graphics: addresses on which graphical consoles listen.
    """

    bridges: Names = dataclasses.field(default_factory=_no_names, hash=False)
    networks: Names = dataclasses.field(default_factory=_no_names, hash=False)
    images: Names = dataclasses.field(default_factory=_no_names, hash=False)
    devices: Names = dataclasses.field(default_factory=_no_names, hash=False)
    cpus: Names = dataclasses.field(default_factory=_no_names, hash=False)
    numa_nodes: Names = dataclasses.field(default_factory=_no_names, hash=False)
    graphics: Names = dataclasses.field(default_factory=_no_names, hash=False)

    def of_kind(self, kind: str) -> Names:
        """Return the map of that kind, one of C(KINDS)."""
        return t.cast(Names, getattr(self, kind))

    def __bool__(self) -> bool:
        return any(self.of_kind(kind) for kind in KINDS)


NO_MAPS: t.Final = ResourceMaps()


@dataclass(frozen=True)
class HostNames:
    """What one host calls its resources.

    :arg host: its name, for sentences.
    """

    host: str
    maps: ResourceMaps = NO_MAPS


@dataclass(frozen=True)
class _Kind:
    """:arg variable: the inventory variable; C(label) is the resource in a sentence, and C(form) the form of a name."""

    variable: str
    label: str
    form: str


BRIDGES, NETWORKS, IMAGES, DEVICES, CPUS, NUMA_NODES, GRAPHICS = (field.name for field in dataclasses.fields(ResourceMaps))
KINDS: t.Mapping[str, _Kind] = {
    BRIDGES: _Kind("kvmfleet_bridge_map", "bridge", "the name of a bridge, e.g. br0"),
    NETWORKS: _Kind("kvmfleet_network_map", "libvirt network", "the name of a libvirt network"),
    IMAGES: _Kind("kvmfleet_image_map", "folder", "the absolute path of a folder outside /dev, without a slash at its end"),
    DEVICES: _Kind("kvmfleet_device_map", "host device", "a PCI address like 0000:41:00.0, the UUID of a mediated device, or bus and device of USB like 1:4"),
    CPUS: _Kind("kvmfleet_cpu_map", "set of CPUs", "CPUs as libvirt writes them, e.g. 2-5,8"),
    NUMA_NODES: _Kind("kvmfleet_numa_map", "set of NUMA nodes", "NUMA nodes as libvirt writes them, e.g. 0-1"),
    GRAPHICS: _Kind("kvmfleet_graphics_map", "console address", "an IP address"),
}
_SETS = (CPUS, NUMA_NODES)

# The longest name of a network interface in Linux has 15 characters.
_BRIDGE = re.compile(r"[^/\s:]{1,15}")
_NETWORK = re.compile(r"[^/\n]{1,255}")
_SET = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*")
_FOLDER = re.compile(r"(/[^/\n]+)+")
_DEVICES = {
    "pci": re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"),
    "mdev": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "usb": re.compile(r"[0-9]{1,3}:[0-9]{1,3}"),
}


def check_maps(maps: ResourceMaps, host: str) -> ResourceMaps:
    """Return the maps if each name is valid, and stands for one resource only. Raises L(InvalidArgument), which names host and variable."""
    for kind, about in KINDS.items():
        for name, own in maps.of_kind(kind).items():
            if not name or not _is_valid(kind, own):
                raise InvalidArgument(f"{about.variable} of {host} has {own[:80]!r} for {name[:80]!r}.", f"Give {about.form}. Nothing was changed.")
        _check_distinct(kind, maps.of_kind(kind), host)
    return maps


def _is_valid(kind: str, own: str) -> bool:
    if kind in _SETS:
        return bool(_SET.fullmatch(own) and parse_ids(own))
    if kind == DEVICES:
        return bool(device_kind(own))
    if kind == IMAGES:
        return bool(_FOLDER.fullmatch(own)) and not {".", ".."} & set(own.split("/")) and not f"{own}/".startswith("/dev/")
    if kind == GRAPHICS:
        return parse_ip(own) is not None
    return bool((_BRIDGE if kind == BRIDGES else _NETWORK).fullmatch(own))


def _check_distinct(kind: str, names: Names, host: str) -> None:
    """Raise L(InvalidArgument) if two names stand for one resource: the way back could not tell them apart."""
    found: t.Dict[t.Union[str, int], str] = {}
    for name, own in names.items():
        for part in parse_ids(own) if kind in _SETS else [own]:
            if part in found:
                about = KINDS[kind]
                raise InvalidArgument(
                    f"{about.variable} of {host} gives {part!r} two names: {found[part]!r} and {name!r}.",
                    f"Give each {about.label} one name: a guest that returns could not tell them apart. Nothing was changed.",
                )
            found[part] = name


def device_kind(address: str) -> str:
    """Return the kind of a device by the form of its address, C(pci), C(mdev) or C(usb); empty for any other."""
    return next((kind for kind, form in _DEVICES.items() if form.fullmatch(address)), "")


class NoName(Exception):
    """A name cannot be translated. The text of the exception is a sentence."""


@dataclass(frozen=True)
class NameChange:
    """What two hosts call one resource.

    :arg kind: of the resource, as of L(ResourceMaps). Of a file, its folder is named.
    :arg before: the name on the host that a guest leaves.
    :arg after: the name on the other host.
    """

    kind: str
    before: str
    after: str
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Renaming:
    """What a guest's names on one host are on another one.

    :arg source: the name of the host that it leaves, for sentences.
    :arg destination: the name of the other host.
    :arg before: the resource maps of the host that it leaves.
    :arg after: those of the other host.
    """

    source: str
    destination: str
    before: ResourceMaps
    after: ResourceMaps

    @classmethod
    def between(cls, source: HostNames, destination: HostNames) -> Renaming:
        """Return what the names on one host are on another one."""
        return cls(source.host, destination.host, source.maps, destination.maps)

    def __bool__(self) -> bool:
        """Whether a name may differ."""
        return self.before != self.after

    def rename(self, kind: str, name: str) -> str:
        """Return the destination's name for what the source calls C(name). A name that is in no map is the same on both.

        Raises L(NoName) if only one of the two has it in a map, and if the way back would lead elsewhere.
        """
        if not self:
            return name
        renamed = self._translate(kind, name)
        if renamed != name and not _is_same(kind, self._back()._translate(kind, renamed), name):
            raise NoName(f"{self.destination} would have {name} as {renamed}, but that would not become {name} again on the way back to {self.source}.")
        return renamed

    def describe_change(self, kind: str, name: str) -> t.Optional[NameChange]:
        """Return how L(rename) changes the name, by the folder for a file; null if it does not. Raises as L(rename)."""
        renamed = self.rename(kind, name)
        if renamed == name:
            return None
        folder = _longest_folder(self.before.images, name) if kind == IMAGES else name
        return NameChange(kind, folder, renamed[: len(renamed) - len(name) + len(folder)])

    def _back(self) -> Renaming:
        return Renaming(self.destination, self.source, self.after, self.before)

    def _translate(self, kind: str, name: str) -> str:
        if kind in _SETS:
            return self._translate_set(kind, name)
        return self._translate_path(name) if kind == IMAGES else self._translate_name(kind, name)

    def _translate_name(self, kind: str, own: str) -> str:
        name = self._find_common(kind, own, own)
        renamed = self.after.of_kind(kind)[name] if name is not None else own
        if kind == DEVICES and device_kind(renamed) != device_kind(own):
            raise NoName(f"{own} on {self.source} and {renamed} on {self.destination} are devices of different kinds: the guest would see another device.")
        return renamed

    def _translate_path(self, path: str) -> str:
        name = self._find_common(IMAGES, _longest_folder(self.before.images, path), _longest_folder(self.after.images, path))
        return self.after.images[name] + path[len(self.before.images[name]) :] if name is not None else path

    def _find_common(self, kind: str, before: str, after: str) -> t.Optional[str]:
        """Return the fleet's name for C(before) of the source, null if the source has none and the destination has none for C(after)."""
        here, there = self.before.of_kind(kind), self.after.of_kind(kind)
        name = next((name for name, own in here.items() if own == before), None)
        taken = next((name for name, own in there.items() if own == after), None)
        if name is None and taken is not None:
            raise self._unknown(kind, self.source, self.destination, taken, after)
        if name is not None and name not in there:
            raise self._unknown(kind, self.destination, self.source, name, before)
        return name

    def _translate_set(self, kind: str, text: str) -> str:
        """Translate CPUs or NUMA nodes: a whole set into the whole set, else each one by its position in its set."""
        ids, here, there = parse_ids(text), self.before.of_kind(kind), self.after.of_kind(kind)
        whole = next((name for name, own in here.items() if parse_ids(own) == ids), None)
        if whole is not None and whole in there:
            return format_ids(parse_ids(there[whole]))
        renamed = format_ids(self._translate_id(kind, number) for number in ids)
        return text if parse_ids(renamed) == ids else renamed

    def _translate_id(self, kind: str, number: int) -> int:
        here, there = ({name: parse_ids(own) for name, own in maps.of_kind(kind).items()} for maps in (self.before, self.after))
        name = next((name for name, ids in here.items() if number in ids), None)
        taken = next((name for name, ids in there.items() if number in ids), None)
        if name is None:
            if taken is not None:
                raise self._unknown(kind, self.source, self.destination, taken, str(number))
            return number
        if name not in there:
            raise self._unknown(kind, self.destination, self.source, name, str(number))
        if len(here[name]) != len(there[name]):
            sizes = f"{len(here[name])} members on {self.source} and {len(there[name])} on {self.destination}"
            raise NoName(f"The {KINDS[kind].label} {name!r} has {sizes}, and the guest is bound to a part of it ({number}).")
        return there[name][here[name].index(number)]

    @staticmethod
    def _unknown(kind: str, host: str, other: str, name: str, own: str) -> NoName:
        about = KINDS[kind]
        return NoName(f"{host} has no {about.label} {name!r} in {about.variable}, and {own} is {name!r} on {other}.")


def rename_folders(folders: t.Iterable[str], renaming: Renaming) -> t.Dict[str, str]:
    """Return the destination's path of each of these folders of the source, without those that have no name there."""
    renamed = {}
    for folder in folders:
        with contextlib.suppress(NoName):
            renamed[folder] = renaming.rename(IMAGES, folder)
    return renamed


def _is_same(kind: str, one: str, other: str) -> bool:
    return parse_ids(one) == parse_ids(other) if kind in _SETS else one == other


def _longest_folder(folders: Names, path: str) -> str:
    """Return the innermost of these folders that contains the path; the path itself if none does."""
    return max((folder for folder in folders.values() if path == folder or path.startswith(f"{folder}/")), key=len, default=path)
