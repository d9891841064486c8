# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An administrator takes C(override_policy) away, in the inventory or in the ledger: in either store, for all tasks, until it is allowed again."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, InvalidArgument, NotSupported
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import find_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.copying import copy_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import LedgerSettings
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.override import (
    check_override,
    decide_override,
    decided_settings,
    keep_override_decision,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import OVERRIDE_VARIABLE, Settings
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store

BY = "ann@control pid 7"


def inventory(value: t.Any = None) -> Settings:
    return Settings({"hostvars": {"kvm1": {} if value is None else {OVERRIDE_VARIABLE: value}}})


def refusal(ledger: Ledger | None, settings: Settings) -> str:
    check_override(ledger, settings, "kvm1", is_requested=False)
    with pytest.raises(Forbidden) as caught:
        check_override(ledger, settings, "kvm1", is_requested=True)
    return str(caught.value)


@pytest.mark.parametrize("value", [None, True, "true", "yes", 1])
def test_it_is_allowed_by_default(ledger: Ledger, value: t.Any) -> None:
    for known in (ledger, None):
        check_override(known, inventory(value), "kvm1", is_requested=True)
    assert keep_override_decision(ledger, inventory(value), "kvm1", BY) == []
    assert ledger.read_settings() is None


@pytest.mark.parametrize("value", [False, "false", "no", "off", 0])
def test_the_variable_takes_it_away_and_names_who_can_change_that(ledger: Ledger, value: t.Any) -> None:
    for known in (ledger, None):
        text = refusal(known, inventory(value))
        assert "kvmfleet_override_policy_allowed of kvm1 is false" in text
        assert "Whoever maintains the inventory can change that" in text
        assert "Nothing was moved" in text


@pytest.mark.parametrize("value", ["perhaps", "", 2, [], {}])
def test_a_variable_that_is_no_boolean_is_refused_without_a_change(ledger: Ledger, value: t.Any) -> None:
    with pytest.raises(InvalidArgument, match="kvmfleet_override_policy_allowed of kvm1 is"):
        keep_override_decision(ledger, inventory(value), "kvm1", BY)
    assert ledger.read_settings() is None


def test_the_first_run_with_the_variable_false_keeps_that_in_the_ledger(store: Store, ledger: Ledger) -> None:
    (warning,) = keep_override_decision(ledger, inventory(False), "kvm1", BY)
    assert ledger.name in warning
    assert "ledger_settings" in warning
    assert keep_override_decision(ledger, inventory(False), "kvm1", "bob") == []
    text = refusal(store.open(), inventory(True))
    assert f"{BY} has taken it away at " in text
    assert "(kvmfleet_override_policy_allowed was false)" in text
    assert "Ask the administrator of the ledger" in text


def test_a_person_decides_with_a_reason_and_all_decisions_are_kept(ledger: Ledger) -> None:
    before, after = decide_override(ledger, False, "Owners decide", BY)
    assert (before.override_policy_allowed, after.override_policy_allowed) == (True, False)
    assert decide_override(ledger, False, "Again", "bob") == (after, after)
    assert "(Owners decide)" in refusal(ledger, inventory())
    allowed = decide_override(ledger, True, "New racks", "bob")[1]
    check_override(ledger, inventory(), "kvm1", is_requested=True)
    notes = [(note["by"], note["override_policy_allowed"], note["reason"]) for note in allowed.decisions or ()]
    assert notes == [(BY, False, "Owners decide"), ("bob", True, "New racks")]
    assert decided_settings(ledger, ledger.read_settings()) == allowed


def test_a_decision_that_is_only_predicted_is_not_written(ledger: Ledger) -> None:
    assert decide_override(ledger, False, "Owners decide", BY, write=False)[1].override_policy_allowed is False
    assert ledger.read_settings() is None


def test_a_decision_on_an_older_version_is_a_conflict(ledger: Ledger) -> None:
    decide_override(ledger, False, "Owners decide", BY)
    for version in (None, 2):
        with pytest.raises(Conflict, match="the settings of the ledger"):
            ledger.put_settings(LedgerSettings(ledger.ledger_id, True), version)
    assert "(Owners decide)" in refusal(ledger, inventory())


def test_settings_that_were_damaged_forbid_it_until_somebody_decides(store: Store, ledger: Ledger) -> None:
    decide_override(ledger, False, "Owners decide", BY)
    store.write(f"settings/{ledger.ledger_id}.json", b"torn")
    for _time in range(2):
        assert "The settings of the ledger were damaged and set aside" in refusal(ledger, inventory())
    assert any("set_aside" in problem for problem in ledger.problems)
    decide_override(ledger, False, "As before", BY)
    assert "(As before)" in refusal(ledger, inventory())
    decide_override(ledger, True, "Looked at it", BY)
    check_override(ledger, inventory(), "kvm1", is_requested=True)


@pytest.mark.parametrize("allowed", ["no", None, 0])
def test_settings_without_a_boolean_count_as_damaged(store: Store, ledger: Ledger, allowed: t.Any) -> None:
    document = {"schema": 1, "ledger_id": ledger.ledger_id, "override_policy_allowed": allowed}
    store.write(f"settings/{ledger.ledger_id}.json", encode_document(document, 1))
    assert "damaged" in refusal(ledger, inventory())


def test_settings_of_a_later_version_are_not_guessed(store: Store, ledger: Ledger) -> None:
    document = {"schema": 2, "ledger_id": ledger.ledger_id, "override_policy_allowed": True}
    store.write(f"settings/{ledger.ledger_id}.json", encode_document(document, 1))
    with pytest.raises(NotSupported, match="schema is 2"):
        check_override(ledger, inventory(), "kvm1", is_requested=True)


def test_the_settings_move_with_the_ledger(store: Store, ledger: Ledger, other_store: Store) -> None:
    decide_override(ledger, False, "Owners decide", BY)
    assert ledger.examine_contents(find_problems).all_problems == []
    copy_ledger(ledger, other_store.target(), BY)
    copied = other_store.open()
    assert store.read(f"settings/{ledger.ledger_id}.json") == other_store.read(f"settings/{ledger.ledger_id}.json")
    assert "(Owners decide)" in refusal(copied, inventory())


def test_unknown_keys_of_the_settings_are_kept(store: Store, ledger: Ledger) -> None:
    document = {"schema": 1, "ledger_id": ledger.ledger_id, "override_policy_allowed": True, "novel": [1]}
    store.write(f"settings/{ledger.ledger_id}.json", encode_document(document, 1))
    decide_override(ledger, False, "Owners decide", BY)
    found = ledger.read_settings()
    assert found is not None
    assert (found.version, found.body["novel"]) == (2, [1])
