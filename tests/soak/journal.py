# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was done, a line of JSON for each action; the same file is what a replay plays."""

from __future__ import annotations

import collections
import json
import pathlib
import time
import typing as t

from .actions import Action, from_json

LAST = 20


class Journal:
    """:arg head: what the soak was begun with, its first line."""

    def __init__(self, file: pathlib.Path, head: t.Mapping[str, t.Any]) -> None:
        self._file = file
        self._began = time.monotonic()
        self._last: collections.deque[str] = collections.deque(maxlen=LAST)
        self.count = 0
        file.write_text(json.dumps({"soak": dict(head)}) + "\n", encoding="utf-8")

    def begin(self) -> None:
        """Count seconds from now on."""
        self._began = time.monotonic()

    def write(self, action: Action, did: str) -> str:
        """Keep an action, as it was carried out, and return the line for people."""
        self.count += 1
        at = round(time.monotonic() - self._began, 1)
        self._append({"n": self.count, "at": at, **action.as_json(), "did": did})
        line = f"{self.count:5} {at:7.1f} s  {action}{f'  → {did}' if did else ''}"
        self._last.append(line)
        return line

    def note(self, text: str) -> None:
        """Keep what is no action."""
        self._append({"at": round(time.monotonic() - self._began, 1), "note": text})

    def last(self) -> list[str]:
        """Return the last actions, for people."""
        return list(self._last)

    def _append(self, line: t.Mapping[str, t.Any]) -> None:
        with open(self._file, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


def read(file: pathlib.Path) -> list[Action]:
    """Return the actions of a journal in their order. Raises L(ValueError) for a file that is none."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines or "soak" not in lines[0]:
        raise ValueError(f"{file} is no journal of a soak")
    return [from_json(line) for line in lines if "verb" in line]
