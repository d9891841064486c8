# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same content in every format, and markup or control characters in a name have no effect."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import xml.etree.ElementTree as ET

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import REPORT_FORMATS
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report import formats
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.document import Report
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.rendering import data_element, file_names, render_files
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.spreadsheets import moves_as_csv
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report import nights
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report.conftest import report_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report.nights import Body

DATA = re.compile(r'<script type="application/json" id="([a-z0-9-]+)">(.*?)</script>', re.DOTALL)


@pytest.fixture
def files(report: Body) -> dict[str, str]:
    """All formats, by kind."""
    names = file_names("night", REPORT_FORMATS)
    contents = render_files(decode(Report, report), names)
    return {kind: contents[name].decode("utf-8") for kind, name in names.items()}


def test_file_names_follow_name_and_formats() -> None:
    assert file_names("a.b", REPORT_FORMATS) == {
        "html": "a.b.html",
        "json": "a.b.json",
        "csv": "a.b.csv",
        "hosts_csv": "a.b-hosts.csv",
        "markdown": "a.b.md",
        "junit": "a.b.xml",
    }
    assert file_names("x", ["junit", "junit"]) == {"junit": "x.xml"}


def test_json_equals_the_report(files: dict[str, str], report: Body) -> None:
    assert json.loads(files["json"]) == report


def test_csv_has_one_row_for_each_move_and_each_host(files: dict[str, str], report: Body) -> None:
    rows = list(csv.DictReader(io.StringIO(files["csv"])))
    assert [row["id"] for row in rows] == [move["id"] for move in report["moves"]]
    for row, move in zip(rows, report["moves"], strict=True):
        assert row["downtime_ms"] == ("" if move["downtime_ms"] is None else str(move["downtime_ms"]))
        assert json.loads(row["samples"]) == move["samples"]
        assert json.loads(row["evidence"]) == move["evidence"]
    hosts = list(csv.DictReader(io.StringIO(files["hosts_csv"])))
    assert [(host["name"], host["safe_to_reboot"]) for host in hosts][:2] == [("kvm1", "true"), ("kvm2", "false")]


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)"])
def test_names_in_csv_do_not_become_formulas(empty: Ledger, name: str) -> None:
    nights.arrived(empty, name, "kvm1", "kvm2", 0, 1000, 10)
    (row,) = csv.DictReader(io.StringIO(moves_as_csv(decode(Report, report_of(empty)))))
    assert row["domain"] == f"'{name}"


def test_junit_counts_failures_errors_and_skipped(files: dict[str, str], report: Body) -> None:
    root = ET.fromstring(files["junit"])
    counts = report["counts"]
    assert root.get("tests") == str(counts["records"]) == str(len(list(root.iter("testcase"))))
    assert root.get("failures") == str(counts["refused"] + counts["cancelled"] + counts["failed"]) == str(len(list(root.iter("failure"))))
    assert root.get("errors") == str(counts["uncertain"]) == str(len(list(root.iter("error"))))
    assert root.get("skipped") == str(counts["under_way"])
    kvm1 = next(suite for suite in root if suite.get("name") == "kvm1")
    assert kvm1.find("properties/property[@name='safe_to_reboot']").get("value") == "true"
    refusal = next(case for case in root.iter("testcase") if case.get("name") == "gpu1: kvm2 → kvm5").find("failure")
    assert "vfio" in refusal.get("message")


def test_markdown_has_one_row_for_each_move(files: dict[str, str], report: Body) -> None:
    moves = files["markdown"].split("## Moves\n")[1].strip().splitlines()[2:]
    assert [row.split(" | ")[-1].removesuffix(" |") for row in moves] == [move["id"] for move in report["moves"]]
    for section in ("Hosts", "Downtime", "Not moved", "Forced", "Evacuations"):
        assert f"## {section}\n" in files["markdown"]
    assert "fence\\_ipmilan" in files["markdown"]


def test_markup_in_a_name_is_escaped_in_markdown(files: dict[str, str]) -> None:
    assert nights.MARKUP not in files["markdown"]
    assert "\\<img src=x" in files["markdown"]
    assert "\\</script\\>" in files["markdown"]


def test_names_cannot_break_out_of_the_data_of_the_page(files: dict[str, str], report: Body) -> None:
    found = {name: json.loads(text) for name, text in DATA.findall(files["html"])}
    data = found["report"]
    rows = [dict(zip(data["moves"]["columns"], row, strict=True)) for row in data["moves"]["rows"]]
    assert [row["domain"]["name"] for row in rows] == [move["domain"]["name"] for move in report["moves"]]
    details = [detail for name in found if name.startswith("details-") for detail in found[name]]
    assert [detail["samples"]["remaining_bytes"] for detail in details] == [[one["remaining_bytes"] for one in move["samples"]] for move in report["moves"]]
    for strange in (nights.MARKUP, nights.BREAKOUT):
        assert strange not in files["html"]


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "]]>", "\u2028", "\ud800", "\x00", "&lt;"])
def test_data_elements_are_ascii_without_brackets(text: str) -> None:
    element = data_element("x", {"name": text})
    inner = element.removeprefix('<script type="application/json" id="x">').removesuffix("</script>")
    assert inner.isascii()
    assert not set("<>&") & set(inner)
    assert json.loads(inner) == {"name": text}


def test_names_with_control_characters_or_surrogates_can_be_written(empty: Ledger) -> None:
    record = nights.begun("a\x1b[2J\u202e\x00", "kvm1", "kvm2", 0)
    nights.keep(empty, dataclasses.replace(record, source=dataclasses.replace(record.source, host="kvm\ud800")))
    document = report_of(empty)
    for content in render_files(decode(Report, {**document, "title": "a\ud800"}), file_names("x", REPORT_FORMATS)).values():
        assert b"\x1b" not in content
        assert b"\x00" not in content
    ET.fromstring(render_files(decode(Report, document), file_names("x", ["junit"]))["x.xml"])


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [
        (None, "–"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1050, "1.1 s"),
        (59_949, "59.9 s"),
        (60_000, "1 min 0 s"),
        (3_599_999, "59 min 59 s"),
        (7_260_000, "2 h 1 min"),
    ],
)
def test_durations_are_formatted(milliseconds: int, said: str) -> None:
    assert formats.format_duration(milliseconds) == said


@pytest.mark.parametrize(
    ("size", "said"), [(None, "–"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1280, "1.3 KiB"), (1024**3, "1.0 GiB"), (1024**6, "1024.0 PiB")]
)
def test_sizes_are_formatted(size: int, said: str) -> None:
    assert formats.format_bytes(size) == said
