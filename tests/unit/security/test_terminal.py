# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No name and no reason that somebody else wrote steers a terminal, hides a line or makes up one."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.kvmfleet.migration.plugins.module_utils import _errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable, printable_text
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.known import Known
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.result import host_result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.table import plan_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.table import result_lines as drain_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.wish import Wish
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._progress import line_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._protect.answer import notes
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.result import problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.result import result_lines as recovery_lines
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils.test__action import TASK_VARS, Reading

# Escape sequences of seven and of eight bits, a made-up line, a backspace, and letters that are shown from right to left.
EVIL = "a\x1b[2Jb\x9b31mc\nkvm1: Safe to reboot.\rd\x08\x7f\u202ee\u2066\u2028f"
CLEAN = re.compile(r"[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]*")
ROLES = Path(__file__).parents[3] / "roles"


def is_clean(lines: t.Iterable[str]) -> bool:
    return all(CLEAN.fullmatch(line) for line in lines)


def test_what_cannot_be_printed_stands_as_an_escape_and_the_rest_as_it_is() -> None:
    assert printable("größe 网\u200d") == "größe 网\\u200d"
    assert printable("a\x1bb\x9bc\nd\udcff") == "a\\x1bb\\x9bc\\nd\\udcff"
    assert printable_text("one\ntwo\x9b") == "one\ntwo\\x9b"
    assert is_clean([printable(EVIL)])


def test_the_tables_of_a_drain() -> None:
    guests = [f.domain(EVIL, 512), f.domain("huge" + EVIL, 60000), f.domain("stop" + EVIL, drain="shutdown"), f.domain("left" + EVIL, drain="leave")]
    facts = {"kvm1": f.host("kvm1", domains=guests), "kvm2": f.host("kvm2", 800), "kvm3": f.host("kvm3", 4096)}
    plan = make_plan(Known(facts), ["kvm1"], ["kvm2", "kvm3"], Wish(n_plus_one=True))
    shown = plan_lines(plan)
    assert len(shown) > len(guests)
    assert is_clean(shown)
    result = drain_lines({"kvm1": host_result("kvm1", plan, facts, [], [], [EVIL])})
    assert is_clean(result)
    assert [line for line in result if line.startswith("kvm1: Safe")] == []


def test_the_lines_of_a_move() -> None:
    record = schema.new_record("live-migration", {"uuid": "u", "name": EVIL}, schema.place("kvm1"), schema.place(EVIL), {}, "x")
    assert is_clean([line_of({**record, "reason": EVIL})])


def test_the_table_and_the_problems_of_a_recovery() -> None:
    named = {"uuid": "u", "name": EVIL, "reason": EVIL, "paths": [EVIL], "what": "start", "source": EVIL}
    lists = {key: [named] for key in ("cleaned", "superseded", "deleted", "kept", "refused", "started", "brought_home", "skipped", "failed")}
    own = {**lists, "notes": [EVIL], "released": True, "enabled": True, "error": EVIL}
    assert is_clean([*recovery_lines({"kvm1": own}), *problems(own)])


def test_the_notes_of_protect() -> None:
    named = {"msg": EVIL, "name": EVIL, "reason": EVIL, "saved_at": EVIL, "state": EVIL, "target": EVIL, "path": EVIL}
    lists = {key: [named] for key in ("conflicts", "skipped", "missing", "unproved")}
    end = {"host": EVIL}
    forgotten = {
        "domain": {"name": EVIL, "uuid": EVIL},
        "id": EVIL,
        "type": EVIL,
        "status": EVIL,
        "ledger_status": EVIL,
        "remembered_by": EVIL,
        "source": end,
        "destination": end,
    }
    assert is_clean(notes({**lists, "missing_records": [forgotten], "guard": {"note": EVIL}}, {EVIL: EVIL}))


def test_the_message_of_every_error_and_the_warnings_of_every_action() -> None:
    assert is_clean(e.Conflict(EVIL, EVIL).as_result()["msg"].split("\n"))
    assert is_clean(Reading({"failed": True, "msg": EVIL}).run(task_vars=TASK_VARS)["msg"].split("\n"))
    warnings = Reading({"warnings": [EVIL]}).run(task_vars=TASK_VARS)["warnings"]
    assert is_clean(line for warning in warnings for line in warning.split("\n"))


@pytest.mark.parametrize("role", ["evacuate_host", "recover_host"])
@pytest.mark.parametrize("character", [character for character in EVIL if not CLEAN.fullmatch(character)], ids=ascii)
def test_the_expression_by_which_roles_show_names(character: str, role: str) -> None:
    pattern = yaml.safe_load((ROLES / role / "vars/main.yml").read_text())[f"__{role}_unprintable"]
    assert re.sub(pattern, "?", f"wéb 1-{character}") == "wéb 1-?"
