# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each moment that a fault scenario can name is one of the product's functions: a rename of one must not silently leave a scenario without its fault."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import typing as t
from types import SimpleNamespace

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.tests.integration.faults.probe import kvmfleet_moments as m

PROBED = [*m.ON_THE_CONTROL_NODE, *m.ON_A_HOST]
BY_NAME = {moment.name: moment for moment in PROBED}
RECORD = new_record(
    s.LIVE_MIGRATION,
    DomainRef("5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11", "web"),
    HostRef("kvm1", "id-1", None),
    HostRef("kvm2", "id-2", None),
    {},
    by="root@control pid 1",
)


@pytest.mark.parametrize("moment", PROBED, ids=lambda moment: moment.name)
def test_the_function_of_every_moment_exists(moment: m.Moment) -> None:
    owner, dummy, name = moment.function.rpartition(".")
    module = importlib.import_module(moment.full_module)
    found = getattr(getattr(module, owner) if owner else module, name)
    assert inspect.isfunction(found)
    assert not inspect.isgeneratorfunction(found), "what is before or after a generator's call is no moment"
    assert moment.when in (m.BEFORE, m.AFTER)


def test_names_and_file_names_of_moments_are_unique() -> None:
    names = [moment.name for moment in PROBED] + [*m.OF_LIBVIRT, *m.OF_THE_GUEST]
    assert len(names) == len(set(names)) == len(m.NAMES)
    assert len({m.slug(name, "web") for name in names}) == len(names)


def test_the_file_name_of_a_moment_has_no_spaces() -> None:
    assert m.slug("force: post_copy", "web") == "force--post-copy@web"


@pytest.mark.parametrize(
    ("moment", "arguments"),
    [
        *((name, (None, RECORD)) for name in ("before the record", "after the record", "before the record is closed")),
        *((name, (None, Stored(RECORD, 1))) for name in ("while it holds the destination", "after the booking")),
        *((name, (SimpleNamespace(record=RECORD),)) for name in ("memory moves", "iteration 1", "before the last word")),
    ],
)
def test_a_moment_of_a_record_names_its_guest(moment: str, arguments: tuple[t.Any, ...]) -> None:
    assert BY_NAME[moment].guest(arguments) == "web"


def with_figures(iteration: int, processed_bytes: int) -> MoveRecord:
    progress = dataclasses.replace(RECORD.progress, iteration=iteration, memory_processed_bytes=processed_bytes)
    return dataclasses.replace(RECORD, progress=progress)


def test_a_moment_of_a_record_happens_by_its_status_and_figures() -> None:
    closing = BY_NAME["before the record is closed"]
    assert not closing.happens((None, RECORD))
    assert closing.happens((None, dataclasses.replace(RECORD, status=s.COMPLETED)))
    second, moving = BY_NAME["iteration 2"], BY_NAME["memory moves"]
    for record, iterated, moved in ((with_figures(1, 0), False, False), (with_figures(2, 4096), True, True)):
        journal = SimpleNamespace(record=record)
        assert (second.happens((journal,)), moving.happens((journal,))) == (iterated, moved)
