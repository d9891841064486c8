# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reads JSON objects into frozen dataclasses, and writes them back.

The annotations of a dataclass are its schema: a key of the JSON object has the name of its field, or the one in C(KEYS).

- A field without a default is a required key; C(Optional) permits null.
- A field whose default is C(None) or C(ABSENT) is an optional key, which is omitted again when the object is written. With C(None), null is refused.
- Numbers are whole, not negative and below 2**64; C(SignedInt) permits negative ones above -2**63, C(float) fractions.
- C(Json) is any value, kept unchanged.
- Keys without a field are kept in the field C(extra), and written back. A dataclass without that field refuses them.
- If C(IS_LENIENT) of a dataclass is true, the value of an optional key that has another form is also kept in C(extra), like a key without a field.
- If a dataclass has a method C(check), it is called after the object was read; it raises L(ShapeError).
- If C(IS_WHOLE) of a dataclass is true, all its keys are required, whatever defaults its constructor has.
- Fields in C(NEEDED) are required keys although they have a default.
- Dataclasses and lists of them in C(LAZY) are checked when the object is read, and decoded at their first use: most records are read for a few keys.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import math
import typing as t

if t.TYPE_CHECKING:
    Json = t.Union[None, bool, int, float, str, t.Sequence["Json"], t.Mapping[str, "Json"]]
    Decoded = t.Union[Json, "Absent", "Dataclass", t.Tuple["Decoded", ...], t.Mapping[str, "Decoded"]]
else:
    # The name of a recursive alias is resolved where it is used.
    Json = Decoded = object
JsonObject = t.Mapping[str, Json]

Decode = t.Callable[[Json], Decoded]
T = t.TypeVar("T")

EXTRA = "extra"
MOST = 2**64
# A dictionary is recognized at once; for any other mapping, its interface is checked.
_MAPPINGS = (dict, collections.abc.Mapping)
# Values of exactly these types are the same in JSON.
_SCALARS = frozenset({str, bool, int, float, type(None)})
# Of these, those that a field takes as they are, but for the bounds of numbers.
_TAKEN = frozenset({str, bool, int, type(None)})


class Absent(enum.Enum):
    """The type of C(ABSENT): the value of a field whose key is missing, if null has another meaning."""

    ABSENT = "absent"

    def __bool__(self) -> t.Literal[False]:
        return False


ABSENT = Absent.ABSENT

# The value of a key that may be missing, and may be null.
Maybe = t.Union[T, Absent, None]
SignedInt = t.NewType("SignedInt", int)


class Dataclass(t.Protocol):
    """Any dataclass."""

    __dataclass_fields__: t.ClassVar[t.Dict[str, t.Any]]


class ShapeError(ValueError):
    """A JSON value does not have the expected form.

    :arg path: where it is, e.g. C(source.host); empty for the whole document.
    :arg expected: the expected form, e.g. C(text).
    :arg found: the value; C(ABSENT) if it is missing.
    """

    def __init__(self, path: str, expected: str, found: t.Union[Json, Absent] = ABSENT) -> None:
        super().__init__(f"{path or 'the document'} must be {expected}")
        self.path = path
        self.expected = expected
        self.found = found

    def within(self, name: str) -> ShapeError:
        """Return the error of the value that contains this one under that key, or at that index of a list."""
        separator = "." if name and self.path and not self.path.startswith("[") else ""
        return ShapeError(f"{name}{separator}{self.path}", self.expected, self.found)


def decode(kind: t.Type[T], value: Json, path: str = "") -> T:
    """Return the dataclass that a JSON object represents.

    :arg path: the name of the object in errors, e.g. C(source).
    :raises ShapeError: it does not have the form of that dataclass.
    """
    try:
        return t.cast(T, _decoder_of(t.cast(t.Any, kind))(value))
    except ShapeError as exc:
        raise exc.within(path) from exc


def encode(value: object) -> t.Any:
    """Return the JSON value of a dataclass, or of a container of them. Containers of JSON are copied, not shared."""
    if type(value) in _SCALARS or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, _MAPPINGS):
        return {key: encode(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(one) for one in value]
    if isinstance(value, _Unread):
        return encode(value.value)
    return _encode_object(value) if dataclasses.is_dataclass(value) else value


def _encode_object(value: t.Any) -> t.Dict[str, t.Any]:
    written, attributes = {}, value.__dict__
    for name, key, default in _fields_of(t.cast(t.Any, type(value))):
        one = attributes[name]
        if default is dataclasses.MISSING or one is not default:
            written[key] = one if type(one) in _SCALARS else encode(one)
    for name, one in attributes.get(EXTRA, {}).items():
        written[name] = encode(one)
    return written


@functools.cache
def _fields_of(kind: t.Any) -> t.Tuple[t.Tuple[str, str, object], ...]:
    """Return the fields that are keys, each with its key and its default. The default of a required key is MISSING."""
    keys, is_whole = getattr(kind, "KEYS", {}), getattr(kind, "IS_WHOLE", False)
    listed = [field for field in dataclasses.fields(kind) if field.name != EXTRA]
    fields = [(field.name, keys.get(field.name, field.name), dataclasses.MISSING if is_whole else field.default) for field in listed]
    for name, _key, default in fields:
        if default not in (dataclasses.MISSING, None, ABSENT):
            raise TypeError(f"{kind.__name__}.{name}: a key that may be missing has the default None or ABSENT, or it would be written where it was not.")
    return tuple(fields)


@functools.cache
def _decoder_of(kind: t.Any) -> Decode:
    """Return the function that reads a value of an annotated type."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if dataclasses.is_dataclass(kind):
        return _ObjectDecoder(kind)
    origin, arguments = t.get_origin(kind), t.get_args(kind)
    if origin is t.Union:
        return _union_decoder(arguments)
    if origin is tuple:
        return _list_decoder(arguments)
    if origin is not None and issubclass(origin, t.Mapping):
        return _mapping_decoder(arguments)
    raise TypeError(f"The codec does not know the type {kind}.")


def _decode_text(value: Json) -> str:
    if not isinstance(value, str):
        raise ShapeError("", "text", value)
    return value


def _decode_bool(value: Json) -> bool:
    if not isinstance(value, bool):
        raise ShapeError("", "true or false", value)
    return value


def _decode_int(value: Json) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST:
        return value
    raise ShapeError("", "a whole number from 0 to 2**64 - 1", value)


def _decode_signed(value: Json) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and -MOST // 2 < value < MOST // 2:
        return value
    raise ShapeError("", "a whole number above -2**63 and below 2**63", value)


def _decode_float(value: Json) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not _is_finite(value):
        raise ShapeError("", "a number", value)
    return value


def _is_finite(value: float) -> bool:
    """Whether a number is one that a float can be."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _decode_json(value: Json) -> Json:
    return value


_PLAIN: t.Dict[t.Any, Decode] = {
    str: _decode_text,
    bool: _decode_bool,
    int: _decode_int,
    SignedInt: _decode_signed,
    float: _decode_float,
    object: _decode_json,
}


def _union_decoder(kinds: t.Tuple[t.Any, ...]) -> Decode:
    """Return the decoder of a type that may be null or absent."""
    wanted = [kind for kind in kinds if kind not in (type(None), Absent)]
    if len(wanted) > 1:
        raise TypeError(f"The codec does not know unions of several types: {wanted}.")
    decode_one, is_nullable = _decoder_of(wanted[0]), type(None) in kinds

    def decode_nullable(value: Json) -> Decoded:
        if value is None and is_nullable:
            return None
        try:
            return decode_one(value)
        except ShapeError as exc:
            if is_nullable and not exc.path:
                raise ShapeError("", f"{exc.expected}, or null", exc.found) from exc
            raise

    return decode_nullable


def _list_decoder(arguments: t.Tuple[t.Any, ...]) -> Decode:
    decode_one = _decoder_of(arguments[0])

    def decode_list(value: Json) -> t.Tuple[Decoded, ...]:
        if not isinstance(value, (list, tuple)):
            raise ShapeError("", "a list", value)
        read: t.List[Decoded] = []
        try:
            read.extend(map(decode_one, value))
        except ShapeError as exc:
            raise exc.within(f"[{len(read)}]") from exc
        return tuple(read)

    return decode_list


def _mapping_decoder(arguments: t.Tuple[t.Any, ...]) -> Decode:
    decode_one = _decoder_of(arguments[1])
    if decode_one is _decode_json:
        return lambda value: dict(_require_object(value))

    def decode_mapping(value: Json) -> t.Dict[str, Decoded]:
        read: t.Dict[str, Decoded] = {}
        name = ""
        try:
            for name, one in _require_object(value).items():
                read[name] = decode_one(one)
        except ShapeError as exc:
            raise exc.within(name) from exc
        return read

    return decode_mapping


class _Unread:
    """The value of a lazy field before it is used: the list or object as it is in JSON."""

    def __init__(self, value: Json) -> None:
        self.value = value


class _LazyField:
    """A descriptor for a lazy field: decodes the value at its first use."""

    def __init__(self, name: str, decode_value: Decode) -> None:
        self._name = name
        self._decode_value = decode_value

    def __get__(self, instance: object, owner: t.Any = None) -> object:
        if instance is None:
            return self
        value: object = instance.__dict__[self._name]
        if isinstance(value, _Unread):
            value = instance.__dict__[self._name] = self._decode_value(value.value)
        return value

    def __set__(self, instance: object, value: object) -> None:
        instance.__dict__[self._name] = value


class _ObjectDecoder:
    """Reads a JSON object into one dataclass."""

    def __init__(self, kind: t.Any) -> None:
        hints, fields = t.get_type_hints(kind), _fields_of(kind)
        self._kind = kind
        kinds = {name: _without_null(hints[name]) if default is None else hints[name] for name, _key, default in fields}
        needed, lazy = getattr(kind, "NEEDED", ()), getattr(kind, "LAZY", ())
        decoders = {name: _lazy_decoder(one) if name in lazy else _decoder_of(one) for name, one in kinds.items()}
        required = {name for name, _key, default in fields if default is dataclasses.MISSING}.union(needed)
        self._keys = [(key, name in required, _TAKEN.intersection(_types_in(kinds[name])), decoders[name]) for name, key, _default in fields]
        self._known = frozenset(key for _name, key, _default in fields)
        self._needed = [(key, taken) for key, is_required, taken, _decode in self._keys if is_required]
        for name in lazy:
            setattr(kind, name, _LazyField(name, _decoder_of(kinds[name])))
        self._renamed = {key: name for name, key, _default in fields if key != name}
        self._defaults: t.Dict[str, Decoded] = {name: t.cast(Decoded, default) for name, _key, default in fields if default is not dataclasses.MISSING}
        self._has_extra, self._check = EXTRA in hints, getattr(kind, "check", None)
        self._lenient = frozenset(self._defaults).difference(needed) if getattr(kind, "IS_LENIENT", False) else frozenset()
        # Without a check, L(takes) is certain if the other keys may have any value, or if there are none.
        self.is_lazy = bool(self._lenient or not self._defaults) and not self._check
        self._size = len(fields) + self._has_extra

    def __call__(self, value: Json) -> Decoded:
        if not isinstance(value, _MAPPINGS):
            raise ShapeError("", "a JSON object", value)
        read = self._read_keys(value)
        further = {} if len(read) == len(value) else _further(value, read)
        for key, name in self._renamed.items():
            if key in read:
                read[name] = read.pop(key)
        if self._has_extra:
            read[EXTRA] = further
        elif further:
            raise ShapeError(min(further), "a known key")
        made = _made_of(self._kind, self._defaults if len(read) < self._size else {}, read)
        if self._check:
            self._check(made)
        return made

    def takes(self, value: Json) -> bool:
        """Whether a dataclass that can be lazy can certainly read the value. Fast: only the required keys are checked."""
        if not isinstance(value, dict) or not value.keys() <= self._known:
            return False
        for key, taken in self._needed:
            one = value.get(key, ABSENT)
            if type(one) not in taken or (isinstance(one, int) and not 0 <= one < MOST):
                return False
        return True

    def _read_keys(self, value: JsonObject, passed_over: t.FrozenSet[str] = frozenset()) -> t.Dict[str, Decoded]:
        """Return the values of the fields that have a key.

        :arg passed_over: keys that are left to C(extra).
        """
        read: t.Dict[str, Decoded] = {}
        name = ""
        try:
            for name, is_required, taken, decode_one in self._keys:
                one = value.get(name, ABSENT)
                if type(one) in taken and (not isinstance(one, int) or 0 <= one < MOST):
                    read[name] = one
                elif one is not ABSENT and name not in passed_over:
                    read[name] = decode_one(one)
                elif is_required:
                    raise ShapeError("", "there")
        except ShapeError as exc:
            _require_object(value)
            if name in self._lenient:
                return self._read_keys(value, passed_over | {name})
            raise exc.within(name) from exc
        return read


def _lazy_decoder(kind: t.Any) -> Decode:
    """Return the decoder of a dataclass, or of a list of them, that is decoded when it is first used."""
    decode_now, is_list = _decoder_of(kind), t.get_origin(kind) is tuple
    element = _decoder_of(t.get_args(kind)[0] if is_list else next(one for one in _types_in(kind) if one not in (type(None), Absent)))
    if not isinstance(element, _ObjectDecoder) or not element.is_lazy:
        raise TypeError(f"A value of {kind} cannot be lazy: what is wrong in it would be found too late.")
    takes = element.takes

    def decode_list(value: Json) -> Decoded:
        return t.cast(Decoded, _Unread(list(value))) if isinstance(value, list) and all(map(takes, value)) else decode_now(value)

    def decode_object(value: Json) -> Decoded:
        return t.cast(Decoded, _Unread(dict(t.cast(JsonObject, value)))) if takes(value) else decode_now(value)

    return decode_list if is_list else decode_object


def _further(value: JsonObject, read: t.Mapping[str, Decoded]) -> t.Dict[str, Decoded]:
    """Return the keys that no field has."""
    return {name: one for name, one in _require_object(value).items() if name not in read}


def _types_in(kind: t.Any) -> t.Tuple[t.Any, ...]:
    """Return the types that a value of that type can have."""
    return t.get_args(kind) if t.get_origin(kind) is t.Union else (kind,)


def _made_of(kind: t.Any, defaults: t.Mapping[str, Decoded], read: t.Mapping[str, Decoded]) -> Decoded:
    """Return the dataclass with these attributes. C(__init__) of a frozen one sets them one by one, which takes as long as all the rest of the reading."""
    made: Dataclass = object.__new__(kind)
    made.__dict__.update(defaults)
    made.__dict__.update(read)
    return made


def _without_null(kind: t.Any) -> t.Any:
    """Return the type without null."""
    return t.Union[tuple(one for one in t.get_args(kind) if one is not type(None))] if t.get_args(kind) else kind


def _require_object(value: Json) -> JsonObject:
    if not isinstance(value, _MAPPINGS) or not _has_text_keys(value):
        raise ShapeError("", "a JSON object", value)
    return value


def _has_text_keys(value: t.Mapping[t.Any, t.Any]) -> bool:
    try:
        # Faster than a loop over the keys.
        "".join(value)
    except TypeError:
        return False
    return True
