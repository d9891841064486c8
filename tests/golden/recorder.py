# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the two halves of the collection said to each other while a story was told, and what was decided about moves."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import decide

Document = t.Dict[str, t.Any]


class Recorder:
    """Keeps documents by kind in a folder: tasks in child processes write there, too. Made before anything of the collection decides about moves."""

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir()
        self._folder = folder
        decide.decide_move = self._decisions(decide.decide_move)

    def write(self, kind: str, document: Document) -> None:
        path = self._folder / f"{time.time_ns()}-{os.getpid()}-{kind}.json"
        path.write_text(json.dumps(document, default=_plain), encoding="utf-8")

    def read(self, kind: str) -> t.List[Document]:
        """Return what was written of a kind, oldest first."""
        return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(self._folder.glob(f"*-{kind}.json"))]

    def _decisions(self, original: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        @functools.wraps(original)
        def recorded(request: t.Any, source: str, survey: t.Any, domain: t.Any, stored: t.Any, by: str) -> t.Any:
            decision = original(request, source, survey, domain, stored, by)
            asked = {"request": request, "source": source, "survey": encode(survey), "domain": encode(domain), "stored": stored}
            self.write("decision", {**asked, "decision": decision})
            return decision

        return recorded


def _plain(value: t.Any) -> t.Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"is": type(value).__name__, **_fields(value)}
    return str(value)


def _fields(value: t.Any) -> t.Any:
    """Return a dataclass as an object of JSON; a record as it is everywhere."""
    if isinstance(value, MoveRecord):
        return encode(value)
    if not dataclasses.is_dataclass(value):
        return value
    return {field.name: _fields(getattr(value, field.name)) for field in dataclasses.fields(value)}
