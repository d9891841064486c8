# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A domain's own policy as it stands in the metadata of the domain's XML.

Elements and attributes that this version does not know are kept, for a newer one may have written them.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from xml.etree import ElementTree

from .._errors import InvalidArgument
from .._xml import NotXml, parse_xml
from .fields import BOOLEANS, FIELDS, NUMBERS, check_field

NAMESPACE = "urn:kvmfleet:migration:policy"
PREFIX = "kvmfleet"
ROOT = "policy"

_MAX_CHARACTERS = 65536
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")

Element = ElementTree.Element


@dataclasses.dataclass(frozen=True)
class OwnPolicy:
    """What a domain says: C(values) by field, C(wrong) by element with a sentence, and C(raw) the texts of the wrong ones."""

    values: t.Dict[str, t.Any] = dataclasses.field(default_factory=dict)
    wrong: t.Dict[str, str] = dataclasses.field(default_factory=dict)
    raw: t.Dict[str, t.Any] = dataclasses.field(default_factory=dict)

    def check(self, what: str) -> t.Dict[str, t.Any]:
        """Return the values. Raises L(InvalidArgument) where something is wrong, naming C(what), e.g. C(domain web1 on kvm1), and each element."""
        if self.wrong:
            raise InvalidArgument(
                f"The migration policy in the XML of {what} is wrong: {' '.join(f'<{name}>: {problem}' for name, problem in self.wrong.items())}",
                f"Repair it with kvmfleet.migration.domain_policy: set or unset {', '.join(self.wrong)}, or state: absent. Nothing was changed.",
            )
        return self.values

    def shown(self) -> t.Dict[str, t.Any]:
        """Return what a diff shows: values, and the raw texts of what is wrong."""
        return {**self.values, **self.raw}


def element_of(domain: Element) -> str:
    """Return the policy in a domain's parsed XML, as text; empty where it has none."""
    ours = f"{{{NAMESPACE}}}"
    found = next((element for element in domain.findall("metadata/*") if element.tag.startswith(ours)), None)
    return "" if found is None else ElementTree.tostring(found, encoding="unicode").strip()


def parse(xml: str) -> OwnPolicy:
    """Return what the policy says; what cannot be read is told in C(wrong), and nothing is raised."""
    try:
        tree = _tree(xml)
    except InvalidArgument as error:
        return OwnPolicy(wrong={ROOT: str(error)}, raw={ROOT: xml})
    own = OwnPolicy()
    for name in FIELDS:
        elements = _named(tree, name)
        if len(elements) == 1:
            _read_into(own, name, elements[0])
        elif elements:
            own.wrong[name] = "It stands more than once."
            own.raw[name] = [_text(element) for element in elements]
    return own


def changed(xml: str, setting: t.Mapping[str, t.Any], unset: t.Iterable[str] = ()) -> str:
    """Return the policy with these fields set and those taken out; empty where nothing is left. Everything else stays.

    Raises L(InvalidArgument) where the policy as a whole cannot be read.
    """
    tree = _tree(xml)
    before = parse(xml)
    for name in unset:
        for element in _named(tree, name):
            tree.remove(element)
    for name, value in setting.items():
        if name in before.wrong or before.values.get(name) != value:
            _write(tree, name, value)
    return ElementTree.tostring(tree, encoding="unicode") if len(tree) or tree.attrib else ""


def is_same(one: str, other: str) -> bool:
    """Whether two policies say the same, whatever their prefixes and white space."""
    return _canonical(one) == _canonical(other)


def _canonical(xml: str) -> str:
    try:
        return ElementTree.canonicalize(ElementTree.tostring(_tree(xml), encoding="unicode"), strip_text=True) if xml else ""
    except InvalidArgument:
        return xml


def _tree(xml: str) -> Element:
    """Return the policy's root with our own namespace taken off: libvirt puts it on again when it is given the element."""
    if not xml:
        return Element(ROOT)
    if len(xml) > _MAX_CHARACTERS:
        raise InvalidArgument(f"It is longer than {_MAX_CHARACTERS} characters.")
    try:
        tree = parse_xml(xml)
    except NotXml as error:
        raise InvalidArgument(f"It cannot be read: {error}.") from error
    for element in tree.iter():
        element.tag = element.tag.replace(f"{{{NAMESPACE}}}", "", 1)
    if tree.tag != ROOT:
        raise InvalidArgument(f"Its element is named {tree.tag!r} instead of {ROOT!r}.", "Only state: absent can take it away.")
    return tree


def _named(tree: Element, name: str) -> t.List[Element]:
    return [element for element in tree if element.tag == name]


def _text(element: Element) -> str:
    return (element.text or "").strip()


def _read_into(own: OwnPolicy, name: str, element: Element) -> None:
    value = _value(name, element)
    try:
        check_field(name, value)
    except InvalidArgument as error:
        own.wrong[name] = str(error)
        own.raw[name] = value
    else:
        own.values[name] = value


def _value(name: str, element: Element) -> t.Any:
    """Return the element's value, or its text where that is none: the check that follows names it."""
    if name == "group":
        found = {key: element.get(key) for key in ("name", "policy", "max_per_host") if element.get(key) is not None}
        return {key: _number(value) if key == "max_per_host" else value for key, value in found.items()}
    if name == "labels":
        return [_text(label) for label in _named(element, "label")]
    text = _text(element)
    if name in NUMBERS:
        return _number(text)
    return {"true": True, "false": False}.get(text, text) if name in BOOLEANS else text


def _number(text: t.Optional[str]) -> t.Any:
    return int(text) if text is not None and _NUMBER.fullmatch(text.strip()) else text


def _write(tree: Element, name: str, value: t.Any) -> None:
    elements = _named(tree, name)
    for twin in elements[1:]:
        tree.remove(twin)
    element = elements[0] if elements else ElementTree.SubElement(tree, name)
    if name == "group":
        element.attrib.pop("max_per_host", None)
        element.attrib.update({key: str(part) for key, part in value.items() if part is not None})
    elif name == "labels":
        for label in _named(element, "label"):
            element.remove(label)
        for text in value:
            ElementTree.SubElement(element, "label").text = text
    else:
        for child in list(element):
            element.remove(child)
        element.text = str(value).lower() if name in BOOLEANS else str(value)
