# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Libvirt's errors, mapped to ours once and by code: texts change between releases (libvirt.md, section 1.4)."""

from __future__ import annotations

import contextlib
import typing as t

from .._errors import (
    Aborted,
    Conflict,
    Forbidden,
    Internal,
    InvalidArgument,
    InvalidState,
    KvmfleetError,
    NotFound,
    NotSupported,
    TimedOut,
    Unreachable,
    Unsafe,
)
from .._patience import asking
from .library import libvirt

# Numbers from virErrorNumber, so that a client library older than a code does not matter.
_BY_CODE: t.Dict[int, t.Type[KvmfleetError]] = {
    3: NotSupported,  # NO_SUPPORT
    5: Unreachable,  # NO_CONNECT
    6: Unreachable,  # INVALID_CONN
    8: InvalidArgument,  # INVALID_ARG
    29: Forbidden,  # OPERATION_DENIED
    38: Unreachable,  # SYSTEM_ERROR: sockets that do not connect, or end
    39: Unreachable,  # RPC
    42: NotFound,  # NO_DOMAIN
    45: Forbidden,  # AUTH_FAILED
    55: InvalidState,  # OPERATION_INVALID
    68: TimedOut,  # OPERATION_TIMEOUT
    74: NotSupported,  # ARGUMENT_UNSUPPORTED
    78: Aborted,  # OPERATION_ABORTED
    79: Forbidden,  # AUTH_CANCELLED
    81: Unsafe,  # MIGRATE_UNSAFE
    84: NotSupported,  # OPERATION_UNSUPPORTED
    88: Forbidden,  # ACCESS_DENIED
    91: Conflict,  # CPU_INCOMPATIBLE
}

_RPC_DOMAIN = 7


def translated(error: t.Any, attempt: str) -> KvmfleetError:
    """Return our error for a libvirt error met while trying to C(attempt), e.g. C(look up domain web1 on kvm1)."""
    code = error.get_error_code()
    text = (error.get_error_message() or str(error)).strip()
    cls = _BY_CODE.get(code, Internal)
    if code == 1 and error.get_error_domain() == _RPC_DOMAIN:
        cls = Unreachable  # "client socket is closed" comes as an internal error of the RPC layer
    return cls(f"Failed to {attempt}: {text} (libvirt error {code}).", libvirt_code=code)


@contextlib.contextmanager
def libvirt_errors(attempt: str) -> t.Iterator[None]:
    """Turn any libvirt error inside the block into one of ours that names the attempt."""
    try:
        with asking(attempt):
            yield
    except libvirt().libvirtError as error:
        raise translated(error, attempt) from error
