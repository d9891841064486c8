# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Compares the definition that a destination has with that of the source: a destination with an older libvirt drops what it does not know, without an error."""

from __future__ import annotations

import collections
import typing as t
from xml.etree.ElementTree import Element

from .._model.libvirt_formats import parse_libvirt_xml

# What each host fills in by itself.
_OF_HOST = ("seclabel", "resource")
# What a later libvirt writes into the definition of each guest with UEFI. An older one, which may know no other format, takes it for granted.
_IMPLIED = tuple((f"/domain/os/{where}", "raw") for where in ("loader/@format", "nvram/@format", "nvram/@templateFormat"))


def find_lost(source: str, destination: str) -> str:
    """Return the first element of the source's definition that the destination does not have, as a path; empty if nothing was lost.

    Values of attributes and texts count, the order does not. What the destination has in addition is not looked at.
    """
    there = collections.Counter(_list_elements(parse_libvirt_xml(destination, "a domain definition")))
    for element in _list_elements(parse_libvirt_xml(source, "a domain definition")):
        if there[element]:
            there[element] -= 1
        elif element not in _IMPLIED or any(path == element[0] for path, _text in there):
            return element[0]
    return ""


_Described = t.Tuple[str, str]


def _list_elements(root: Element, above: str = "") -> t.Iterator[_Described]:
    """Yield path and text of each element without children of its own, and each attribute."""
    path = f"{above}/{root.tag}"
    text = (root.text or "").strip()
    if text:
        yield path, text
    for name, value in root.attrib.items():
        yield f"{path}/@{name}", value
    for child in root:
        if above or child.tag not in _OF_HOST:
            yield from _list_elements(child, path)
