# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Events of libvirt as dictionaries with names instead of numbers."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.libvirt_events import EVENTS, EventWords, events_lost

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
KEYS = {"host", "uri", "domain", "uuid", "event", "detail", "time"}
WORDS = EventWords("kvm1", "qemu+tcp://kvm1/system", lambda: "2026-11-21T03:00:00.000Z")


@pytest.mark.parametrize(
    ("number", "detail", "said"),
    [
        (0, 0, ("defined", "added")),
        (2, 1, ("started", "migrated")),
        (3, 1, ("suspended", "migrated")),
        (3, 7, ("suspended", "post_copy")),
        (3, 8, ("post_copy_failed", "source")),
        (4, 4, ("post_copy_failed", "destination")),
        (4, 3, ("resumed", "post_copy")),
        (5, 2, ("stopped", "crashed")),
        (5, 3, ("stopped", "migrated")),
        (8, 0, ("crashed", "panicked")),
        (5, 99, ("stopped", "99")),
        (42, 1, ("42", "1")),
    ],
)
def test_lifecycle_events_have_names_and_details(number: int, detail: int, said: tuple[str, str]) -> None:
    event = WORDS.lifecycle_event("web1", UUID, number, detail)
    assert (event["event"], event["detail"]) == said
    assert (event["host"], event["uri"], event["domain"], event["uuid"]) == ("kvm1", "qemu+tcp://kvm1/system", "web1", UUID)


def test_every_event_is_flat_and_has_the_same_keys() -> None:
    events = [
        WORDS.lifecycle_event("web1", UUID, 5, 3),
        WORDS.job_completed("web1", UUID, {"operation": 5, "time_elapsed": 1900, "downtime": 96, "memory_page_size": 4096}),
        WORDS.iteration("web1", UUID, 3),
        WORDS.host_changed("host_gone", "it stopped answering", 31.4, {}),
        WORDS.host_changed("host_back", "", 300.2, {"was": "gone"}),
        events_lost(7, "2026-11-21T03:00:00.000Z"),
    ]
    for event in events:
        assert set(event) >= KEYS
        assert all(isinstance(value, str | int) for value in event.values()), event
    assert {event["event"] for event in events[:-1]} <= set(EVENTS)


def test_a_completed_job_has_only_the_figures_that_libvirt_reported() -> None:
    event = WORDS.job_completed("web1", UUID, {"operation": 5, "time_elapsed": 1900, "downtime": 96})
    assert (event["detail"], event["elapsed_ms"], event["downtime_ms"]) == ("migration_out", 1900, 96)
    assert "data_total_bytes" not in event
    assert WORDS.job_completed("web1", UUID, {})["detail"] == "unknown"


@pytest.mark.parametrize(("state", "reason", "side"), [(3, 13, "source"), (1, 11, "destination"), (3, 12, None), (1, 1, None), (5, 13, None)])
def test_a_broken_post_copy_is_recognised_by_state_and_reason(state: int, reason: int, side: str | None) -> None:
    event = WORDS.state("web1", UUID, state, reason)
    assert (event and (event["event"], event["detail"])) == (side and ("post_copy_failed", side))


def test_control_characters_of_a_name_are_escaped() -> None:
    assert WORDS.lifecycle_event("web\x1b[2J", UUID, 2, 0)["domain"] == "web\\x1b[2J"


@pytest.mark.parametrize("begin", ["{{", "{%", "{#", "{{{"])
def test_no_text_of_an_event_begins_a_template(begin: str) -> None:
    """Rulebooks pass events to playbooks as extra variables, and these are templates to Ansible."""
    evil = f"it said {begin} lookup('pipe', 'id') }}}}"
    changed = WORDS.host_changed("host_isolated", evil, 31.4, {"signals": {"libvirt": evil}, "silent": ["kvm1"]})
    signals = changed["signals"]
    assert isinstance(signals, dict)
    for text in (WORDS.lifecycle_event(evil, UUID, 2, 0)["domain"], changed["detail"], signals["libvirt"]):
        assert isinstance(text, str)
        assert "lookup('pipe', 'id')" in text
        assert not any(two in text for two in ("{{", "{%", "{#"))
