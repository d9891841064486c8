# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of fault scenarios: a table a topic, in which a scenario that was not run keeps the result that it had."""

from __future__ import annotations

import re
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

HEAD = """# Fault scenarios

Written by `make faults` (`make faults ONLY='disks/*'` runs some of them). Each scenario is a short text, to which its title links: guests, steps, faults at
named moments, and the exact expected result. [How to write one](../tests/faults/README.md). At the end of every scenario, no guest may run twice or be
lost, no memory may be lost, every record must be closed when it is settled, nothing may be left on a host, and the audit chain must be valid.
"""
NEVER = "not run yet"
CASE = re.compile(r"test_scenario\[(?P<name>.+)\]")
ROW = re.compile(r"^\| \[.*\]\(\.\./tests/faults/(?P<name>[^)]+)\.yml\) \|.*\| (?P<result>[^|]*) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Text:
    """What the page says of a scenario: C(name) is its topic and its file's name."""

    name: str
    title: str
    shows: str


def texts_in(folder: Path) -> list[Text]:
    """Return all scenarios, by topic and name."""
    documents = {path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*/*.yml"))}
    return [Text(f"{path.parent.name}/{path.stem}", found["title"], " ".join(found["shows"].split())) for path, found in documents.items()]


def outcomes_in(report: Path) -> dict[str, bool]:
    """Return the names of the scenarios that a JUnit file tells of, and whether each passed."""
    outcomes: dict[str, bool] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        match = CASE.fullmatch(case.get("name", ""))
        if match and case.find("skipped") is None:
            # One that failed in its tear-down stands there twice.
            outcomes[match["name"]] = outcomes.get(match["name"], True) and case.find("failure") is None and case.find("error") is None
    return outcomes


def where() -> str:
    """Return the day (UTC) and what the scenarios ran on."""
    versions = [_version("libvirtd", "libvirt"), _version("qemu-system-x86_64", "QEMU")]
    return f"{time.strftime('%Y-%m-%d', time.gmtime())}, {', '.join(versions)}"


def rewrite(page: Path, texts: Sequence[Text], outcomes: Mapping[str, bool], when: str) -> None:
    """Write the page: those that were run with their results, the others with what stood there."""
    before = {match["name"]: match["result"] for match in ROW.finditer(page.read_text(encoding="utf-8"))} if page.exists() else {}
    told = {name: f"{'passed' if passed else '**failed**'}, {when}" for name, passed in outcomes.items()}
    sections = [_section(topic, [text for text in texts if text.name.startswith(f"{topic}/")], {**before, **told}) for topic in _topics(texts)]
    page.write_text("\n".join([HEAD, *sections]), encoding="utf-8")


def _topics(texts: Sequence[Text]) -> list[str]:
    return list(dict.fromkeys(text.name.partition("/")[0] for text in texts))


def _section(topic: str, texts: Sequence[Text], results: Mapping[str, str]) -> str:
    rows = [f"| [{_cell(text.title)}](../tests/faults/{text.name}.yml) | {_cell(text.shows)} | {results.get(text.name, NEVER)} |" for text in texts]
    title = topic.replace("-", " ").capitalize()
    return "\n".join([f"## {title}", "", "| scenario | what it shows | last result |", "| --- | --- | --- |", *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _version(program: str, name: str) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"\d+(?:\.\d+)+", said)
    return f"{name} {match[0] if match else 'of an unknown version'}"
