# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the operating system refuses, said so that a person can act on it."""

from __future__ import annotations

import contextlib
import errno
import typing as t
from collections.abc import Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden, Internal, InvalidArgument, KvmfleetError

_MAY_NOT = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_FOLDER = (errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENOENT)


def _translated(error: OSError, path: str) -> KvmfleetError:
    cause = error.strerror or str(error)
    if error.errno in _MAY_NOT:
        return Forbidden(f"Failed to use the ledger {path}: {cause}.", "Run as a user who may write there, or name another folder with 'ledger'.")
    if error.errno in _NO_FOLDER:
        return InvalidArgument(f"Failed to use the ledger {path}: {cause}.", "Name a folder that can be made or used with 'ledger'.")
    # A unit whose journal was complete is finished by the next access; one whose journal was not has changed nothing.
    return Internal(f"Failed to write the ledger {path}: {cause}.", "Make room or repair the file system; the next access finishes the change or drops it.")


@contextlib.contextmanager
def reported(path: t.Any) -> Iterator[None]:
    """Turn any C(OSError) inside into L(Forbidden), L(InvalidArgument) or L(Internal) that names the ledger's folder."""
    try:
        yield
    except OSError as error:
        raise _translated(error, str(path)) from error
