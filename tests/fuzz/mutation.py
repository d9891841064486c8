# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Strategies that begin with something valid and spoil it: documents by their structure, bytes by themselves."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

Value = t.Any
Path = tuple[t.Any, ...]

_MOST = 4
_DEEP = 400
_UUID = "11111111-0000-4000-8000-000000000001"


def _nested(depth: int) -> Value:
    value: Value = []
    for _level in range(depth):
        value = [value]
    return value


# What has broken parsers before; most cases are made of these, the others are of no known kind.
_NASTY: tuple[Value, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 255, 4096, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**18, 10**40, 10**400, 10**4000, -(10**400),
    0.0, -0.0, 0.5, 1e-320, 1e16, 1e308, float("inf"), float("-inf"), float("nan"),
    "", " ", "0", "1", "-1", "1.5", "1e5", "1_0", "0x10", "010", "²", "٣", "9" * 5000, "nan", "inf", "true", "yes", "null", "~", "off", "on",
    "\0", "\n", "\r\n", "\u2028", "\x1b[31m", "\ud800", "\udcff", "é", "\U0001f600", "a" * 300, "a" * 70000, "x\0y", "%s%n", "{{ 1 }}", "$(id)", "';--",
    ".", "..", "/", "../../etc/passwd", "/etc/passwd", "//", "a/b", "~root", "-o", "--help",
    _UUID, _UUID.upper(), _UUID.replace("-", ""), f"{{{_UUID}}}", f"urn:uuid:{_UUID}", _UUID + "\n",
    "2026-11-21T03:00:00.000Z", "2026-11-21", "2026-11-21T03:00:00", "2026-13-41T99:00:00.000Z", "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59.999-23:59", "20261121",
    "qemu:///system", "qemu+ssh://kvm2/system", "tcp://[::1", "http://[", "tcp://a:99999999", "file:///etc", "0-3,^2",
    "0-99999999999", "3-1", "^^", "-", "1-", ",",
    [], {}, [[]], [{}], {"": None}, {"a": {}}, [None], ["a", 1], _nested(_DEEP), list(range(300)), ["x"] * 300,
)  # fmt: skip
_ODD = st.one_of(st.integers(), st.floats(), st.text(max_size=20), st.binary(max_size=8).map(lambda raw: raw.decode("utf-8", "surrogateescape")))
_REPLACEMENTS = st.one_of(st.sampled_from(_NASTY), st.sampled_from(_NASTY), _ODD)


def mutated(*documents: Value) -> st.SearchStrategy[Value]:
    """Return one of the documents, spoilt in up to four places: values of another type, lost, renamed, doubled, or put where another was."""
    return st.composite(_mutated)(documents)


def _mutated(draw: st.DrawFn, documents: Sequence[Value]) -> Value:
    document = documents[draw(st.integers(0, len(documents) - 1))] if len(documents) > 1 else documents[0]
    for _change in range(draw(st.integers(0, _MOST))):
        paths = _paths(document)
        path = paths[draw(st.integers(0, len(paths) - 1))]
        change = draw(st.sampled_from(_CHANGES))
        document = change(draw, document, path, paths)
    return document


def _paths(document: Value, path: Path = ()) -> list[Path]:
    found = [path]
    if isinstance(document, (dict, list)) and len(path) < _MOST * 4:
        parts = document.items() if isinstance(document, dict) else enumerate(document)
        for key, part in parts:
            found += _paths(part, (*path, key))
    return found


def value_at(document: Value, path: Path) -> Value:
    """Return what stands at the path."""
    for key in path:
        document = document[key]
    return document


def _edited(document: Value, path: Path, edit: Callable[[Value], Value]) -> Value:
    """Return the document with what stands at the path replaced; of the old one only what is on the way is copied."""
    if not path:
        return edit(document)
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = _edited(document[path[0]], path[1:], edit)
    return copy


def _replace(draw: st.DrawFn, document: Value, path: Path, paths: Sequence[Path]) -> Value:
    value = draw(_REPLACEMENTS)
    return _edited(document, path, lambda _old: value)


def _drop(draw: st.DrawFn, document: Value, path: Path, paths: Sequence[Path]) -> Value:
    if not path:
        return document
    return _edited(document, path[:-1], lambda parent: _without(parent, path[-1]))


def _without(parent: Value, key: t.Any) -> Value:
    if isinstance(parent, dict):
        return {other: part for other, part in parent.items() if other != key}
    return [part for number, part in enumerate(parent) if number != key]


def _rename(draw: st.DrawFn, document: Value, path: Path, paths: Sequence[Path]) -> Value:
    if not path or not isinstance(path[-1], str):
        return document
    name = draw(st.one_of(st.sampled_from(["", "schema", "id", "uuid", "name", "__class__", "\ud800", path[-1].upper(), path[-1] + "s"]), st.text(max_size=8)))
    return _edited(document, path[:-1], lambda parent: {**_without(parent, path[-1]), name: parent[path[-1]]})


def _double(draw: st.DrawFn, document: Value, path: Path, paths: Sequence[Path]) -> Value:
    if not path or not isinstance(path[-1], int):
        return document
    times = draw(st.sampled_from((1, 2, 100)))
    return _edited(document, path[:-1], lambda parent: [*parent, *[parent[path[-1]]] * times])


def _splice(draw: st.DrawFn, document: Value, path: Path, paths: Sequence[Path]) -> Value:
    value = value_at(document, paths[draw(st.integers(0, len(paths) - 1))])
    return _edited(document, path, lambda _old: value)


_Change = Callable[[st.DrawFn, Value, Path, Sequence[Path]], Value]
_CHANGES: tuple[_Change, ...] = (_replace, _replace, _replace, _drop, _rename, _double, _splice)

_TOKENS = (
    b"", b"\0", b"\n", b"\r", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"{", b"}", b"[", b"]", b'"', b",", b":", b"<", b">", b"/>", b"&", b"&amp;", b"&#0;",
    b"&#xd800;",
    b"null", b"true", b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"9" * 5000, b'"\\ud800"', b'"\\u0000"', b"\\",
    b"[" * 100000, b'{"a":' * 5000, b"<a>" * 3000,
    b"<!DOCTYPE d [<!ENTITY a 'aaaa'>]>", b"<![CDATA[", b"<!--", b"<?xml version='1.0' encoding='utf-16'?>", b"xmlns='x'",
    b"\x1b[0m", b"\x00" * 64, b"a" * 70000,
)  # fmt: skip


def damaged(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Return one of the seeds, spoilt in up to four places: bytes changed, cut, doubled, torn off, or taken from another seed; now and then any bytes."""
    return st.one_of(*[st.composite(_damaged)(seeds)] * 8, st.binary(max_size=200))


def _damaged(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    data = seeds[draw(st.integers(0, len(seeds) - 1))]
    for _change in range(draw(st.integers(0, _MOST))):
        begin = draw(st.integers(0, len(data)))
        data = draw(st.sampled_from(_HARMS))(draw, data, begin, seeds)
    return data


def _cut_off(draw: st.DrawFn, data: bytes, begin: int, seeds: Sequence[bytes]) -> bytes:
    return data[:begin]


def _take_out(draw: st.DrawFn, data: bytes, begin: int, seeds: Sequence[bytes]) -> bytes:
    return data[:begin] + data[begin + draw(st.integers(1, 40)) :]


def _put_in(draw: st.DrawFn, data: bytes, begin: int, seeds: Sequence[bytes]) -> bytes:
    return data[:begin] + draw(st.one_of(st.sampled_from(_TOKENS), st.binary(max_size=6))) + data[begin:]


def _overwrite(draw: st.DrawFn, data: bytes, begin: int, seeds: Sequence[bytes]) -> bytes:
    token = draw(st.one_of(st.sampled_from(_TOKENS), st.binary(min_size=1, max_size=3)))
    return data[:begin] + token + data[begin + len(token) :]


def _repeat(draw: st.DrawFn, data: bytes, begin: int, seeds: Sequence[bytes]) -> bytes:
    end = begin + draw(st.integers(1, 60))
    return data[:begin] + data[begin:end] * draw(st.sampled_from((2, 3, 50))) + data[end:]


def _cross(draw: st.DrawFn, data: bytes, begin: int, seeds: Sequence[bytes]) -> bytes:
    other = seeds[draw(st.integers(0, len(seeds) - 1))]
    return data[:begin] + other[draw(st.integers(0, len(other))) :]


_Harm = Callable[[st.DrawFn, bytes, int, Sequence[bytes]], bytes]
_HARMS: tuple[_Harm, ...] = (_cut_off, _take_out, _put_in, _overwrite, _repeat, _cross)


def text_of(value: Value) -> str:
    """Return the JSON text of a value, however deep it is: numbers that are none and lone surrogates included."""
    return json.dumps(value, separators=(",", ":"))
