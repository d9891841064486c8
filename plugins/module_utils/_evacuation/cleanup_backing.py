# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which images the domains of this host use, also as a backing or data file of another image: an image that one of them needs is not touched."""

from __future__ import annotations

import os
import typing as t

from .._facts.image_files import files_below
from .._facts.image_header import Unreadable


def chain_of(path: str) -> t.Iterator[str]:
    """Yield the image and every file that it needs. Raises L(Unreadable), also for a chain without end."""
    yield path
    for file in files_below(path):
        if file.path:
            yield file.path


def users_of(path: str, images: t.Iterable[t.Tuple[str, str]]) -> t.List[str]:
    """Return, as parts of a sentence, who of these uses the image, and of whom it cannot be told.

    :arg images: (whose it is, path) of every other image that is in use on this host.
    """
    found = {_use(path, owner, image) for owner, image in images}
    return sorted(use for use in found if use)


def _use(path: str, owner: str, image: str) -> str:
    try:
        return owner if any(_same(path, file) for file in chain_of(image)) else ""
    except Unreadable as error:
        return f"{owner}, it may be: {error}"


def images_beside(path: str) -> t.Iterator[t.Tuple[str, str]]:
    """Yield the other regular files of the image's folder, which may be overlays of it that no domain here knows."""
    folder = os.path.dirname(path)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and not _same(path, entry.path):
                yield f"the image {entry.path}", entry.path


def _same(one: str, other: str) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
