# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger in either store, a move in it, and a receiver."""

from __future__ import annotations

import time
import typing as t
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kvmlab.etcd import Cluster

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.notices import Notices
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.webhook import parse_config
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver

SECRET = "open sesame"


class Site:
    """A control node: where its ledger is, its spool, and where its notices go."""

    def __init__(self, folder: Path, location: str, url: str) -> None:
        self.folder = folder
        self.location = location
        self.value: dict[str, t.Any] = {"url": url, "secret": SECRET, "spool": str(folder / "spool"), "timeout_seconds": 1, "wait_seconds": 30}

    def ledger(self) -> Ledger:
        return open_ledger(self.location)

    def begin(self, **values: t.Any) -> tuple[Ledger, Notices]:
        """Begin a task: open the ledger, which tells of its records from here on."""
        ledger = self.ledger()
        notices = Notices(parse_config({**self.value, **values}), ledger.ledger_id, self.ledger)
        ledger.witness = notices
        return ledger, notices

    def spooled(self) -> list[Path]:
        return sorted((self.folder / "spool").rglob("*.json"))

    def await_sent(self, seconds: float = 60, but: int = 0) -> None:
        """Return when no more notices than that are kept: the receiver hears of the last one before its file is removed."""
        limit = time.monotonic() + seconds
        while len(self.spooled()) > but:
            assert time.monotonic() < limit, self.spooled()
            time.sleep(0.05)


def new_move(record_type: str = s.LIVE_MIGRATION) -> MoveRecord:
    return new_record(
        record_type, DomainRef(str(uuid.uuid4()), "web1"), HostRef("kvm1", "id-1", None), HostRef("kvm2", "id-2", None), {}, by="root@control pid 1"
    )


def lead(ledger: Ledger, stored: Stored, *words: str) -> Stored:
    """Lead a record through statuses; a word that is none becomes a line of its history."""
    for word in words:
        if word.startswith("abort_"):
            stored = Stored(stored.record.note(word, "root@other"), stored.version)
            continue
        record = stored.record.advance(word, "root@control pid 1", f"It is {word}.", s.REASON_OPERATOR if word == s.CANCELLED else None)
        # What was only noted is written with the next status, as a task does it.
        stored = ledger.update_record(Stored(ledger.read_record(record.record_id).record, stored.version), record)
    return stored


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def site(tmp_path: Path, receiver: Receiver) -> Site:
    return Site(tmp_path, str(tmp_path / "ledger"), receiver.url)


@pytest.fixture(params=["file", "etcd"])
def any_site(request: pytest.FixtureRequest, site: Site) -> Site:
    """A site with its ledger in each of the stores."""
    if request.param == "etcd":
        member: Cluster = request.getfixturevalue("member")
        site.location = member.location(f"/tests/{uuid.uuid4()}")
    return site


@pytest.fixture
def move() -> Callable[[Ledger], Stored]:
    """Take a move from its opening to its end."""

    def made(ledger: Ledger) -> Stored:
        return lead(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.QUEUED, s.RUNNING, s.COMPLETED)

    return made
