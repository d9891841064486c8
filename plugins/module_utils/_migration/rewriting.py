# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Rewrites a definition for the host that the guest moves to. Pure functions.

C(_SITES) is the list of what may differ between hosts. Its values are replaced in the text of the definition, so that every other byte stays as it is. The
result is compared with the original all the same, before anything is reserved.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from xml.etree.ElementTree import Element
from xml.parsers import expat

from .._dataclass import dataclass
from .._model import resource_maps as m
from .._model.errors import Internal, NotSupported
from .._model.libvirt_formats import escape_text, format_pci_address, parse_device_number, parse_libvirt_xml
from .._model.record_parts import LIVE, PERSISTENT, DefinitionChange
from .._model.resource_maps import NoName, Renaming

if t.TYPE_CHECKING:
    # The control half rewrites saved definitions, and knows no hosts of libvirt.
    from .._libvirt.interface import Host
    from .._model.domain_states import DomainInfo

Attributes = t.Mapping[str, str]
# The attributes of an element and of all elements around it, the element itself last.
Lineage = t.Sequence[Attributes]


@dataclass(frozen=True)
class _Site:
    """A place in a definition that names a resource of the host.

    :arg path: the elements below C(domain), as a regular expression.
    :arg attribute: the attribute that has the name; empty for the text of the element, C(*) for the attributes of a device's address.
    :arg applies: whether the attributes of the element, and of those around it, make it one.
    """

    kind: str
    path: t.Pattern[str]
    attribute: str
    applies: t.Callable[[Lineage], bool] = lambda lineage: True


def _site(kind: str, path: str, attribute: str = "", applies: t.Callable[[Lineage], bool] = lambda lineage: True) -> _Site:
    return _Site(kind, re.compile(path), attribute, applies)


_ADDRESS = "*"
_SITES = (
    # Of an interface on a libvirt network, the live definition shows the network's own bridge too.
    _site(m.BRIDGES, "devices/interface/source", "bridge", lambda lineage: "network" not in lineage[-1]),
    _site(m.NETWORKS, "devices/interface/source", "network"),
    _site(m.NETWORKS, "devices/graphics/listen", "network"),
    _site(m.IMAGES, "devices/disk(/backingStore|/source/dataStore)*/source", "file"),
    _site(m.IMAGES, "devices/disk(/backingStore|/source/dataStore)*/source", "dir"),
    _site(m.IMAGES, "os/(loader|kernel|initrd|dtb|nvram)"),
    _site(m.IMAGES, "os/nvram/source", "file"),
    _site(m.IMAGES, "os/varstore", "path"),
    _site(m.IMAGES, "os/acpi/table"),
    _site(m.IMAGES, "sysinfo/entry", "file"),
    _site(m.DEVICES, "devices/(hostdev|interface)/source/address", _ADDRESS),
    _site(m.CPUS, "vcpu", "cpuset"),
    _site(m.CPUS, "cputune/(vcpupin|emulatorpin|iothreadpin)", "cpuset"),
    _site(m.NUMA_NODES, "numatune/(memory|memnode)", "nodeset"),
    _site(m.NUMA_NODES, "devices/memory/source/nodemask"),
    _site(m.GRAPHICS, "devices/graphics", "listen"),
    _site(m.GRAPHICS, "devices/graphics/listen", "address", lambda lineage: lineage[-1].get("type") != "network"),
)


@dataclass(frozen=True)
class Rewritten:
    """The definitions of a guest for another host; C(persistent) is null for a transient one. C(changes) are empty if nothing differs."""

    live: str
    persistent: t.Optional[str]
    changes: t.Tuple[DefinitionChange, ...]

    def as_parameters(self) -> t.Dict[str, str]:
        """Return libvirt's parameters for a migrate call, none if nothing differs. They have the passwords of the definition: they are kept nowhere."""
        if not self.changes:
            return {}
        return {"destination_xml": self.live, **({"persistent_xml": self.persistent} if self.persistent is not None else {})}


def rewrite_for_move(host: Host, info: DomainInfo, renaming: Renaming) -> Rewritten:
    """Return the definitions of a guest of that host as the host that it moves to needs them. Raises as L(rewrite_definitions)."""
    persistent = host.read_movable_definition(info.uuid, persistent=True) if info.view.persistent else None
    return rewrite_definitions(host.read_movable_definition(info.uuid, persistent=False), persistent, renaming)


def rewrite_definitions(live: str, persistent: t.Optional[str], renaming: Renaming) -> Rewritten:
    """Return both definitions of a guest as its destination needs them.

    Raises L(NotSupported) with every reason why its names cannot be translated.

    :arg live: the one that libvirt would send, with passwords; C(persistent) is null for a transient guest.
    """
    there, changes = rewrite_definition(live, renaming, LIVE)
    if persistent is None:
        return Rewritten(there, None, changes)
    persistent_there, further = rewrite_definition(persistent, renaming, PERSISTENT)
    return Rewritten(there, persistent_there, _merge_changes(changes, further))


def rewrite_definition(definition: str, renaming: Renaming, which: str) -> t.Tuple[str, t.Tuple[DefinitionChange, ...]]:
    """Return a definition as another host needs it, and what differs. Raises as L(rewrite_definitions).

    :arg which: the one that it is, C(LIVE) or C(PERSISTENT).
    """
    before = parse_libvirt_xml(definition, "a domain definition")
    editor = _Editor(definition, renaming, which)
    after = editor.rewrite_text()
    if editor.problems:
        raise NotSupported(" ".join(dict.fromkeys(editor.problems)), f"Complete the resource maps of both hosts. {_NOTHING}")
    strange = find_difference(before, parse_libvirt_xml(after, "a rewritten definition"))
    if strange:
        raise Internal(f"The definition for {renaming.destination} would differ in {strange}, which may not differ.", f"Report this as a bug. {_NOTHING}")
    return after, tuple(editor.changes)


_NOTHING = "Nothing was moved."


def _merge_changes(live: t.Sequence[DefinitionChange], persistent: t.Sequence[DefinitionChange]) -> t.Tuple[DefinitionChange, ...]:
    """Return the changes of both definitions, those that are the same in both only once."""
    merged = {(change.path, change.before, change.after): change for change in live}
    for change in persistent:
        key = (change.path, change.before, change.after)
        merged[key] = dataclasses.replace(change, definitions=(*(merged[key].definitions if key in merged else ()), *change.definitions))
    return tuple(merged.values())


def find_difference(before: Element, after: Element, path: str = "", lineage: Lineage = ()) -> str:
    """Return the path of the first difference between two definitions that is not in the list of what may differ; empty if there is none."""
    lineage = (*lineage, before.attrib)
    allowed = {site.attribute for site in _find_sites(path, lineage)}
    names = {*before.attrib, *after.attrib}
    differing = {name for name in names if before.get(name) != after.get(name)}
    is_text_other = (before.text or "") != (after.text or "") and "" not in allowed
    if before.tag != after.tag or len(before) != len(after) or is_text_other or (before.tail or "") != (after.tail or ""):
        return path or before.tag
    if not differing <= allowed and not (_ADDRESS in allowed and differing <= _ADDRESS_PARTS):
        return f"{path}/@{sorted(differing - allowed)[0]}"
    pairs = zip(before, after)
    return next(filter(None, (find_difference(old, new, f"{path}/{old.tag}".lstrip("/"), lineage) for old, new in pairs)), "")


def _find_sites(path: str, lineage: Lineage) -> t.List[_Site]:
    return [site for site in _SITES if site.path.fullmatch(path) and site.applies(lineage)]


_ADDRESS_PARTS = frozenset({"domain", "bus", "slot", "function", "uuid", "device"})


def _read_address(attributes: Attributes) -> str:
    """Return the address of a device in the form of C(kvmfleet_device_map); empty for one of another kind."""
    if "uuid" in attributes:
        return attributes["uuid"].lower()
    if "slot" in attributes:
        return format_pci_address(Element("address", dict(attributes)))
    if "device" in attributes and "bus" in attributes:
        return f"{parse_device_number(attributes['bus'])}:{parse_device_number(attributes['device'])}"
    return ""


def _write_address(address: str) -> t.Dict[str, str]:
    kind, parts = m.device_kind(address), re.split("[:.]", address)
    if kind == "mdev":
        return {"uuid": address}
    if kind == "usb":
        return dict(zip(("bus", "device"), parts))
    return {key: f"0x{part}" for key, part in zip(("domain", "bus", "slot", "function"), parts)}


@dataclass
class _Place:
    """An element that is being read.

    :arg label: its path below C(domain) with the numbers of the elements.
    :arg begin: the offset of its start tag in bytes.
    """

    tag: str
    attributes: Attributes
    label: str
    begin: int
    counts: t.Dict[str, int] = dataclasses.field(default_factory=dict)


class _Editor:
    """Finds the places in the text of a definition that name resources of its host, and replaces the names."""

    def __init__(self, definition: str, renaming: Renaming, which: str) -> None:
        self.changes: t.List[DefinitionChange] = []
        self.problems: t.List[str] = []
        self._renaming = renaming
        self._which = which
        self._bytes = definition.encode()
        self._places: t.List[_Place] = []
        # The bytes from the first to before the second offset are replaced.
        self._edits: t.List[t.Tuple[int, int, bytes]] = []
        self._parser = expat.ParserCreate("utf-8")
        self._parser.StartElementHandler = self._enter
        self._parser.EndElementHandler = self._leave

    def rewrite_text(self) -> str:
        """Return the definition with the new names."""
        self._parser.Parse(self._bytes, True)
        found, at = [], 0
        for begin, end, text in sorted(self._edits):
            found += [self._bytes[at:begin], text]
            at = end
        return b"".join([*found, self._bytes[at:]]).decode()

    def _enter(self, tag: str, attributes: Attributes) -> None:
        around = self._places[-1] if self._places else None
        label = ""
        if around is not None:
            around.counts[tag] = around.counts.get(tag, 0) + 1
            label = f"{around.label}/{tag}[{around.counts[tag]}]".lstrip("/")
        self._places.append(_Place(tag, attributes, label, self._parser.CurrentByteIndex))
        for site in _find_sites(self._path, self._lineage):
            if site.attribute == _ADDRESS:
                self._rename_address(self._places[-1])
            elif site.attribute in attributes:
                self._rename_attribute(site, self._places[-1])

    def _leave(self, _tag: str) -> None:
        place, path, lineage = self._places[-1], self._path, self._lineage
        for site in _find_sites(path, lineage):
            if not site.attribute:
                self._rename_text(site, place)
        self._places.pop()

    @property
    def _path(self) -> str:
        return "/".join(place.tag for place in self._places[1:])

    @property
    def _lineage(self) -> Lineage:
        return [place.attributes for place in self._places]

    def _rename_attribute(self, site: _Site, place: _Place) -> None:
        before = place.attributes[site.attribute]
        after = self._rename(site.kind, before, f"{place.label}/@{site.attribute}")
        if after != before:
            self._replace_attribute(place, site.attribute, after)

    def _rename_address(self, place: _Place) -> None:
        before = _read_address(place.attributes)
        after = self._rename(m.DEVICES, before, place.label) if before else before
        if after != before:
            for name, value in _write_address(after).items():
                self._replace_attribute(place, name, value)

    def _rename_text(self, site: _Site, place: _Place) -> None:
        start = place.begin + len(self._start_tag(place))
        end = self._parser.CurrentByteIndex
        # An element with others in it names no file itself.
        if end <= start or b"<" in self._bytes[start:end]:
            return
        written = self._bytes[start:end].decode()
        before = _unescape(written).strip()
        after = self._rename(site.kind, before, place.label) if before else before
        if after != before:
            self._edits.append((start, end, escape_text(after).encode()))

    def _rename(self, kind: str, name: str, label: str) -> str:
        try:
            renamed = self._renaming.rename(kind, name)
        except NoName as problem:
            self.problems.append(str(problem))
            return name
        if renamed != name:
            self.changes.append(DefinitionChange(label, name, renamed, (self._which,)))
        return renamed

    def _replace_attribute(self, place: _Place, name: str, value: str) -> None:
        tag = self._start_tag(place)
        found = re.search(rb"\s" + name.encode() + rb"\s*=\s*(?P<value>'[^']*'|\"[^\"]*\")", tag)
        if found is None:
            raise Internal(f"The attribute {name} of {place.label} was not found in its definition.", _NOTHING)
        quote = found["value"][:1]
        written = escape_text(value).replace('"', "&quot;").replace("'", "&apos;").encode()
        self._edits.append((place.begin + found.start("value"), place.begin + found.end("value"), quote + written + quote))

    def _start_tag(self, place: _Place) -> bytes:
        found = _START_TAG.match(self._bytes, place.begin)
        return found.group() if found else b""


_START_TAG = re.compile(rb"<(?:[^>'\"]|'[^']*'|\"[^\"]*\")*>")
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&"))


def _unescape(text: str) -> str:
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    return text
