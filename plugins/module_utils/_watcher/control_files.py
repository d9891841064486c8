# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The files by which other processes control a watcher: the heartbeat of its run, the admissions of waiting moves, and intents about one move.

An intent is taken once; its answer is in the state file.
"""

from __future__ import annotations

import contextlib
import os
import typing as t
import uuid as uuid_module

from .._dataclass import dataclass
from .._model.codec import Json, ShapeError, decode, encode
from .._run_folder import RUN_FOLDER, admissions_path, heartbeat_path, read_json, state_path, write_json

FRESH_SECONDS = 60.0


class Heartbeat:
    """Reads one run's counter. A clock that jumps does not matter: only a change of the counter counts. One that cannot be read has not changed."""

    def __init__(self, run_id: str, clock: t.Callable[[], float], folder: str = RUN_FOLDER) -> None:
        self._path = heartbeat_path(run_id, folder)
        self._clock = clock
        self._counter = self._read_counter()
        self._changed_at = clock()

    def is_fresh(self) -> bool:
        """Whether the counter has changed within the last 60 s."""
        counter = self._read_counter()
        if counter is not None and counter != self._counter:
            self._counter = counter
            self._changed_at = self._clock()
        return self._clock() - self._changed_at <= FRESH_SECONDS

    def remove_file(self) -> None:
        """Remove the counter's file at the end of the run."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _read_counter(self) -> t.Optional[str]:
        try:
            with open(self._path, encoding="ascii", errors="replace") as stream:
                return stream.read(64)
        except OSError:
            return None


ADMITTED_KEY = "given"
GIVEN_UP_KEY = "ended"
SOURCES_KEY = "sources"
_MOST_SOURCES = 10_000


class Admissions:
    """Reads one run's file, C({given, ended, sources}).

    The first two are by ID of a record, with a sentence for the move's history. The last is by libvirt URI of a destination: how many sources send to it.
    """

    def __init__(self, run_id: str, folder: str = RUN_FOLDER) -> None:
        self._path = admissions_path(run_id, folder)
        self._content: t.Dict[str, Json] = {}

    def read_file(self) -> None:
        """Read the newest content. A file that is torn, or cannot be read now, changes nothing."""
        with contextlib.suppress(OSError):
            content = read_json(self._path)
            if isinstance(content, dict):
                self._content = content

    def admission_of(self, record_id: str) -> t.Optional[str]:
        """Return why that record's move may begin now; None if it has to wait."""
        return self._sentence_of(ADMITTED_KEY, record_id)

    def cancellation_of(self, record_id: str) -> t.Optional[str]:
        """Return why that record's move is cancelled while it waits; None if it is not."""
        return self._sentence_of(GIVEN_UP_KEY, record_id)

    @property
    def sources(self) -> t.Dict[str, int]:
        """How many sources send to a destination now, by its libvirt URI, as the run last told it. An unknown destination has no other source."""
        told = self._content.get(SOURCES_KEY)
        numbers = told.items() if isinstance(told, dict) else ()
        return {uri: number for uri, number in numbers if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= _MOST_SOURCES}

    def remove_file(self) -> None:
        """Remove the file at the end of the run."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _sentence_of(self, key: str, record_id: str) -> t.Optional[str]:
        sentences = self._content.get(key)
        sentence = sentences.get(record_id) if isinstance(sentences, dict) else None
        return sentence if isinstance(sentence, str) else None


ABORT = "abort"
FORCE_COMPLETE = "force_complete"
BANDWIDTH = "bandwidth"

_ACTS = (ABORT, FORCE_COMPLETE, BANDWIDTH)
_SUFFIX = ".intent"


@dataclass(frozen=True)
class Intent:
    """A request for one move: for the record of that ID in that generation, and for no other.

    :arg record: the ID of the record.
    :arg bandwidth_mib: of C(bandwidth) and C(force_complete): the cap from then on, 0 for none.
    """

    act: str
    record: str
    generation: int
    by: str
    bandwidth_mib: t.Optional[int]
    id: str

    def check(self) -> None:
        """Raise L(ShapeError) for an act that this version does not know."""
        if self.act not in _ACTS:
            raise ShapeError("act", f"one of {', '.join(_ACTS)}")


def new_intent(act: str, record: str, generation: int, by: str, bandwidth_mib: t.Optional[int] = None) -> Intent:
    """Return an intent with a new ID."""
    return Intent(act, record, generation, by, bandwidth_mib, str(uuid_module.uuid4()))


def leave_intent(domain_uuid: str, intent: Intent, folder: str = RUN_FOLDER) -> None:
    """Write an intent for the domain's watcher."""
    write_json(_intent_path(domain_uuid, intent.id, folder), encode(intent))


def withdraw_intent(domain_uuid: str, intent: Intent, folder: str = RUN_FOLDER) -> bool:
    """Withdraw an intent; false if the watcher has already taken it."""
    try:
        os.unlink(_intent_path(domain_uuid, intent.id, folder))
    except FileNotFoundError:
        return False
    return True


def take_intents(domain_uuid: str, record: str, generation: int, folder: str = RUN_FOLDER) -> t.List[Intent]:
    """Return the intents for this move and remove them; those for another record or generation are removed and ignored.

    Those that cannot be read or removed now, e.g. because this process has no file left, stay for a later call: the watching of a guest goes on.
    """
    found = []
    for path in _list_intents(domain_uuid, folder):
        try:
            intent = _parse_intent(read_json(path))
            os.unlink(path)
        except OSError:
            # It may have been withdrawn in the meantime: the process that removes the file decides, and the requester knows that nothing happens.
            continue
        if intent and (intent.record, intent.generation) == (record, generation):
            found.append(intent)
    return found


def _list_intents(domain_uuid: str, folder: str) -> t.List[str]:
    """Return the paths of all intents of that domain; none if the folder was removed, or cannot be read now."""
    prefix = _intent_prefix(domain_uuid, folder)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if name.startswith(prefix) and name.endswith(_SUFFIX)]


def _parse_intent(document: Json) -> t.Optional[Intent]:
    try:
        return decode(Intent, document)
    except ShapeError:
        return None


def _intent_path(domain_uuid: str, intent_id: str, folder: str) -> str:
    return os.path.join(folder, f"{_intent_prefix(domain_uuid, folder)}{uuid_module.UUID(intent_id)}{_SUFFIX}")


def _intent_prefix(domain_uuid: str, folder: str) -> str:
    return os.path.basename(state_path(domain_uuid, folder))[: -len("json")]
