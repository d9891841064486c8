# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The files of a report in the requested formats, written completely or not at all.

The HTML page needs no network: it contains style, code, chart library and data.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ansible_collections.kvmfleet.migration.plugins.module_utils._files import publish_file
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, InvalidArgument, printable_line

from .document import Report, summary_text
from .formats import as_markdown, kinds_text, scope_text
from .junit import as_junit
from .moves import NOT_MOVED, OUTCOMES, SAMPLE_KEYS, ReportedMove
from .rates import group_rates
from .spreadsheets import hosts_as_csv, moves_as_csv

PAGE = Path(__file__).parent / "page"
LIBRARY = PAGE / "echarts.min.js"
# In this order, because each file uses the previous ones.
SCRIPTS = (
    "dom",
    "words",
    "data",
    "table",
    "charts",
    "timeline",
    "rates",
    "convergence",
    "downtimes",
    "overview",
    "move",
    "tables",
    "fleet_check",
    "runs",
    "balances",
    "main",
)
# The details of moves, which are decoded only when they are opened; the number of moves in one block of the file.
DETAILS = ("policy", "acts", "history", "samples", "evidence", "rewritten")
DETAILS_TOGETHER = 100
# Without JavaScript the page shows the report as text, with at most this number of moves.
MOST_AS_TEXT = 200
# Constants that the page's code shares with this code.
_CONSTANTS: JsonObject = {"details_together": DETAILS_TOGETHER, "outcomes": {"all": OUTCOMES, "not_moved": NOT_MOVED}}

_PAGE_SLOT = re.compile(r"@@([A-Z]+)@@")


def as_html(report: Report) -> str:
    """Return the page. Its content security policy permits only its own scripts and styles, by hash; nothing is fetched."""
    style = (PAGE / "report.css").read_text(encoding="utf-8")
    code = _page_code()
    library = LIBRARY.read_text(encoding="utf-8")
    slots = {
        "TITLE": html.escape(printable_line(report.title)),
        "SUMMARY": html.escape(summary_text(report)),
        "POLICY": _content_policy(style, library, code),
        "STYLE": style,
        "LIBRARY": library,
        "CODE": code,
        "DATA": data_element("report", _page_data(report)),
        "DETAILS": "\n".join(_detail_elements(report.moves)),
        "TEXT": html.escape(as_markdown(report, MOST_AS_TEXT)),
    }
    return _PAGE_SLOT.sub(lambda match: slots[match[1]], (PAGE / "report.html").read_text(encoding="utf-8"))


def data_element(element_id: str, value: Json) -> str:
    """Return a script element with data that no text can break out of: it contains no angle brackets and only ASCII."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="{element_id}">{text}</script>'


def _page_code() -> str:
    """Return the page's own code as one script with a scope of its own."""
    parts = [(PAGE / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return "(() => {\n'use strict';\n" + "\n".join(parts) + "})();\n"


def _content_policy(style: str, *scripts: str) -> str:
    allowed = {"script-src": [_source_hash(script) for script in scripts], "style-src": [_source_hash(style)]}
    parts = [f"{name} {' '.join(sources)}" for name, sources in allowed.items()]
    return "; ".join(["default-src 'none'", *parts, "base-uri 'none'", "form-action 'none'"])


def _source_hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode('utf-8')).digest()).decode('ascii')}'"


def _page_data(report: Report) -> JsonObject:
    """Return the data that the page reads at once: without the details of moves, and with the rates by the indexes of moves."""
    rates = encode(group_rates(report.moves))
    words = {"about": scope_text(report), "kinds": kinds_text(report.counts)}
    return {**report.as_json(), "moves": _moves_as_columns(report.moves), "rates": rates, **words, **_CONSTANTS}


def _moves_as_columns(moves: Sequence[ReportedMove]) -> JsonObject:
    """Return the moves without their details as rows below column names, because repeated names would be most of the file."""
    documents = [move.as_json() for move in moves]
    names = [key for key in documents[0] if key not in DETAILS] if documents else []
    return {"columns": names, "rows": [[document[name] for name in names] for document in documents]}


def _detail_elements(moves: Sequence[ReportedMove]) -> list[str]:
    together = [moves[first : first + DETAILS_TOGETHER] for first in range(0, len(moves), DETAILS_TOGETHER)]
    return [data_element(f"details-{number}", [_move_details(move) for move in some]) for number, some in enumerate(together)]


def _move_details(move: ReportedMove) -> JsonObject:
    samples = {key: [sample[key] for sample in move.samples] for key in SAMPLE_KEYS}
    return {**{key: getattr(move, key) for key in DETAILS}, "samples": samples}


def check_report_name(name: str) -> str:
    """Return the name of a file without its ending. Raises L(InvalidArgument) for any other value."""
    if not name.strip(".") or "/" in name or not name.isprintable():
        raise InvalidArgument(f"name is {name!r}, which cannot be the name of a file.", "No report was written.")
    return name


def write_report(folder: str, files: Mapping[str, bytes], mode: int) -> None:
    """Write these files into the folder, which is created if it is missing (0700). A reader sees the old file or the new one.

    Raises L(Internal), which names the folder, if a file cannot be written; the files before it are new, the others are unchanged.
    """
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        for name, content in files.items():
            publish_file(os.path.join(folder, name), content, mode)
    except OSError as error:
        raise Internal(f"The report cannot be written to {folder}: {error.strerror}.", "Existing files are complete, in the old or the new version.") from error


_FILE_ENDINGS: Mapping[str, Mapping[str, str]] = {
    "html": {"html": ".html"},
    "json": {"json": ".json"},
    "csv": {"csv": ".csv", "hosts_csv": "-hosts.csv"},
    "markdown": {"markdown": ".md"},
    "junit": {"junit": ".xml"},
}
_RENDERERS: Mapping[str, Callable[[Report], str]] = {
    "html": as_html,
    "json": lambda report: json.dumps(report.as_json()) + "\n",
    "csv": moves_as_csv,
    "hosts_csv": hosts_as_csv,
    "markdown": as_markdown,
    "junit": as_junit,
}


def file_names(name: str, formats: Sequence[str]) -> dict[str, str]:
    """Return the names of the files by their content: C(csv) are two, C(csv) and C(hosts_csv)."""
    return {kind: f"{name}{ending}" for wanted in dict.fromkeys(formats) for kind, ending in _FILE_ENDINGS[wanted].items()}


def render_files(report: Report, names: Mapping[str, str]) -> dict[str, bytes]:
    """Return the content of each file, by its name."""
    return {name: _RENDERERS[kind](report).encode("utf-8") for kind, name in names.items()}
