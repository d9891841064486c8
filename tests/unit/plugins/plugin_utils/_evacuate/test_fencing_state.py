# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that no device can switch off: a named state in the ledger, one notice, nothing started, and a later run that goes on by itself."""

from __future__ import annotations

import contextlib
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, Unreachable
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import fencing_state
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import HostEntry, HostFencing
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import HostIdentity, make_entry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Witness
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.host_notices import is_in_entry, make_host_events
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import GOOD
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import Site, host_id

MUTE = "echo 'Connection timed out'; exit 1"
WORD = {"reason": "I pulled both cords"}


class Listener(Witness):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[HostEntry, str]] = []

    @contextlib.contextmanager
    def watch_host(self, after: HostEntry, detail: str) -> Iterator[None]:
        yield
        self.told.append((after, detail))


@pytest.fixture
def listener(site: Site) -> Listener:
    site.ledger.witness = Listener()
    return site.ledger.witness


def entry(site: Site) -> HostEntry:
    found = site.ledger.read_host(host_id("kvm1"))
    assert found
    return found.host


def fail_to_fence(site: Site, **given: t.Any) -> Unreachable:
    with pytest.raises(Unreachable) as refused:
        site.evacuate(**given)
    assert refused.value.result["reason"] == "fencing_impossible"
    assert site.record_summaries() == []
    assert ("kvm2", "start") not in site.phases
    return refused.value


def test_the_state_begins_once_and_ends_with_the_next_evidence(site: Site, listener: Listener) -> None:
    site.save("web")
    agent = site.agent()
    agent.write(MUTE)
    fail_to_fence(site)
    first = entry(site).fencing
    assert first
    assert (first.state, first.since, [one.power for one in first.attempts or ()]) == ("fencing_impossible", first.at, ["unknown"])
    fail_to_fence(site)
    second = entry(site).fencing
    assert second
    assert (second.since, len(listener.told)) == (first.since, 1)
    agent.write(GOOD)
    assert [line[:2] for line in (site.evacuate(), site.record_summaries())[1]] == [("web", "done")]
    assert entry(site).fencing == HostFencing()


def test_the_word_of_a_person_ends_it(site: Site, listener: Listener) -> None:
    site.save("web")
    site.agent().write(MUTE)
    fail_to_fence(site)
    site.evacuate(force_down=WORD)
    assert (entry(site).fencing, len(listener.told)) == (HostFencing(), 1)


def test_check_mode_fences_nothing_and_writes_nothing(site: Site, listener: Listener) -> None:
    site.save("web")
    site.agent().write(MUTE)
    before = site.ledger.read_host(host_id("kvm1"))
    run = site.evacuation(check=True)
    run.evacuate_domains()
    assert site.ledger.read_host(host_id("kvm1")) == before
    assert listener.told == []


def test_a_ledger_that_cannot_be_written_does_not_hide_why_the_fencing_failed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web")
    site.agent().write(MUTE)

    def fail(*_given: object) -> t.NoReturn:
        raise Internal("The disk is full.")

    monkeypatch.setattr(fencing_state, "update_entry", fail)
    assert "could not be fenced" in str(fail_to_fence(site))


def test_a_process_that_is_killed_before_the_state_is_written_leaves_nothing_behind(site: Site, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web")
    agent = site.agent()
    agent.write(MUTE)

    def die(*_given: object) -> t.NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fencing_state, "update_entry", die)
        with pytest.raises(KeyboardInterrupt):
            site.evacuate()
    assert not (entry(site).fencing or HostFencing()).is_impossible
    fail_to_fence(site)
    assert len(listener.told) == 1


def test_the_notice_has_the_form_of_its_schema_and_is_true_while_the_state_lasts(site: Site, listener: Listener) -> None:
    site.save("web")
    site.agent().write(MUTE)
    fail_to_fence(site)
    ((after, detail),) = listener.told
    (event,) = make_host_events(after, detail, site.ledger.ledger_id)
    check_document("host-notice.json", event)
    assert event["type"] == "io.github.kvmfleet.migration.host.fencing_impossible"
    assert make_host_events(after, detail, site.ledger.ledger_id) == [event]
    assert is_in_entry(str(event["time"]), entry(site))
    assert not is_in_entry("2001-01-01T00:00:00.000Z", entry(site))
    site.evacuate(force_down=WORD)
    assert not is_in_entry(str(event["time"]), entry(site))
    assert make_host_events(entry(site), detail, site.ledger.ledger_id) == []


def test_a_host_that_is_in_service_again_was_fenced_or_need_not_be(site: Site) -> None:
    site.save("web")
    site.agent().write(MUTE)
    fail_to_fence(site)
    identity = HostIdentity("kvm1", host_id("kvm1"), None, None)
    assert make_entry(entry(site), identity, "enabled", None, "ann").fencing == HostFencing()
    kept = make_entry(entry(site), identity, "fenced", "it is off", "ann").fencing
    assert kept
    assert kept.is_impossible
