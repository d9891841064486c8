# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which images on shared storage are other files at a destination: the storage is not mounted there, and the folder below has an old file of that name.

libvirt does not show on which file system a path of another host is. Tokens in the folders of the images show whether the destination sees these folders. They
cost no further question, because the destination lists the folders anyway. Only if a token is missing, both sides are tested, see L(compare_folders).
"""

from __future__ import annotations

import os
import typing as t

from .._libvirt.interface import Host
from .._migration.shared_storage import compare_folders, explain_same_file, temporary_token
from .._model.definition_files import SEPARATE, Pools, locate_volume
from .._model.errors import KvmfleetError
from .._model.requests import DiskFile, DiskNeed, DomainRequest
from .._time_limits import answer_all_within
from .storage_queries import STORAGE_SECONDS


class SharedImage(t.NamedTuple):
    """A file on shared storage: its name in the request of the destination, and its path on both hosts."""

    source: str
    own: str
    there: str


def list_shared_images(request: DomainRequest, renamed: DomainRequest, pools: Pools, pools_there: Pools) -> t.List[SharedImage]:
    """Return the files on shared storage to which the domain writes, and those that they are built on.

    :arg renamed: the request with the names of the destination.
    """
    pairs: t.List[t.Tuple[t.Union[DiskNeed, DiskFile], t.Union[DiskNeed, DiskFile]]] = []
    for disk, there in zip(request.disks or (), renamed.disks or ()):
        pairs += [(disk, there)] if not disk.readonly else []
        pairs += zip(disk.files or (), there.files or ())
    located = [SharedImage(there.source or "", _locate(own, pools), _locate(there, pools_there)) for own, there in pairs if own.shared is True]
    return [image for image in located if image.own.startswith("/") and image.there.startswith("/")]


def _locate(image: t.Union[DiskNeed, DiskFile], pools: Pools) -> str:
    kind, path = locate_volume(image.source or "", pools) if image.kind == "volume" else (image.kind, image.source or "")
    return path if kind == "file" else ""


class ImageProbe:
    """Leaves at most one token in a folder, until it is closed."""

    def __init__(self) -> None:
        self._left: t.Dict[str, _Token] = {}
        self._tokens: t.Dict[str, t.Optional[str]] = {}
        self._shared: t.Set[t.Tuple[str, str, str]] = set()

    def close(self) -> None:
        """Remove the tokens."""
        answer_all_within(STORAGE_SECONDS, {folder: token.remove for folder, token in self._left.items()})
        self._left = {}

    def leave_tokens(self, images: t.Iterable[SharedImage]) -> None:
        """Leave a token in each folder, before a destination lists it. A folder in which this user cannot write gets none, and is not compared."""
        tokens = {folder: _Token(folder) for folder in {os.path.dirname(image.own) for image in images} - set(self._tokens)}
        names = answer_all_within(STORAGE_SECONDS, {folder: token.leave for folder, token in tokens.items()})
        for folder, token in tokens.items():
            token.is_late = names[folder] is None
        self._tokens.update(names)
        self._left.update(tokens)

    def find_other_files(self, host: Host, images: t.Iterable[SharedImage]) -> t.Tuple[str, ...]:
        """Return the names of those images that the destination has, and that are proved to be other files there."""
        try:
            return tuple(image.source for image in images if host.has_path(image.there) and self._is_other_file(image, host))
        except KvmfleetError:
            return ()

    def _is_other_file(self, image: SharedImage, host: Host) -> bool:
        own, (there, name) = os.path.dirname(image.own), os.path.split(image.there)
        token = self._tokens.get(own)
        if not token or (own, there, host.uri) in self._shared or host.has_path(os.path.join(there, token)) is not False:
            return False
        with host.open_folder(there) as folder:
            if compare_folders(image.own, folder).verdict != SEPARATE:
                self._shared.add((own, there, host.uri))
                return False
            # A link to the image has the time of change of the image.
            existing = folder.find_volume(name)
            return existing is not None and not explain_same_file(image.own, existing)


class _Token:
    """A token in a folder of storage that may not answer. C(is_late): whether nobody waits for it any more."""

    def __init__(self, folder: str) -> None:
        self._token = temporary_token(folder)
        self.is_late = False

    def leave(self) -> str:
        """Return the name of the token. Raises C(OSError)."""
        name = self._token.__enter__()
        if self.is_late:
            self._token.__exit__(None, None, None)
        return name

    def remove(self) -> None:
        """Remove the token if it was left."""
        if not self.is_late:
            self._token.__exit__(None, None, None)
