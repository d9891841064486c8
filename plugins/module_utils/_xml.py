# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Parsing XML that another process or host gave: without document types, whose entities make gigabytes of a few lines, and of bounded length."""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from ._errors import Internal

# The longest string that libvirt's protocol carries (REMOTE_STRING_MAX).
MAX_CHARACTERS = 4 * 1024**2
# Libvirt's own parser takes no more; Python's writer calls itself for every level, and would break off.
MAX_LEVELS = 256


class NotXml(Exception):
    """The text cannot be used; the exception's text says why, as the end of a sentence."""


class _NoDoctype(ElementTree.TreeBuilder):
    def doctype(self, *_declared: t.Any) -> t.NoReturn:
        raise NotXml("it declares a document type, which libvirt never does")


def parse_xml(text: str) -> ElementTree.Element:
    """Return the root element. Raises L(NotXml)."""
    if len(text) > MAX_CHARACTERS:
        raise NotXml(f"it is longer than {MAX_CHARACTERS} characters")
    # The same words may stand in a comment or in CDATA; the parser that can tell is the slower one.
    parser = ElementTree.XMLParser(target=_NoDoctype()) if "<!DOCTYPE" in text else None
    try:
        root = ElementTree.fromstring(text, parser)
    except (ElementTree.ParseError, ValueError) as error:
        raise NotXml(f"it is no XML: {error}") from error
    _check_depth(root)
    return root


def _check_depth(root: ElementTree.Element) -> None:
    level, depth = [root], 1
    while level := [child for element in level for child in element]:
        depth += 1
        if depth > MAX_LEVELS:
            raise NotXml(f"it is nested more than {MAX_LEVELS} times")


def parse_libvirts(text: str, what: str) -> ElementTree.Element:
    """Return the root element of what libvirt gave, e.g. as C(a domain definition). Raises L(Internal)."""
    try:
        return parse_xml(text)
    except NotXml as error:
        raise Internal(f"libvirt gave {what} that cannot be read: {error}.") from error
