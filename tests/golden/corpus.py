# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The corpora, and the records in them, wherever they stand."""

from __future__ import annotations

import functools
import json
import typing as t
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent
# Each folder whose name begins with a version.
CORPORA = tuple(sorted(GOLDEN.glob("[0-9]*")))
# Keys that every record has, and nothing else.
SIGNATURE = {"schema", "generation", "history", "progress", "acts"}

Document = t.Dict[str, t.Any]


def find_files(pattern: str) -> t.List[Path]:
    """Return files of all corpora; a pattern that finds none in one of them would test nothing there."""
    paths = {corpus: sorted(corpus.glob(pattern)) for corpus in CORPORA}
    assert all(paths.values()), pattern
    return [path for in_one in paths.values() for path in in_one]


def find_files_in_some(pattern: str) -> t.List[Path]:
    """Return files that not every corpus has."""
    paths = [path for corpus in CORPORA for path in sorted(corpus.glob(pattern))]
    assert paths, pattern
    return paths


def name_of(path: Path) -> str:
    return str(path.relative_to(GOLDEN))


def read_documents(pattern: str) -> t.List[t.Any]:
    """Return the JSON documents in such files: one, or one a line."""
    texts = [(path, path.read_text(encoding="utf-8")) for path in find_files(pattern)]
    return [json.loads(one) for path, text in texts for one in (text.splitlines() if path.suffix == ".jsonl" else [text])]


@functools.cache
def find_records() -> t.Tuple[t.Tuple[Path, Document], ...]:
    """Return each record of the corpora with the file that holds it: of ledgers, state files, orders and answers."""
    paths = [path for corpus in CORPORA for path in sorted(corpus.rglob("*.json*"))]
    found = [(path, record) for path in paths for value in _values_of(path) for record in _records_in(value)]
    assert found, GOLDEN
    return tuple(found)


def _values_of(path: Path) -> t.Iterator[t.Any]:
    """Yield the JSON values of a file: one, or one a line. Files with a line that is torn on purpose have none."""
    text = path.read_text(encoding="utf-8")
    try:
        yield from [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else [json.loads(text)]
    except ValueError:
        return


def _records_in(value: t.Any) -> t.Iterator[Document]:
    """Yield the records in a JSON value; text that is JSON itself, as etcd's values are, is looked into as well."""
    if isinstance(value, str) and value.startswith("{"):
        yield from _records_in(json.loads(value))
    elif isinstance(value, dict):
        if value.keys() >= SIGNATURE:
            yield value
        for one in value.values():
            yield from _records_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from _records_in(one)
