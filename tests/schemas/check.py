# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks documents against the JSON Schemas of the collection, as another program would."""

from __future__ import annotations

import functools
import json
import typing as t
from pathlib import Path

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "schemas"


def check_document(name: str, document: t.Any, is_strict: bool = True) -> None:
    """Fail unless a document fulfills the schema in that file.

    :arg is_strict: a key that the schema does not name is a failure too, although the schema permits it: this version writes none.
    """
    errors = find_errors(name, document, is_strict)
    assert not errors, "\n".join(errors)


def find_errors(name: str, document: t.Any, is_strict: bool = False) -> list[str]:
    """Return what is wrong in a document, with the path of each error."""
    return [f"{error.json_path}: {error.message}" for error in _validator(name, is_strict).iter_errors(document)]


def read_schema(name: str) -> dict[str, t.Any]:
    """Return the schema in that file."""
    return t.cast("dict[str, t.Any]", json.loads((FOLDER / name).read_text(encoding="utf-8")))


@functools.cache
def _validator(name: str, is_strict: bool) -> Draft202012Validator:
    schema = read_schema(name)
    if is_strict:
        for definition in schema["$defs"].values():
            definition["additionalProperties"] = False
    return Draft202012Validator(schema)
