# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger in either store, a move in it, and a receiver."""

from __future__ import annotations

import copy
import typing as t
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kvmlab.etcd import Cluster

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import advance, new_record, note, place
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger, Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._notices.config import config_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._notices.notices import Notices
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver

SECRET = "open sesame"
Record = dict[str, t.Any]


class Site:
    """A control node: where its ledger is, its spool, and where its notices go."""

    def __init__(self, folder: Path, location: str, url: str) -> None:
        self.folder = folder
        self.location = location
        self.value: Record = {"url": url, "secret": SECRET, "spool": str(folder / "spool"), "timeout_seconds": 1, "wait_seconds": 30}

    def ledger(self) -> Ledger:
        return open_ledger(self.location)

    def begin(self, **values: t.Any) -> tuple[Ledger, Notices]:
        """Begin a task: open the ledger, which tells of its records from here on."""
        ledger = self.ledger()
        notices = Notices(config_of({**self.value, **values}), ledger.ledger_id, self.ledger)
        ledger.witness = notices
        return ledger, notices

    def spooled(self) -> list[Path]:
        return sorted((self.folder / "spool").rglob("*.json"))


def new_move(record_type: str = s.LIVE_MIGRATION) -> Record:
    return new_record(record_type, {"uuid": str(uuid.uuid4()), "name": "web1"}, place("kvm1", "id-1"), place("kvm2", "id-2"), {}, by="root@control pid 1")


def lead(ledger: Ledger, stored: Stored, *words: str) -> Stored:
    """Lead a record through statuses; a word that is none becomes a line of its history."""
    for word in words:
        record = copy.deepcopy(stored.record)
        if word.startswith("abort_"):
            note(record, word, "root@other")
            stored = Stored(record, stored.version)
            continue
        advance(record, word, "root@control pid 1", f"It is {word}.", s.REASON_OPERATOR if word == s.CANCELLED else None)
        # What was only noted is written with the next status, as a task does it.
        stored = ledger.update(Stored(ledger.get(record["id"]).record, stored.version), record)
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
