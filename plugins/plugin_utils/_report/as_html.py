# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A report as one HTML file that needs no network: style, code, chart library and data are all in it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import typing as t
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable

from .._ledger.store import Body
from .as_markdown import as_markdown
from .document import summary_of
from .moves import SAMPLE_KEYS
from .outcomes import NOT_MOVED, OUTCOMES
from .words import scope

PAGE = Path(__file__).parent / "page"
LIBRARY = PAGE / "echarts.min.js"
# In this order: each uses those before it.
SCRIPTS = ("dom", "words", "data", "table", "charts", "timeline", "convergence", "downtimes", "overview", "move", "tables", "main")
# Of a move, what is read only when somebody looks at it; so many moves share a place in the file.
DETAILS = ("policy", "acts", "history", "samples", "evidence")
DETAILS_TOGETHER = 100
# Without JavaScript the page shows the report as text, and that of no more moves.
MOST_AS_TEXT = 200
# What the page's code has to know of the code here.
_CONSTANTS = {"details_together": DETAILS_TOGETHER, "outcomes": {"all": OUTCOMES, "not_moved": NOT_MOVED}}

_SLOT = re.compile(r"@@([A-Z]+)@@")


def as_html(document: Body) -> str:
    """Return the page. Its content security policy lets run what is in it by its hash, and nothing else; nothing is fetched."""
    style = (PAGE / "report.css").read_text(encoding="utf-8")
    code = _code()
    library = LIBRARY.read_text(encoding="utf-8")
    slots = {
        "TITLE": html.escape(printable(document["title"])),
        "SUMMARY": html.escape(summary_of(document)),
        "POLICY": _policy(style, library, code),
        "STYLE": style,
        "LIBRARY": library,
        "CODE": code,
        "DATA": data_element("report", {**document, "moves": _columns(document["moves"]), "about": scope(document), **_CONSTANTS}),
        "DETAILS": "\n".join(_details(document["moves"])),
        "TEXT": html.escape(as_markdown(document, MOST_AS_TEXT)),
    }
    return _SLOT.sub(lambda match: slots[match[1]], (PAGE / "report.html").read_text(encoding="utf-8"))


def data_element(element_id: str, value: t.Any) -> str:
    """Return a script element with data, out of which no text in it can break: no bracket and no character beyond ASCII is in it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="{element_id}">{text}</script>'


def _code() -> str:
    """Return the page's own code as one script whose names are its own."""
    parts = [(PAGE / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return "(() => {\n'use strict';\n" + "\n".join(parts) + "})();\n"


def _policy(style: str, *scripts: str) -> str:
    allowed = {"script-src": [_hash(script) for script in scripts], "style-src": [_hash(style)]}
    parts = [f"{name} {' '.join(sources)}" for name, sources in allowed.items()]
    return "; ".join(["default-src 'none'", *parts, "base-uri 'none'", "form-action 'none'"])


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode('utf-8')).digest()).decode('ascii')}'"


def _columns(moves: Sequence[Body]) -> Body:
    """Return the moves without their details, as rows under names: names would be most of the file."""
    names = [key for key in moves[0] if key not in DETAILS] if moves else []
    return {"columns": names, "rows": [[move[name] for name in names] for move in moves]}


def _details(moves: Sequence[Body]) -> list[str]:
    together = [moves[first : first + DETAILS_TOGETHER] for first in range(0, len(moves), DETAILS_TOGETHER)]
    return [data_element(f"details-{number}", [_detail(move) for move in some]) for number, some in enumerate(together)]


def _detail(move: Body) -> Body:
    samples = {key: [sample[key] for sample in move["samples"]] for key in SAMPLE_KEYS}
    return {**{key: move[key] for key in DETAILS}, "samples": samples}
