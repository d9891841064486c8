# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The standard library's decorator C(dataclass), except that a class is examined, and its methods are generated, when it is first used.

Each task of Ansible imports hundreds of dataclasses, on the control node and on the host, and uses few of them. Making all of them takes as long as importing
all other code.
"""

from __future__ import annotations

import dataclasses
import threading
import typing as t

__all__ = ["dataclass"]

_METHODS = ("__init__", "__repr__", "__eq__", "__hash__")
_FIELDS = "__dataclass_fields__"
# Reentrant: a class is made after its base classes.
_LOCK = threading.RLock()

if t.TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, *, frozen=False):
        """Return the class as a dataclass. Methods that it has are kept.

        :arg frozen: whether its objects cannot be changed, and can be hashed.
        """
        return _prepare_class(cls, frozen) if cls else lambda decorated: _prepare_class(decorated, frozen)


class _FieldsAtFirstUse:
    """Stands for the fields of a class until something asks for them, which makes it a dataclass."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __get__(self, _instance: object, _owner: type) -> t.Any:
        with _LOCK:
            if self._cls.__dict__[_FIELDS] is self:
                # Replaces this object when all fields are known.
                dataclasses.dataclass(init=False, repr=False, eq=False)(self._cls)
            return self._cls.__dict__[_FIELDS]


def _prepare_class(cls: type, frozen: bool) -> type:
    # Of a class without a docstring, the standard library would generate the signature to show it in one.
    cls.__doc__ = cls.__doc__ or cls.__name__
    missing = [name for name in _METHODS if cls.__dict__.get(name) is None]
    methods: t.Dict[str, t.Any] = {name: _generate_at_first_call(cls, name, frozen) for name in missing}
    if frozen:
        methods.update(dict.fromkeys(("__setattr__", "__delattr__"), _refuse_change))
    elif "__hash__" in missing:
        methods["__hash__"] = None
    for name, method in methods.items():
        setattr(cls, name, method)
    setattr(cls, _FIELDS, _FieldsAtFirstUse(cls))
    return cls


def _generate_at_first_call(cls: type, name: str, frozen: bool) -> t.Callable[..., t.Any]:
    def method(self: object, *args: t.Any, **kwargs: t.Any) -> t.Any:
        setattr(cls, name, _generate_method(cls, name, frozen))
        return getattr(cls, name)(self, *args, **kwargs)

    return method


def _generate_method(cls: type, name: str, frozen: bool) -> t.Any:
    """Return the method of a class of the standard library with the same fields. Several threads may do so at once."""
    fields = [(field.name, field.type, field) for field in dataclasses.fields(cls)]
    # A class with __post_init__ gets an __init__ that calls it.
    namespace = {"__doc__": cls.__doc__, **({"__post_init__": cls.__post_init__} if hasattr(cls, "__post_init__") else {})}
    model = dataclasses.make_dataclass(
        cls.__qualname__,
        fields,
        namespace=namespace,
        init=name == "__init__",
        repr=name == "__repr__",
        eq=name in ("__eq__", "__hash__"),
        frozen=frozen,
    )
    return model.__dict__[name]


def _refuse_change(self: object, name: str, *_value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"{type(self).__qualname__} is frozen: {name!r} cannot be changed.")
