# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The standard library's decorator C(dataclass), except that the methods of a class are generated when one of them is first called.

Each task of Ansible imports hundreds of dataclasses, on the control node and on the host, and uses few of them. Generating the methods of all of them takes as
long as importing all other code.
"""

from __future__ import annotations

import dataclasses
import typing as t

__all__ = ["dataclass"]

_METHODS = ("__init__", "__repr__", "__eq__", "__hash__")

if t.TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, *, frozen=False):
        """Return the class as a dataclass. Methods that it has are kept.

        :arg frozen: whether its objects cannot be changed, and can be hashed.
        """
        return _make_dataclass(cls, frozen) if cls else lambda decorated: _make_dataclass(decorated, frozen)


def _make_dataclass(cls: type, frozen: bool) -> type:
    # Of a class without a docstring, the standard library would generate the signature to show it in one.
    cls.__doc__ = cls.__doc__ or cls.__name__
    missing = [name for name in _METHODS if cls.__dict__.get(name) is None]
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    methods: t.Dict[str, t.Any] = {name: _generate_at_first_call(cls, name, missing, frozen) for name in missing}
    if frozen:
        methods.update(dict.fromkeys(("__setattr__", "__delattr__"), _refuse_change))
    elif "__hash__" in missing:
        methods["__hash__"] = None
    for name, method in methods.items():
        setattr(cls, name, method)
    return cls


def _generate_at_first_call(cls: type, name: str, missing: list[str], frozen: bool) -> t.Callable[..., t.Any]:
    def method(self: object, *args: t.Any, **kwargs: t.Any) -> t.Any:
        _generate_methods(cls, missing, frozen)
        return getattr(cls, name)(self, *args, **kwargs)

    return method


def _generate_methods(cls: type, missing: list[str], frozen: bool) -> None:
    """Replace the missing methods by those of a class of the standard library with the same fields. Several threads may do so at once."""
    fields = [(field.name, field.type, field) for field in dataclasses.fields(cls)]
    # A class with this method gets an __init__ that calls it.
    namespace = {"__post_init__": cls.__post_init__} if hasattr(cls, "__post_init__") else {}
    model = dataclasses.make_dataclass(cls.__qualname__, fields, namespace=namespace, frozen=frozen)
    for name in missing:
        setattr(cls, name, model.__dict__[name])


def _refuse_change(self: object, name: str, *_value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"{type(self).__qualname__} is frozen: {name!r} cannot be changed.")
