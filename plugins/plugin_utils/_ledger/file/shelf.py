# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reading a file ledger's documents: what is damaged is named and moved aside, what is newer is named and left, neither stops another."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotSupported

from ..encoding import Damaged, Newer, decode, decode_opened, opened
from ..layout import SET_ASIDE, Place, check_document, may_pass, name_aside
from ..screen import Screen
from ..store import Body, Document
from .folder import NOT_A_FILE, Folder

_EVERYTHING: t.Final = Screen()


class Shelf:
    """:arg report: takes a sentence on what could not be read."""

    def __init__(self, root: Folder, report: Callable[[str], None]) -> None:
        self._root = root
        self._report = report

    def read(self, place: Place) -> t.Optional[Document]:
        """Return the document, or None where there is none or it was damaged. Raises L(NotSupported) for a newer schema."""
        try:
            with self._root.sub(*place[:-1]) as folder:
                return self._read(folder, place)
        except FileNotFoundError:
            return None
        except Newer as error:
            sentence = self._newer(place, error)
            raise NotSupported(sentence, "Update the collection on this control node.", document=error.body) from error

    def read_all(self, parts: Sequence[str], newer: t.Optional[list[Body]] = None, screen: Screen = _EVERYTHING) -> Iterator[Document]:
        """Yield all documents of a folder that can be read; the bodies of newer ones are added to C(newer).

        :arg screen: holds back what need not be parsed; with one, documents come in no order.
        """
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(self._root.sub(*parts))
            except FileNotFoundError:
                return
            for name in folder.names() if screen is _EVERYTHING else folder.each_name(screen.written_since):
                if name.endswith(".json") and not name.startswith("."):
                    document = self._read_or_newer(folder, (*parts, name), newer, screen)
                    if document:
                        yield document

    def _read_or_newer(self, folder: Folder, place: Place, newer: t.Optional[list[Body]], screen: Screen) -> t.Optional[Document]:
        try:
            return self._read(folder, place, screen)
        except Newer as error:
            self._newer(place, error)
            if newer is not None:
                newer.append(error.body)
        return None

    def folders(self, parts: Sequence[str]) -> list[str]:
        """Return the names in a folder of folders, or none where it is missing."""
        try:
            with self._root.sub(*parts) as folder:
                return folder.names()
        except FileNotFoundError:
            return []

    def _read(self, folder: Folder, place: Place, screen: Screen = _EVERYTHING) -> t.Optional[Document]:
        """Return the document; None where there is none, where it was damaged, and where the screen holds it back."""
        try:
            data = folder.read(place[-1])
            envelope = opened(data)
            if envelope and not may_pass(place, envelope.text, screen):
                return None
            document = decode_opened(envelope) if envelope else decode(data)
            check_document(place, document.body)
            return document
        except FileNotFoundError:
            return None
        except Damaged as error:
            self._set_aside(place, str(error))
        except OSError as error:
            if error.errno not in NOT_A_FILE:
                raise
            self._set_aside(place, "it is not a regular file")
        return None

    def _newer(self, place: Place, error: Newer) -> str:
        sentence = f"{os.path.join(self._root.path, *place)} was left as it is: {error}."
        self._report(sentence)
        return sentence

    def _set_aside(self, place: Place, why: str) -> None:
        new_name = name_aside(place, time.time_ns())
        with contextlib.suppress(FileNotFoundError), self._root.sub(*place[:-1]) as folder, self._root.sub(*SET_ASIDE, create=True) as aside:
            folder.move(place[-1], aside, new_name)
        path = os.path.join(self._root.path, *place)
        self._report(f"{path} could not be read: {why}. It was moved to {os.path.join(self._root.path, *SET_ASIDE, new_name)}.")
