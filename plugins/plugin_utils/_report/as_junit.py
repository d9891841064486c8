# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A report as JUnit XML, which every CI system shows: a test case a move, a test suite a source."""

from __future__ import annotations

import itertools
import re
import typing as t
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable

from .._ledger.store import Body
from .outcomes import CANCELLED, FAILED, REFUSED, UNCERTAIN, UNDER_WAY
from .words import text, way

# A move that did not happen is a failure; one of which nobody knows where it ended is an error; what is under way is neither.
_ELEMENTS = {REFUSED: "failure", CANCELLED: "failure", FAILED: "failure", UNCERTAIN: "error", UNDER_WAY: "skipped"}
_COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}
# XML can say no surrogate and none of the two last code points of the first plane, escaped or not.
_NOT_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")


def as_junit(document: Body) -> str:
    """Return the test suites, sources in order. The time of a case is that of the move; a host's verdict is a property of its suite."""
    root = ET.Element("testsuites", {"name": _xml(document["title"]), **_sums(document["moves"])})
    verdicts = {host["name"]: host for host in document["hosts"]}
    for source, moves in itertools.groupby(sorted(document["moves"], key=_source), key=_source):
        root.append(_suite(source, list(moves), verdicts.get(source), document["made_at"]))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _source(move: Body) -> str:
    return text(move["source"])


def _suite(source: str, moves: Sequence[Body], host: t.Optional[Body], made_at: str) -> ET.Element:
    suite = ET.Element("testsuite", {"name": _xml(source), "timestamp": _xml(made_at[:19]), **_sums(moves)})
    if host is not None:
        told = {True: "true", False: "false"}.get(host["safe_to_reboot"], "unknown")
        properties = ET.SubElement(suite, "properties")
        ET.SubElement(properties, "property", name="safe_to_reboot", value=told)
        for reason in host["reasons"]:
            ET.SubElement(properties, "property", name="safe_to_reboot_reason", value=_xml(reason))
    suite.extend(_case(source, move) for move in moves)
    return suite


def _case(source: str, move: Body) -> ET.Element:
    case = ET.Element("testcase", classname=_xml(source), name=_xml(f"{text(move['domain']['name'])}: {way(move)}"), time=_seconds(move["elapsed_ms"]))
    properties = ET.SubElement(case, "properties")
    for key in ("id", "type", "status", "forced", "downtime_ms", "bytes", "mode"):
        if move[key] is not None:
            ET.SubElement(properties, "property", name=key, value=_xml(str(move[key])))
    for evidence in move["evidence"]:
        ET.SubElement(properties, "property", name="evidence", value=_xml(", ".join(f"{key}: {text(value)}" for key, value in evidence.items())))
    element = _ELEMENTS.get(move["outcome"])
    if element:
        kind = {} if element == "skipped" else {"type": _xml(move["reason"] or move["status"])}
        ET.SubElement(case, element, {"message": _xml(move["why"] or move["status"]), **kind})
    return case


def _sums(moves: Sequence[Body]) -> dict[str, str]:
    elements = [_ELEMENTS.get(move["outcome"]) for move in moves]
    counts = {name: str(elements.count(element)) for name, element in _COUNTED.items()}
    return {"tests": str(len(moves)), **counts, "time": _seconds(sum(move["elapsed_ms"] or 0 for move in moves))}


def _seconds(milliseconds: t.Optional[int]) -> str:
    return f"{(milliseconds or 0) / 1000:.3f}"


def _xml(value: str) -> str:
    return _NOT_XML.sub("\ufffd", printable(value))
