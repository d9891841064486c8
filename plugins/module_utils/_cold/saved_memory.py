# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The saved memory of a guest in a folder that both hosts share: what is there, and how it is marked as spent before the guest runs."""

from __future__ import annotations

import contextlib
import os
import typing as t

from .._files import sync_folder
from .._libvirt.interface import Host
from .._model.errors import MigrationFailed
from .steps import NO_IMAGE, READY, SPENT_HERE, SPENT_THERE, UNREADABLE

RAW, SPARSE = "raw", "sparse"
# Libvirt's format that holds each page at its own offset, which needs QEMU's mapped-ram.
_SPARSE_SINCE = {"libvirt": 11002000, "hypervisor": 9000000}

_SUFFIXES = {SPENT_THERE: ".restored-at-destination", SPENT_HERE: ".restored-at-source"}


def choose_format(hosts: t.Sequence[Host]) -> str:
    """Return the format of saved memory that these hosts know best."""
    versions = [host.read_versions() for host in hosts]
    knows_sparse = all(one.get(what, 0) >= least for one in versions for what, least in _SPARSE_SINCE.items())
    return SPARSE if knows_sparse else RAW


def find_image(path: str, uuid: str, host: Host) -> str:
    """Return what the folder has of the saved memory of that domain, one of the words in C(steps).

    :arg host: whose libvirt reads the image.
    """
    for state, suffix in _SUFFIXES.items():
        if os.path.lexists(path + suffix):
            return state
    if not os.path.lexists(path):
        return NO_IMAGE
    return READY if host.read_saved_uuid(path) == uuid else UNREADABLE


def sync_image(path: str) -> None:
    """Flush a complete image to disk. Raises L(MigrationFailed)."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise MigrationFailed(f"{path} cannot be flushed to disk: {error.strerror}.") from error


def spend_image(path: str, state: str) -> None:
    """Rename the image, so that nothing restores it any more. Raises L(MigrationFailed).

    :arg state: the host at which the guest was restored, as C(SPENT_THERE) or C(SPENT_HERE).
    """
    try:
        os.rename(path, path + _SUFFIXES[state])
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise MigrationFailed(f"{path} cannot be renamed: {error.strerror}.", "The guest is paused, and is not resumed before that.") from error


def remove_image(path: str) -> None:
    """Remove the image, whether it is spent or not."""
    for suffix in ("", *_SUFFIXES.values()):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)
