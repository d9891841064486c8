# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection's public interface as C(ansible-doc) tells it: what may be given and what comes back, without a word of description.

As a script it writes that to a file: C(make interface).
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import typing as t

import yaml

from .conftest import Body, Documents, ask_ansible_doc, nested

KEPT = pathlib.Path(__file__).with_name("interface.yml")
OURS = "kvmfleet.migration."
HEAD = "---\n# What users may rely on, by kind of plugin and name. Written by: make interface\n# yamllint disable rule:line-length\n"
# How an action plugin and its module speak with each other.
PRIVATE = ("_definitions", "_work")
# What of an option or a return value is a promise, beside its default.
PROMISES = ("type", "elements", "required", "choices", "aliases")


class Line(dict[str, t.Any]):
    """What is written in one line."""


class Dumper(yaml.SafeDumper):
    """One line an option or value, so that a difference shows what has changed."""


Dumper.add_representer(Line, lambda dumper, line: dumper.represent_mapping("tag:yaml.org,2002:map", line, flow_style=True))


def text(documents: dict[str, Documents]) -> str:
    """Return the interface as YAML: by kind of plugin and by name; inner options and values have their path for a name."""
    plugins = {
        kind: {name.removeprefix(OURS): _plugin(kind, found[name]) for name in sorted(found) if name.startswith(OURS)}
        for kind, found in sorted(documents.items())
    }
    return HEAD + yaml.dump({kind: found for kind, found in plugins.items() if found}, Dumper=Dumper, sort_keys=False, width=sys.maxsize, allow_unicode=True)


def _plugin(kind: str, document: Body) -> Body:
    if kind == "role":
        return {entry: _lines(body["options"], "options") for entry, body in sorted(document["entry_points"].items())}
    doc = document["doc"]
    told = {
        "attributes": Line({name: attribute["support"] for name, attribute in sorted((doc.get("attributes") or {}).items())}),
        "options": _lines(doc.get("options") or {}, "suboptions"),
        "returns": _lines(document.get("return") or {}, "contains"),
    }
    return {part: content for part, content in told.items() if content}


def _lines(options: dict[str, Body], inner: str) -> Body:
    return {path: _promises(option) for path, option in sorted(nested(options, inner)) if path not in PRIVATE}


def _promises(option: Body) -> Line:
    told = Line({key: option[key] for key in PROMISES if option.get(key)})
    if "choices" in told:
        told["choices"] = list(told["choices"])
    if "default" in option:
        told["default"] = option["default"]
    return told


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(sys.argv[1]).write_text(text(ask_ansible_doc(pathlib.Path(folder))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
