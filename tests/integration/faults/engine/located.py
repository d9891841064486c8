# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""YAML whose mappings know where they stand, so that a mistake in a text is named with its file and line."""

from __future__ import annotations

import pathlib
import re
import typing as t

import yaml


class TextError(ValueError):
    """A scenario's text is not as it should be."""


class Located(dict[str, t.Any]):
    """A mapping of a text, with the file and the line that it begins in, and the lines of its keys."""

    def __init__(self, file: pathlib.Path, line: int) -> None:
        super().__init__()
        self.file = file
        self.line = line
        self.lines: dict[str, int] = {}

    def wrong(self, what: str, key: str | None = None) -> TextError:
        """Return the error to raise for something in here."""
        return TextError(f"{self.file}:{self.lines.get(key or '', self.line)}: {what}")

    def check_keys(self, known: t.Collection[str], what: str, needed: t.Collection[str] = ()) -> None:
        """Raise L(TextError) for a key that is not known, or that is missing."""
        for key in self:
            if key not in known:
                raise self.wrong(f"{what} has no key '{key}'. It has: {', '.join(sorted(known))}.", key)
        for key in needed:
            if key not in self:
                raise self.wrong(f"{what} needs the key '{key}'.")


class _Loader(yaml.SafeLoader):
    """YAML 1.2's idea of a boolean: C(on) is a word."""

    file = pathlib.Path()

    def mapping(self, node: yaml.MappingNode) -> Located:
        found = Located(self.file, node.start_mark.line + 1)
        for key_node, value_node in node.value:
            key = str(self.construct_object(key_node))
            found.lines[key] = key_node.start_mark.line + 1
            if key in found:
                raise found.wrong(f"the key '{key}' stands there twice", key)
            found[key] = self.construct_object(value_node, deep=True)
        return found


_Loader.add_constructor("tag:yaml.org,2002:map", lambda loader, node: loader.mapping(node))
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _word in ("true", "false"):
    _Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), [_word[0]])


def load(file: pathlib.Path) -> Located:
    """Return the mapping that a file holds. Raises L(TextError)."""
    loader = _Loader(file.read_text(encoding="utf-8"))
    loader.file = file
    try:
        document = loader.get_single_data()
    except yaml.YAMLError as error:
        raise TextError(f"{file}: {error}") from error
    finally:
        loader.dispose()
    if not isinstance(document, Located):
        raise TextError(f"{file}: it is no mapping")
    return document
