# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The policy of a domain in the metadata of its XML, and changes to it. Both halves use it, so that check mode predicts the result.

Elements and attributes that this version does not know are kept, because a newer version may have written them.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from xml.etree import ElementTree

from .._dataclass import dataclass
from .codec import Json, JsonObject
from .errors import Conflict, InvalidArgument
from .libvirt_formats import NotXml, parse_xml
from .policies import BOOLEAN_FIELDS, NUMBER_FIELDS, POLICY_FIELDS, check_field, features_in, has_both_features, strategies_value

POLICY_NAMESPACE = "urn:kvmfleet:migration:policy"
POLICY_PREFIX = "kvmfleet"
POLICY_ROOT = "policy"

_MAX_CHARACTERS = 65536
# The elements of fields that can have several values.
_PARTS = {"labels": "label", "drain": "strategy"}
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")
# The words that Ansible and libvirt users write, in any case.
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

Element = ElementTree.Element


@dataclass(frozen=True)
class OwnPolicy:
    """The policy of a domain: C(values) by field; C(wrong), the errors by element; and C(raw), the texts of the invalid elements."""

    values: t.Dict[str, Json] = dataclasses.field(default_factory=dict)
    wrong: t.Dict[str, str] = dataclasses.field(default_factory=dict)
    raw: t.Dict[str, Json] = dataclasses.field(default_factory=dict)

    def check_values(self, what: str) -> t.Dict[str, Json]:
        """Return the values. Raises L(InvalidArgument) if something is wrong, naming C(what), e.g. C(domain web1 on kvm1), and each element."""
        if self.wrong:
            raise InvalidArgument(
                f"The migration policy in the XML of {what} is wrong: {' '.join(f'<{name}>: {problem}' for name, problem in self.wrong.items())}",
                f"Repair it with kvmfleet.migration.domain_policy: set or unset {', '.join(self.wrong)}, or state: absent. Nothing was changed.",
            )
        return self.values

    def describe_values(self) -> t.Dict[str, Json]:
        """Return what a diff shows: values, and the raw texts of what is wrong."""
        return {**self.values, **self.raw}


def read_policy_element(domain: Element) -> str:
    """Return the policy in a domain's parsed XML, as text; empty if it has none."""
    ours = f"{{{POLICY_NAMESPACE}}}"
    found = next((element for element in domain.findall("metadata/*") if element.tag.startswith(ours)), None)
    return "" if found is None else ElementTree.tostring(found, encoding="unicode").strip()


def parse_policy(xml: str) -> OwnPolicy:
    """Return the policy. Errors in it are in C(wrong), and nothing is raised."""
    try:
        tree = _parse_tree(xml)
    except InvalidArgument as error:
        return OwnPolicy(wrong={POLICY_ROOT: str(error)}, raw={POLICY_ROOT: xml})
    own = OwnPolicy()
    for name in POLICY_FIELDS:
        elements = _find_elements(tree, name)
        if len(elements) == 1:
            _read_into(own, name, elements[0])
        elif elements:
            own.wrong[name] = "It is listed more than once."
            own.raw[name] = [_element_text(element) for element in elements]
    return own


def change_policy(xml: str, setting: JsonObject, unset: t.Iterable[str] = ()) -> str:
    """Return the policy with these fields set and those taken out; empty if nothing is left. Everything else stays.

    Raises L(InvalidArgument) if the policy as a whole cannot be read.
    """
    tree = _parse_tree(xml)
    before = parse_policy(xml)
    for name in unset:
        for element in _find_elements(tree, name):
            tree.remove(element)
    for name, value in setting.items():
        if name in before.wrong or before.values.get(name) != value:
            _write_value(tree, name, value)
    return ElementTree.tostring(tree, encoding="unicode") if len(tree) or tree.attrib else ""


def is_same_policy(one: str, other: str) -> bool:
    """Whether two policies are equal, apart from prefixes and white space."""
    return _canonical_xml(one) == _canonical_xml(other)


def _canonical_xml(xml: str) -> str:
    try:
        return ElementTree.canonicalize(ElementTree.tostring(_parse_tree(xml), encoding="unicode"), strip_text=True) if xml else ""
    except InvalidArgument:
        return xml


def _parse_tree(xml: str) -> Element:
    """Return the policy's root without our own namespace, which libvirt adds again when it receives the element."""
    if not xml:
        return Element(POLICY_ROOT)
    if len(xml) > _MAX_CHARACTERS:
        raise InvalidArgument(f"It is longer than {_MAX_CHARACTERS} characters.")
    try:
        tree = parse_xml(xml)
    except NotXml as error:
        raise InvalidArgument(f"It cannot be read: {error}.") from error
    for element in tree.iter():
        element.tag = element.tag.replace(f"{{{POLICY_NAMESPACE}}}", "", 1)
    if tree.tag != POLICY_ROOT:
        raise InvalidArgument(f"Its element is named {tree.tag!r} instead of {POLICY_ROOT!r}.", "Only state: absent can remove it.")
    return tree


def _find_elements(tree: Element, name: str) -> t.List[Element]:
    return [element for element in tree if element.tag == name]


def _element_text(element: Element) -> str:
    return (element.text or "").strip()


def _read_into(own: OwnPolicy, name: str, element: Element) -> None:
    value = _read_value(name, element)
    try:
        check_field(name, value)
    except InvalidArgument as error:
        own.wrong[name] = str(error)
        own.raw[name] = value
    else:
        own.values[name] = value


def _read_value(name: str, element: Element) -> Json:
    """Return the value of the element, or its text if that is invalid: the following check names it."""
    if name == "group":
        found = {key: element.get(key) for key in ("name", "policy", "max_per_host") if element.get(key) is not None}
        return {key: _parse_number(value) if key == "max_per_host" else value for key, value in found.items()}
    parts = [_element_text(part) for part in _find_elements(element, _PARTS[name])] if name in _PARTS else []
    if name == "labels":
        return list(parts)
    if name == "drain" and parts:
        return strategies_value(parts)
    text = _element_text(element)
    if name in NUMBER_FIELDS:
        return _parse_number(text)
    return _BOOLEANS.get(text.lower(), text) if name in BOOLEAN_FIELDS else text


def _parse_number(text: t.Optional[str]) -> Json:
    return int(text) if text is not None and _NUMBER.fullmatch(text.strip()) else text


def _write_value(tree: Element, name: str, value: Json) -> None:
    elements = _find_elements(tree, name)
    for twin in elements[1:]:
        tree.remove(twin)
    element = elements[0] if elements else ElementTree.SubElement(tree, name)
    if isinstance(value, t.Mapping):
        element.attrib.pop("max_per_host", None)
        element.attrib.update({key: str(part) for key, part in value.items() if part is not None})
    elif isinstance(value, (list, tuple)):
        element.text = None
        for part in _find_elements(element, _PARTS[name]):
            element.remove(part)
        for text in value:
            ElementTree.SubElement(element, _PARTS[name]).text = str(text)
    else:
        for child in list(element):
            element.remove(child)
        element.text = str(value).lower() if name in BOOLEAN_FIELDS else str(value)


# A domain's two definitions: what runs, and what its next start uses.
LIVE = "live"
CONFIG = "config"

Definitions = t.Dict[str, str]


@dataclass(frozen=True)
class PolicyChange:
    """Fields to set and to remove; with C(absent), the whole policy is removed."""

    setting: t.Dict[str, Json] = dataclasses.field(default_factory=dict)
    unset: t.Tuple[str, ...] = ()
    absent: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether anything changes; otherwise the task only reads."""
        return self.absent or bool(self.setting) or bool(self.unset)

    def as_dict(self) -> t.Dict[str, Json]:
        """Return it as JSON carries it."""
        return {"setting": self.setting, "unset": list(self.unset), "absent": self.absent}


def read_change(document: JsonObject) -> PolicyChange:
    """Return what L(PolicyChange.as_dict) made."""
    setting, unset = t.cast(JsonObject, document["setting"]), t.cast(t.Sequence[str], document["unset"])
    return PolicyChange(dict(setting), tuple(unset), bool(document["absent"]))


def apply_change(change: PolicyChange, definitions: Definitions, what: str) -> Definitions:
    """Return the changed definitions.

    Each keeps what the task does not name. Raises L(InvalidArgument) if one would still be wrong, L(Conflict) where both features would be on.

    :arg what: the domain and its host, for messages.
    """
    if change.absent:
        return dict.fromkeys(definitions, "")
    after = {scope: change_policy(xml, change.setting, change.unset) for scope, xml in definitions.items()}
    for scope, xml in after.items():
        values = parse_policy(xml).check_values(_describe_definition(scope, what))
        if change.is_wanted and has_both_features(features_in(values)):
            raise Conflict(
                f"auto_converge and post_copy would both be on in {_describe_definition(scope, what)}, but a move can use only one of them.",
                "Switch one of them off. Nothing was changed.",
            )
    return after


def policy_in_force(definitions: Definitions) -> str:
    """Return the policy that a move uses: that of the running domain, else that of its definition."""
    return definitions.get(LIVE, definitions.get(CONFIG, ""))


def _describe_definition(scope: str, what: str) -> str:
    return f"the persistent definition of {what}" if scope == CONFIG else what
