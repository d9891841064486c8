# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A report as test suites in the form of JUnit, which build servers show."""

from __future__ import annotations

import itertools
import re
import typing as t
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import printable_line

from .document import Report, ReportedHost
from .formats import route_text, text_or_dash
from .moves import CANCELLED, FAILED, REFUSED, UNCERTAIN, UNDER_WAY, ReportedMove

# A move that was not made is a failure; one with an unknown result is an error; one that is under way is neither.
_ELEMENT_BY_OUTCOME = {REFUSED: "failure", CANCELLED: "failure", FAILED: "failure", UNCERTAIN: "error", UNDER_WAY: "skipped"}
_COUNTED_ELEMENTS = {"failures": "failure", "errors": "error", "skipped": "skipped"}
# XML cannot represent surrogates or the last two code points of the first plane, even if escaped.
_NOT_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")


def as_junit(report: Report) -> str:
    """Return the test suites, sources in order. The time of a case is that of the move; a host's verdict is a property of its suite."""
    root = ET.Element("testsuites", {"name": _xml_text(report.title), **_sum_attributes(report.moves)})
    verdicts = {host.name: host for host in report.hosts}
    for source, moves in itertools.groupby(sorted(report.moves, key=_source_name), key=_source_name):
        root.append(_suite_element(source, list(moves), verdicts.get(source), report.made_at))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _source_name(move: ReportedMove) -> str:
    return text_or_dash(move.source)


def _suite_element(source: str, moves: Sequence[ReportedMove], host: t.Optional[ReportedHost], made_at: str) -> ET.Element:
    suite = ET.Element("testsuite", {"name": _xml_text(source), "timestamp": _xml_text(made_at[:19]), **_sum_attributes(moves)})
    if host is not None:
        verdict = "unknown" if host.safe_to_reboot is None else str(host.safe_to_reboot).lower()
        properties = ET.SubElement(suite, "properties")
        ET.SubElement(properties, "property", name="safe_to_reboot", value=verdict)
        for reason in host.reasons:
            ET.SubElement(properties, "property", name="safe_to_reboot_reason", value=_xml_text(reason))
    suite.extend(_case_element(source, move) for move in moves)
    return suite


def _case_element(source: str, move: ReportedMove) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=_xml_text(source),
        name=_xml_text(f"{text_or_dash(move.domain.name)}: {route_text(move)}"),
        time=_seconds_text(move.elapsed_ms),
    )
    properties = ET.SubElement(case, "properties")
    for key in ("id", "type", "status", "forced", "downtime_ms", "bytes", "mode"):
        value = getattr(move, key)
        if value is not None:
            ET.SubElement(properties, "property", name=key, value=_xml_text(str(value)))
    for evidence in move.evidence:
        ET.SubElement(properties, "property", name="evidence", value=_xml_text(", ".join(f"{key}: {text_or_dash(value)}" for key, value in evidence.items())))
    element = _ELEMENT_BY_OUTCOME.get(move.outcome)
    if element:
        kind = {} if element == "skipped" else {"type": _xml_text(move.reason or move.status)}
        ET.SubElement(case, element, {"message": _xml_text(move.why or move.status), **kind})
    return case


def _sum_attributes(moves: Sequence[ReportedMove]) -> dict[str, str]:
    elements = [_ELEMENT_BY_OUTCOME.get(move.outcome) for move in moves]
    counts = {name: str(elements.count(element)) for name, element in _COUNTED_ELEMENTS.items()}
    return {"tests": str(len(moves)), **counts, "time": _seconds_text(sum(move.elapsed_ms or 0 for move in moves))}


def _seconds_text(milliseconds: t.Optional[int]) -> str:
    return f"{(milliseconds or 0) / 1000:.3f}"


def _xml_text(value: str) -> str:
    return _NOT_XML.sub("\ufffd", printable_line(value))
