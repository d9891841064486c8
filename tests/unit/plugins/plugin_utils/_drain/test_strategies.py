# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which of its strategies a drain uses for a domain, and where domains go that do not move live."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import ColdMove
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs, DrainOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan_entries import PlannedColdMove
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import DrainPlan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.strategies import choose_strategy
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.tables import plan_lines
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import record

FOLDER = "/srv/images/saved"
OFF: dict[str, t.Any] = {"state": "shut off", "reason": "shutdown", "active": False}
LOCAL = [f.disk("vda", shared=False)]


def plan_of(*guests: dict[str, t.Any], mib: int = 8192, there: t.Sequence[dict[str, t.Any]] = (), **given: t.Any) -> DrainPlan:
    known = {key: given.pop(key) for key in ("policies", "records") if key in given}
    facts = {"kvm1": f.host("kvm1", domains=guests), "kvm2": f.host("kvm2", mib, domains=there)}
    return make_plan(DrainInputs(facts, **known), ["kvm1"], ["kvm2"], DrainOptions.from_values(**given))


def cold(plan: DrainPlan) -> list[tuple[str, str, bool, str]]:
    return [(move.name, move.method, move.start, move.destination) for move in plan.cold_moves or ()]


def passed(entry: t.Any) -> list[str]:
    return [one.strategy for one in entry.not_possible or ()]


def test_the_first_possible_strategy_is_chosen_and_the_earlier_ones_have_their_reasons() -> None:
    problems: dict[str, str | None] = {"migrate": "It is pinned.", "save": None, "leave": None}
    choice = choose_strategy(("migrate", "save", "leave"), problems.get)
    assert (choice.strategy, [(one.strategy, one.reason) for one in choice.passed]) == ("save", [("migrate", "It is pinned.")])
    assert choose_strategy(("migrate", "save", "leave"), problems.get, {"save": "No host can accept it."}).strategy == "leave"


def test_without_a_possible_strategy_each_reason_is_named() -> None:
    none = choose_strategy(("migrate", "save"), {"migrate": "It is pinned.", "save": "There is no folder."}.get)
    assert none.strategy is None
    assert none.reason == "migrate is not possible. It is pinned. save is not possible. There is no folder."
    assert choose_strategy(("migrate",), {"migrate": "It is pinned."}.get).reason == "It is pinned."


def test_strategies_and_definitions_each_become_a_cold_move() -> None:
    guests = [f.domain("live"), f.domain("saved", drain="save"), f.domain("stopped", drain="shutdown"), f.domain("off", **OFF, autostart=True)]
    plan = plan_of(*guests, save_folder=FOLDER, shut_off="move", restart=True)
    assert [move.name for move in plan.moves] == ["live"]
    assert cold(plan) == [("saved", "save", True, "kvm2"), ("stopped", "shutdown", True, "kvm2"), ("off", "offline", False, "kvm2")]
    assert (plan.shutdowns, plan.unplaced, plan.skipped) == ((), (), ())
    assert "SAVES  saved on kvm1, restores it on kvm2" in "\n".join(plan_lines(plan))


def test_domains_that_are_off_stay_unless_they_are_to_move() -> None:
    plan = plan_of(f.domain("off", **OFF))
    assert (cold(plan), [entry.reason for entry in plan.skipped]) == ([], ["It is shut off: its definition stays."])


def test_a_domain_that_is_shut_down_stays_or_moves_its_definition_or_starts_elsewhere() -> None:
    guest = f.domain("web", drain="shutdown")
    assert [entry.name for entry in plan_of(guest).shutdowns] == ["web"]
    assert cold(plan_of(guest, shut_off="move")) == [("web", "shutdown", False, "kvm2")]
    assert cold(plan_of(guest, restart=True)) == [("web", "shutdown", True, "kvm2")]


def test_the_plan_says_that_nothing_starts_a_transient_domain_again() -> None:
    (lasting,) = plan_of(f.domain("web", drain="shutdown")).shutdowns
    (transient,) = plan_of(f.domain("web", drain="shutdown", persistent=False)).shutdowns
    assert transient.reason == f"{lasting.reason} It is transient, so its definition ends with it, and nothing starts it again."


def test_a_domain_that_cannot_move_live_is_started_elsewhere() -> None:
    guest = f.domain("web", drain=["migrate", "shutdown"], blockers=["It has the folder 'x' of its host through 9p."])
    assert cold(plan_of(guest, restart=True)) == [("web", "shutdown", True, "kvm2")]


def test_the_strategies_of_the_drain_apply_where_no_policy_says_anything() -> None:
    guests = [f.domain("any"), f.domain("own", policy={"drain": "migrate"})]
    plan = plan_of(*guests, strategies=["save"], save_folder=FOLDER)
    assert (cold(plan), [move.name for move in plan.moves]) == ([("any", "save", True, "kvm2")], ["own"])
    assert [move.name for move in plan_of(f.domain("any"), strategies=["leave"], policies={"kvm1": {"drain": "migrate"}}).moves] == ["any"]


@pytest.mark.parametrize(
    ("changes", "drain", "used", "words"),
    [
        ({"disks": LOCAL}, ["migrate", "shutdown"], "shutdown", "It writes to storage of kvm1 alone"),
        ({"blockers": ["It has a device of its host."]}, ["migrate", "shutdown"], "shutdown", "cannot be moved live"),
        ({"labels": ["ssd"]}, ["migrate", "save", "leave"], "leave", "No host can accept it"),
        ({"state": "paused", "reason": "user"}, ["shutdown", "migrate"], "migrate", "only a running domain can be shut down"),
    ],
)
def test_a_strategy_that_is_not_possible_gives_way_to_the_next_one(changes: dict[str, t.Any], drain: list[str], used: str, words: str) -> None:
    plan = plan_of(f.domain("web", drain=drain, **changes), f.domain("other"), save_folder=FOLDER)
    parts: dict[str, t.Any] = {"shutdown": plan.shutdowns, "leave": plan.skipped, "migrate": [move for move in plan.moves if move.name == "web"]}
    (entry,) = parts[used]
    assert passed(entry) == drain[: drain.index(used)]
    assert f"{drain[0]} is not possible. " in entry.reason
    assert words in entry.reason
    assert "other" in [move.name for move in plan.moves]


@pytest.mark.parametrize(
    ("changes", "given", "words"),
    [
        ({"drain": "save"}, {}, "No folder for its memory is given"),
        ({"drain": "save", "disks": LOCAL}, {"save_folder": FOLDER}, "only a live move can copy that"),
        ({"drain": "save", "persistent": False}, {"save_folder": FOLDER}, "It is transient"),
        ({"drain": "shutdown", "persistent": False}, {"restart": True}, "It is transient"),
        ({"drain": ["save", "shutdown"], "disks": LOCAL}, {"restart": True}, "shutdown is not possible. It writes to storage of kvm1 alone"),
    ],
)
def test_a_domain_without_a_possible_strategy_is_unplaced_with_the_reasons(changes: dict[str, t.Any], given: dict[str, t.Any], words: str) -> None:
    plan = plan_of(f.domain("web", **changes), **given)
    assert [entry.name for entry in plan.unplaced] == ["web"]
    assert words in plan.unplaced[0].reason


def test_guests_that_run_at_the_destination_need_memory_there_and_definitions_do_not() -> None:
    guests = [f.domain("a", 4096, drain="save"), f.domain("b", 4096, drain=["shutdown", "leave"]), f.domain("off", 4096, **OFF)]
    plan = plan_of(*guests, mib=6144, save_folder=FOLDER, shut_off="move", restart=True)
    assert cold(plan) == [("a", "save", True, "kvm2"), ("off", "offline", False, "kvm2")]
    assert [(entry.name, passed(entry)) for entry in plan.skipped] == [("b", ["shutdown"])]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"disks": LOCAL}, "only a live move can copy that"),
        ({"drain": "leave"}, "Its policy leaves it on the host"),
        ({"policy": {"profile": "gone"}}, "There is no profile 'gone'"),
        ({"machine": "pc-q35-9.9"}, "No host can accept it"),
    ],
)
def test_a_definition_that_cannot_move_is_named_and_does_not_make_the_drain_fail(changes: dict[str, t.Any], words: str) -> None:
    plan = plan_of(f.domain("off", **OFF, **changes), f.domain("web"), shut_off="move")
    assert (cold(plan), plan.unplaced, [move.name for move in plan.moves]) == ([], (), ["web"])
    assert words in plan.skipped[0].reason
    assert plan.skipped[0].reason.endswith("Its definition stays.")


def old_libvirt_plan(guest: dict[str, t.Any], versions: dict[str, int], **given: t.Any) -> DrainPlan:
    """Return the plan of a guest on kvm1, in a fleet of three with these versions of libvirt; 9.0 for the others."""
    guests: dict[str, t.Any] = {"kvm1": [guest]}
    known = {host: {"libvirt": versions.get(host, 9000000), "hypervisor": f.HYPERVISOR} for host in ("kvm1", "kvm2", "kvm3")}
    facts = {host: f.host(host, domains=guests.get(host, ()), versions=known[host]) for host in known}
    return make_plan(DrainInputs(facts), ["kvm1"], ["kvm2", "kvm3"], DrainOptions.from_values(save_folder=FOLDER, restart=True, **given))


@pytest.mark.parametrize("method", ["save", "shutdown"])
def test_a_domain_with_a_tpm_moves_cold_only_between_libvirts_that_keep_its_state(method: str) -> None:
    guest = f.domain("win", drain=[method, "migrate"], tpm=True)
    assert [move[1:] for move in cold(old_libvirt_plan(guest, {"kvm2": 8008000}))] == [(method, True, "kvm3")]
    for versions, words in (({"kvm1": 8008000}, "the libvirt of kvm1 would delete"), ({"kvm2": 8008000, "kvm3": 8008000}, "would delete the state of the TPM")):
        plan = old_libvirt_plan(guest, versions)
        assert (cold(plan), [passed(move) for move in plan.moves]) == ([], [[method]])
        assert words in plan.moves[0].reason
    kept = f.domain("win", drain=[method], tpm=True, tpm_persistent=True)
    assert len(cold(old_libvirt_plan(kept, dict.fromkeys(("kvm1", "kvm2", "kvm3"), 8008000)))) == 1


def test_a_domain_with_a_tpm_that_is_only_moved_cold_is_unplaced_where_its_state_would_be_deleted() -> None:
    plan = old_libvirt_plan(f.domain("win", drain="shutdown", tpm=True), {"kvm1": 8008000})
    assert (cold(plan), [entry.name for entry in plan.unplaced]) == ([], ["win"])
    assert "Update libvirt on kvm1" in plan.unplaced[0].reason
    off = old_libvirt_plan(f.domain("win", **OFF, tpm=True), {"kvm2": 8008000, "kvm3": 8008000}, shut_off="move")
    assert (cold(off), [entry.name for entry in off.skipped]) == ([], ["win"])


def test_a_definition_goes_to_no_host_without_an_emulator_of_its_tpm() -> None:
    """A cold move of a domain that stays off is judged by the same rules."""
    without = [{"arch": "x86_64", "virt_type": "kvm", "machines": ["pc-q35-7.2"], "firmware": {"loaders": [], "tpm_backends": []}}]
    facts = {"kvm1": f.host("kvm1", domains=[f.domain("win", **OFF, tpm=True)]), "kvm2": f.host("kvm2", platforms=without)}
    plan = make_plan(DrainInputs(facts), ["kvm1"], ["kvm2"], DrainOptions.from_values(shut_off="move"))
    assert cold(plan) == []
    assert "swtpm is not installed" in plan.skipped[0].reason


def test_the_saved_memory_of_a_domain_that_is_off_goes_to_no_host_with_another_cpu() -> None:
    """It is restored there. Without saved memory, the guest is given the CPU of its new host."""
    cpu = {"model": "Haswell", "vendor": "Intel", "features": f.FEATURES}

    def plan_off(reason: str, **saved: bool) -> DrainPlan:
        guest = {**f.domain("off", **{**OFF, "reason": reason}, cpu={"mode": "host-passthrough"}), **{f"managed_{key}": value for key, value in saved.items()}}
        facts = {"kvm1": f.host("kvm1", domains=[guest], host_cpu=cpu), "kvm2": f.host("kvm2", host_cpu={**cpu, "features": []})}
        return make_plan(DrainInputs(facts), ["kvm1"], ["kvm2"], DrainOptions.from_values(shut_off="move"))

    # An earlier version does not report the image. The reason is that of a domain whose image was discarded as well, and libvirt's daemon forgets it.
    for plan in (plan_off("shutdown"), plan_off("saved", save=False), plan_off("", save=False)):
        assert cold(plan) == [("off", "offline", False, "kvm2")]
    for plan in (plan_off("saved"), plan_off("", save=True)):
        assert cold(plan) == []
        assert "has been given the whole CPU of its host" in plan.skipped[0].reason


def test_a_definition_that_is_left_over_from_an_active_domain_never_moves() -> None:
    plan = plan_of(f.domain("off", **OFF), there=[f.domain("off")], shut_off="move")
    assert cold(plan) == []
    assert "It is active on kvm2." in plan.skipped[0].reason


def test_an_interrupted_cold_move_is_finished_with_its_own_method_and_destination() -> None:
    begun = dataclasses.replace(record("web", "kvm1", "kvm2", "running"), type="cold-migration", method="shutdown", cold=ColdMove(True))
    plan = plan_of(f.domain("web", **OFF), records=[begun])
    assert cold(plan) == [("web", "shutdown", True, "kvm2")]


def test_a_live_move_with_a_record_is_not_replaced_by_a_cold_one() -> None:
    plan = plan_of(f.domain("web", drain="save"), save_folder=FOLDER, records=[record("web", "kvm1", "kvm2", "queued")])
    assert cold(plan) == []
    assert "is unsettled (queued)" in plan.unplaced[0].reason


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"strategies": []}, "drain_host_strategies is an empty list"),
        ({"strategies": ["stop"]}, "drain_host_strategies is 'stop'"),
        ({"strategies": ["leave", "save"]}, "Give leave last"),
        ({"strategies": ["migrate", "save"]}, "no folder for the memory"),
        ({"shut_off": "delete"}, "shut_off is 'delete'"),
        ({"restart": "maybe"}, "restart is 'maybe'"),
        ({"save_folder": "saved"}, "drain_host_save_folder is 'saved'"),
        ({"save_folder": "/"}, "drain_host_save_folder is '/'"),
    ],
)
def test_invalid_options_about_strategies_are_refused(given: dict[str, t.Any], words: str) -> None:
    with pytest.raises(Exception, match=r"Nothing was changed\.") as caught:
        DrainOptions.from_values(**given)
    assert (words in str(caught.value), getattr(caught.value, "error_code", "")) == (True, "invalid_argument")


def test_strategies_on_the_command_line_are_text() -> None:
    assert DrainOptions.from_values(strategies="migrate,leave").cold.strategies == ("migrate", "leave")
    assert DrainOptions.from_values(strategies="shutdown").cold.strategies == ("shutdown",)


def test_options_with_their_defaults_are_not_written_into_the_plan() -> None:
    options = vars(plan_of(f.domain("a"), strategies=["migrate"], shut_off="leave").options)
    assert {field for field, value in options.items() if value is ABSENT} == {"strategies", "shut_off", "restart", "save_folder"}
    assert plan_of(f.domain("a"), shut_off="move", restart=True).options.shut_off == "move"


def test_cold_moves_are_entries_of_the_plan_with_what_the_domain_needs() -> None:
    (move,) = plan_of(f.domain("web", 512, drain="save"), save_folder=FOLDER).cold_moves or ()
    assert isinstance(move, PlannedColdMove)
    assert (move.memory_mib, move.request["memory_mib"], move.stops_guest) == (512, 512, True)
