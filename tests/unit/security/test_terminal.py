# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names and reasons from other users cannot control a terminal, hide a line or forge one."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import printable_line, printable_text
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import progress_line
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs, DrainOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.result import build_host_result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.tables import plan_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.tables import result_lines as drain_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.job import ListedDomain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.result import (
    EvacuatedDomain,
    EvacuationPlan,
    EvacuationResult,
    FailedDomain,
    HostLabel,
    describe_problem,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.result import plan_lines as evacuation_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.result import result_lines as evacuation_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import RememberedMove
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_documents import UnprovedImage
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_domains import (
    ConflictingDomain,
    ListedDocument,
    ProtectOutcome,
    SkippedDomain,
    list_notes,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.result import HostRecovery, list_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.result import result_lines as recovery_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import read_facts
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils.test__action import TASK_VARS, Reading

# Escape sequences of seven and of eight bits, a made-up line, a backspace, and letters that are shown from right to left.
EVIL = "a\x1b[2Jb\x9b31mc\nkvm1: Safe to reboot.\rd\x08\x7f\u202ee\u2066\u2028f"
CLEAN = re.compile(r"[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]*")
ROLES = Path(__file__).parents[3] / "roles"


def is_clean(lines: t.Iterable[str]) -> bool:
    return all(CLEAN.fullmatch(line) for line in lines)


def test_unprintable_characters_are_escaped_and_others_kept() -> None:
    assert printable_line("größe 网\u200d") == "größe 网\\u200d"
    assert printable_line("a\x1bb\x9bc\nd\udcff") == "a\\x1bb\\x9bc\\nd\\udcff"
    assert printable_text("one\ntwo\x9b") == "one\ntwo\\x9b"
    assert is_clean([printable_line(EVIL)])


def test_the_tables_of_a_drain_are_printable() -> None:
    guests = [f.domain(EVIL, 512), f.domain("huge" + EVIL, 60000), f.domain("stop" + EVIL, drain="shutdown"), f.domain("left" + EVIL, drain="leave")]
    facts = {"kvm1": f.host("kvm1", domains=guests), "kvm2": f.host("kvm2", 800), "kvm3": f.host("kvm3", 4096)}
    plan = make_plan(DrainInputs(facts), ["kvm1"], ["kvm2", "kvm3"], DrainOptions(n_plus_one=True))
    shown = plan_lines(plan)
    assert len(shown) > len(guests)
    assert is_clean(shown)
    result = drain_lines({"kvm1": build_host_result("kvm1", plan, {name: read_facts(one) for name, one in facts.items()}, [], [], [EVIL])})
    assert is_clean(result)
    assert [line for line in result if line.startswith("kvm1: Safe")] == []


def test_the_progress_lines_of_a_move_are_printable() -> None:
    record = new_record("live-migration", DomainRef("u", EVIL), HostRef("kvm1", None, None), HostRef(EVIL, None, None), {}, "x")
    assert is_clean([progress_line(dataclasses.replace(record, reason=EVIL))])


def test_the_table_and_the_problems_of_a_recovery_are_printable() -> None:
    named = {"uuid": "u", "name": EVIL, "reason": EVIL, "paths": [EVIL], "what": "start", "source": EVIL}
    lists = {key: [named] for key in ("cleaned", "superseded", "deleted", "kept", "refused", "started", "stayed_off", "brought_home", "skipped", "failed")}
    own = decode(HostRecovery, {**lists, "notes": [EVIL], "released": True, "enabled": True, "error": EVIL})
    assert is_clean([*recovery_lines({"kvm1": own}), *list_problems(own)])


def test_the_notes_of_protect_are_printable() -> None:
    end = HostRef(EVIL, None, None)
    outcome = ProtectOutcome(
        missing=[ListedDocument("u", EVIL, EVIL, EVIL, EVIL, 1, (EVIL,))],
        conflicts=[ConflictingDomain("u", EVIL, EVIL)],
        skipped=[SkippedDomain("u", EVIL, EVIL)],
        unproved=[UnprovedImage("u", EVIL, EVIL, EVIL, EVIL)],
        missing_records=[RememberedMove(EVIL, 1, EVIL, EVIL, DomainRef(EVIL, EVIL), end, end, None, EVIL, EVIL)],
    )
    assert is_clean(list_notes(outcome, EVIL, {EVIL: EVIL}))


def test_error_messages_and_warnings_of_actions_are_printable() -> None:
    assert is_clean(e.Conflict(EVIL, EVIL).as_result()["msg"].split("\n"))
    assert is_clean(Reading({"failed": True, "msg": EVIL}).run(task_vars=TASK_VARS)["msg"].split("\n"))
    warnings = Reading({"warnings": [EVIL]}).run(task_vars=TASK_VARS)["warnings"]
    assert is_clean(line for warning in warnings for line in warning.split("\n"))


def test_the_plan_and_the_result_of_an_evacuation_are_printable() -> None:
    listed = ListedDomain("u", EVIL, reasons=(EVIL,), reason=EVIL)
    plan = EvacuationPlan(HostLabel(EVIL), (), (listed,), (listed,), (listed,), shares={EVIL: ("u",)})
    result = EvacuationResult((EvacuatedDomain("u", EVIL, EVIL, EVIL, EVIL),), (FailedDomain("u", EVIL, EVIL),), (), (listed,), (listed,), ())
    assert is_clean([*evacuation_plan(plan), *evacuation_lines({EVIL: result}, check_mode=False), describe_problem({EVIL: result})])


@pytest.mark.parametrize("character", [character for character in EVIL if not CLEAN.fullmatch(character)], ids=ascii)
def test_the_expression_of_a_role_replaces_unprintable_characters(character: str) -> None:
    pattern = yaml.safe_load((ROLES / "recover_host/vars/main.yml").read_text())["__recover_host_unprintable"]
    assert re.sub(pattern, "?", f"wéb 1-{character}") == "wéb 1-?"
