# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""From what an operator writes as C(ledger) to an open ledger."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, NotFound

from .document_ledger import DocumentLedger
from .etcd import address
from .etcd.options import options_of
from .etcd.store import EtcdLedger
from .etcd.target import EtcdTarget
from .file.store import FileLedger
from .file.target import FileTarget
from .target import Target

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_KNOWN = "a folder on the control node, or to etcd://host:2379/prefix"


def state_path(name: str) -> str:
    """Return where the user who runs this keeps something: C(kvmfleet/<name>) in the state folder of the XDG base directory specification."""
    state = os.environ.get("XDG_STATE_HOME", "")
    # That specification wants a relative path ignored.
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "kvmfleet", name)


def open_ledger(location: t.Optional[str] = None, etcd: t.Any = None, *, create: bool = True, moved: bool = False) -> DocumentLedger:
    """Return the ledger at a folder or under the prefix of an etcd cluster, or the user's own for None.

    :arg etcd: the variable C(kvmfleet_etcd), where one is set; it says nothing about a folder.
    :arg create: whether to make a ledger where there is none; else that is L(NotFound).
    :arg moved: whether to open also one that was moved elsewhere, to be read only; else that is L(InvalidState), naming the new place.

    Raises L(InvalidArgument), L(Forbidden), L(NotSupported) or L(Unreachable), naming the location.
    """
    where = _located(location)
    if isinstance(where, str):
        return FileLedger(where, create, moved=moved)
    return EtcdLedger(where, options_of(etcd, where), create, moved)


def open_target(location: str, etcd: t.Any = None) -> Target:
    """Return the folder or the prefix that a ledger is to be copied to. Raises as L(open_ledger); nothing is asked or made yet."""
    where = _located(location, "to")
    return FileTarget(where) if isinstance(where, str) else EtcdTarget(where, options_of(etcd, where))


def _located(location: t.Optional[str], option: str = "ledger") -> t.Union[str, address.Address]:
    """Return the folder or the address in a location. Raises L(InvalidArgument) for what is neither."""
    if location is None:
        return state_path("ledger")
    if not isinstance(location, str) or not location.strip() or not _is_name(location):
        set_it = "'ledger' or 'kvmfleet_ledger'" if option == "ledger" else f"'{option}'"
        raise InvalidArgument(f"The ledger {location!r} is not the path of a folder.", f"Set {set_it} to {_KNOWN}.")
    scheme = _SCHEME.match(location)
    if scheme and scheme.group(1).lower() == "etcd":
        return address.parse(location)
    if scheme:
        raise InvalidArgument(
            f"The ledger {location} cannot be used: there is no store for '{scheme.group(1)}://'.",
            "Use a folder on the control node, or etcd://host:2379/prefix.",
        )
    return os.path.expanduser(location)


def open_if_any(location: t.Optional[str] = None, etcd: t.Any = None, *, create: bool = False) -> t.Optional[DocumentLedger]:
    """Return the ledger as L(open_ledger) does, and None where there is none and it is not to be made."""
    try:
        return open_ledger(location, etcd, create=create)
    except NotFound:
        return None


def _is_name(location: str) -> bool:
    """Whether a folder can have that name: there are no control characters in it, and the file system can say it."""
    try:
        os.fsencode(location)
    except UnicodeEncodeError:
        return False
    return all(ord(char) >= 32 for char in location)
