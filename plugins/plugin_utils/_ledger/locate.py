# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Opens the ledger that the option C(ledger) names, also for tasks that must not wait for it."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError, NotFound

from .copying import CopyTarget
from .file.archive import ArchiveFolder
from .file.copying import FileTarget
from .file.store import FileLedger
from .identity import refuse_moved
from .ledger import Ledger

if t.TYPE_CHECKING:
    from .etcd.connection import EtcdAddress  # pragma: no cover

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_KNOWN = "a folder on the control node, or to etcd://host:2379/prefix"


def state_path(name: str) -> str:
    """Return the path for the state of the current user: C(kvmfleet/<name>) in the state folder of the XDG base directory specification."""
    state = os.environ.get("XDG_STATE_HOME", "")
    # The specification requires that a relative path is ignored.
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "kvmfleet", name)


def open_ledger(location: t.Optional[str] = None, etcd: Json = None, *, create: bool = True, moved: bool = False) -> Ledger:
    """Return the ledger at a folder or under the prefix of an etcd cluster, or the user's own for None.

    :arg etcd: the variable C(kvmfleet_etcd), if it is set; it does not apply to a folder.
    :arg create: whether to create a missing ledger; otherwise L(NotFound) is raised.
    :arg moved: whether to open a ledger that was moved, for reading only. Otherwise L(InvalidState) is raised, which names the new location.

    Raises L(InvalidArgument), L(Forbidden), L(NotSupported) or L(Unreachable), naming the location.
    """
    where = _parse_location(location)
    if isinstance(where, str):
        return FileLedger(where, create, moved=moved)
    # A ledger in a folder needs none of this.
    from .etcd.connection import read_options
    from .etcd.store import EtcdLedger

    return EtcdLedger(where, read_options(etcd, where), create, moved)


def open_for_reading(location: t.Optional[str] = None, etcd: Json = None) -> Ledger:
    """Return the ledger as L(open_ledger) does, or the archive of one, which can only be read. A ledger that was moved is refused as there."""
    ledger = open_ledger(location, etcd, create=False, moved=True)
    if ledger.identity.archive_of is None:
        refuse_moved(ledger.identity, ledger.name)
    return ledger


def open_archive(location: str) -> ArchiveFolder:
    """Return the folder of an archive; nothing is read or created yet. Raises L(InvalidArgument) for anything but a folder."""
    where = _parse_location(location, "to")
    if not isinstance(where, str):
        raise InvalidArgument(f"An archive is a folder, and {location} is not.", "Set 'to' to a folder on the control node.")
    return ArchiveFolder(where)


def open_target(location: str, etcd: Json = None) -> CopyTarget:
    """Return the folder or prefix to which a ledger is copied. Raises as L(open_ledger); nothing is read or created yet."""
    where = _parse_location(location, "to")
    if isinstance(where, str):
        return FileTarget(where)
    from .etcd.connection import read_options
    from .etcd.copying import EtcdTarget

    return EtcdTarget(where, read_options(etcd, where))


def _parse_location(location: t.Optional[str], option: str = "ledger") -> t.Union[str, EtcdAddress]:
    """Return the folder or the address in a location. Raises L(InvalidArgument) for anything else."""
    if location is None:
        return state_path("ledger")
    if not isinstance(location, str) or not location.strip() or not _is_folder_name(location):
        set_it = "'ledger' or 'kvmfleet_ledger'" if option == "ledger" else f"'{option}'"
        raise InvalidArgument(f"The ledger {location!r} is not the path of a folder.", f"Set {set_it} to {_KNOWN}.")
    scheme = _SCHEME.match(location)
    if scheme and scheme.group(1).lower() == "etcd":
        from .etcd.connection import parse_address

        return parse_address(location)
    if scheme:
        raise InvalidArgument(
            f"The ledger {location} cannot be used: there is no store for '{scheme.group(1)}://'.",
            "Use a folder on the control node, or etcd://host:2379/prefix.",
        )
    return os.path.expanduser(location)


def open_if_any(
    location: t.Optional[str] = None, etcd: Json = None, *, create: bool = False, allow_new: t.Optional[t.Callable[[], object]] = None
) -> t.Optional[Ledger]:
    """Return the ledger as L(open_ledger) does, and None if it is missing and must not be created.

    :arg allow_new: raises an error if one that is missing must not be created; called only then.
    """
    try:
        return open_ledger(location, etcd, create=create and allow_new is None)
    except NotFound:
        if not create or allow_new is None:
            return None
    allow_new()
    return open_ledger(location, etcd)


@contextlib.contextmanager
def open_or_imagine(location: t.Optional[str] = None, etcd: Json = None, *, check: bool, allow_new: t.Callable[[], object]) -> t.Iterator[Ledger]:
    """Return the ledger as L(open_ledger) does. In check mode an empty one, which is removed afterwards, stands in for one that is missing.

    :arg allow_new: raises an error if one that is missing must not be created, nor imagined.
    """
    ledger = open_if_any(location, etcd, create=not check, allow_new=allow_new)
    if ledger:
        yield ledger
        return
    allow_new()
    with tempfile.TemporaryDirectory(prefix="kvmfleet-") as folder:
        yield FileLedger(folder)


_T = t.TypeVar("_T")


class LedgerInEmergency:
    """The ledger of an intervention. When it cannot be used, a warning says so, and it is not tried again.

    :arg open_it: opens the ledger; creates a missing one if its argument says so.
    :arg is_needed: whether the task cannot do without it.
    """

    def __init__(self, open_it: t.Callable[[bool], Ledger], is_needed: bool, warnings: list[str]) -> None:
        self._open = open_it
        self._warnings = warnings
        self.is_needed = is_needed
        self._is_lost = False
        self.ledger: t.Optional[Ledger] = None
        self.open_ledger(create=False)

    def open_ledger(self, create: bool) -> None:
        """Open the ledger, if that was not done yet. Raises L(InvalidArgument) for a location that cannot be one."""
        if self.ledger or self._is_lost:
            return
        try:
            self.ledger = self._open(create)
        except InvalidArgument:
            raise
        except NotFound:
            if self.is_needed:
                raise
        except KvmfleetError as error:
            self._lose_ledger(error)

    def use(self, step: t.Callable[[Ledger], _T]) -> t.Optional[_T]:
        """Return what the step returns; null, with a warning, if the ledger cannot be used, and null if it does not have what is asked for."""
        if self.ledger is None:
            return None
        try:
            return step(self.ledger)
        except NotFound:
            return None
        except KvmfleetError as error:
            self._lose_ledger(error)
            return None

    @property
    def is_lost(self) -> bool:
        """Whether the ledger could not be used."""
        return self._is_lost

    def _lose_ledger(self, error: KvmfleetError) -> None:
        if self.is_needed:
            raise error
        self._is_lost, self.ledger = True, None
        self._warnings.append(f"The ledger cannot be used, so this task does not record what it does. {error}")


def _is_folder_name(location: str) -> bool:
    """Whether a folder can have that name: without control characters, and representable in the file system."""
    try:
        os.fsencode(location)
    except UnicodeEncodeError:
        return False
    return all(ord(char) >= 32 for char in location)
