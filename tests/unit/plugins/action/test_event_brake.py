# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The task C(event_brake): what it takes, what it refuses, and what it leaves alone in check mode."""

from __future__ import annotations

import datetime
import json
import pathlib
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.event_brake import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, InvalidArgument, KvmfleetError, NotFound, Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.brake_document import BrakeDocument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

Task = t.Callable[..., dict[str, t.Any]]


@pytest.fixture
def task(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    """Return a function that runs the task for a user whose state is below the test's folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def run(check_mode: bool = False, own: t.Any = None, others: t.Any = None, **args: t.Any) -> dict[str, t.Any]:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(args=args, async_val=0, check_mode=check_mode, diff=False, delegate_to=None)
        return action.run_with_options(task_vars("localhost", own, others))

    return run


def make_ledger(folder: pathlib.Path) -> FileLedger:
    """Create the user's own ledger."""
    return FileLedger(str(folder / "kvmfleet" / "ledger"))


def read_brake(folder: pathlib.Path) -> BrakeDocument:
    found = FileLedger(str(folder / "kvmfleet" / "ledger")).read_brake()
    assert found
    return found.brake


def test_a_slot_is_taken_once_and_can_be_released(task: Task, tmp_path: pathlib.Path) -> None:
    first = task(host="kvm1")
    assert (first["changed"], [place["host"] for place in first["places"]]) == (True, ["kvm1"])
    ledger = str(tmp_path / "kvmfleet" / "ledger")
    assert task(host="kvm1") == {"changed": False, "places": first["places"], "armed": True, "ledger": ledger}
    with pytest.raises(Conflict):
        task(host="kvm2")
    assert task(host="kvm1", state="released") == {"changed": True, "places": [], "armed": True, "ledger": ledger}
    assert task(host="kvm2")["changed"]
    assert [slot.host for slot in read_brake(tmp_path).slots] == ["kvm2"]


def test_check_mode_predicts_and_writes_nothing(task: Task, tmp_path: pathlib.Path) -> None:
    predicted = task(check_mode=True, host="kvm1")
    assert (predicted["changed"], predicted["ledger"]) == (True, None)
    assert not (tmp_path / "kvmfleet").exists()
    task(host="kvm1")
    with pytest.raises(Conflict):
        task(check_mode=True, host="kvm2")


def test_a_check_takes_no_slot_and_notes_silent_hosts(task: Task, tmp_path: pathlib.Path) -> None:
    assert task(host="kvm1", state="checked")["places"] == []
    task(host="kvm9", reaction="other")
    for check_mode, noted in ((True, 0), (False, 1)):
        with pytest.raises(Conflict, match="2 hosts are silent at once"):
            task(check_mode=check_mode, host="kvm1", state="checked", silent=["kvm2"])
        assert (len(read_brake(tmp_path).incidents), len(read_brake(tmp_path).slots)) == (noted, 1)


def test_hosts_that_are_silent_for_a_known_cause_do_not_count(task: Task, tmp_path: pathlib.Path) -> None:
    ledger = make_ledger(tmp_path)
    for number, state in enumerate(("fenced", "maintenance", "enabled"), 1):
        host_id = f"11111111-0000-4000-8000-00000000000{number}"
        ledger.put_host(host_entry({"host_id": host_id, "host_uuid": host_id, "name": f"kvm{number}", "state": state}), None)
    assert task(host="kvm4", silent=["kvm1", "kvm2", "kvm4"], reaction="evacuate")["changed"]
    # The guests that could not be started when kvm1 was fenced, while kvm6 dies.
    assert not task(host="kvm1", silent=["kvm1", "kvm6"], state="checked", reaction="left")["changed"]
    with pytest.raises(Conflict):
        task(host="kvm5", silent=["kvm3"], reaction="other")


def test_an_isolated_host_must_be_in_the_ledger(task: Task, tmp_path: pathlib.Path) -> None:
    with pytest.raises(NotFound):
        task(host="kvm1", isolated="its lease is renewed")
    host_id = "11111111-0000-4000-8000-000000000001"
    ledger = make_ledger(tmp_path)
    ledger.put_host(host_entry({"host_id": host_id, "host_uuid": host_id, "name": "kvm1", "state": "enabled"}), None)
    assert task(host="kvm1", isolated="its lease is renewed") == {"changed": True, "places": [], "armed": True, "ledger": ledger.path}
    assert read_brake(tmp_path).incidents[0].host_id == host_id


def test_slots_of_an_earlier_version_count_and_are_moved_once(task: Task, tmp_path: pathlib.Path) -> None:
    events = tmp_path / "kvmfleet" / "events"
    events.mkdir(parents=True)
    at = datetime.datetime.now(datetime.UTC).isoformat()
    (events / "brake.json").write_text(json.dumps({"places": [{"reaction": "evacuate", "host": "kvm9", "at": at}]}))
    with pytest.raises(Conflict, match="kvm9"):
        task(host="kvm1")
    assert (events / "brake.json").exists()
    assert [place["host"] for place in task(host="kvm1", hosts=2)["places"]] == ["kvm9", "kvm1"]
    assert [path.name for path in events.iterdir()] == ["brake.json.moved"]
    assert task(host="kvm9", state="released")["places"]
    assert [slot.host for slot in read_brake(tmp_path).slots] == ["kvm1"]


def test_a_damaged_brake_blocks_all_reactions_until_a_person_arms_them(task: Task, tmp_path: pathlib.Path) -> None:
    task(host="kvm1")
    ledger = tmp_path / "kvmfleet" / "ledger"
    (document,) = (ledger / "brake").iterdir()
    document.write_text("{")
    for check_mode in (True, False):
        with pytest.raises(Unsafe, match="was damaged"):
            task(check_mode=check_mode, host="kvm1")
    assert task(state="armed") == {"changed": False, "places": [], "armed": True, "ledger": str(ledger)}
    assert task(host="kvm2")["changed"]


def test_reactions_are_disarmed_and_armed_in_the_ledger(task: Task, tmp_path: pathlib.Path) -> None:
    ledger = make_ledger(tmp_path).path
    assert task(state="disarmed") == {"changed": True, "places": [], "armed": False, "ledger": ledger}
    assert not task(state="disarmed")["changed"]
    with pytest.raises(Forbidden, match="disarmed them at"):
        task(host="kvm1")
    assert task(state="armed") == {"changed": True, "places": [], "armed": True, "ledger": ledger}
    (tmp_path / "kvmfleet" / "events").mkdir()
    (tmp_path / "kvmfleet" / "events" / "disarmed").touch()
    still = task(state="armed")
    assert (still["armed"], len(still["warnings"])) == (False, 1)


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("given", [{"state": "disarmed"}, {"state": "armed"}, {"state": "released", "host": "kvm1"}])
@pytest.mark.parametrize("option", [False, True])
def test_a_person_neither_disarms_nor_arms_a_ledger_that_does_not_exist(
    task: Task, tmp_path: pathlib.Path, given: dict[str, str], check_mode: bool, option: bool
) -> None:
    """It would not be the one that the reactions use."""
    missing = tmp_path / "missing"
    with pytest.raises(NotFound, match=f"There is no ledger at {missing if option else tmp_path / 'kvmfleet' / 'ledger'}.*Set kvmfleet_ledger"):
        task(check_mode=check_mode, **given, **({"ledger": str(missing)} if option else {}))
    assert list(tmp_path.iterdir()) == []


def test_a_person_does_not_disarm_a_ledger_that_the_hosts_of_the_fleet_do_not_use(task: Task, tmp_path: pathlib.Path) -> None:
    make_ledger(tmp_path)
    fleet = make_ledger(tmp_path / "fleet").path
    others = {"kvm1": {}, "kvm2": {"kvmfleet_ledger": fleet}}
    with pytest.raises(NotFound, match="kvmfleet_ledger is set for kvm2, and not for localhost"):
        task(state="disarmed", others=others)
    disarmed = task(state="disarmed", ledger=fleet, others=others)
    assert (disarmed["changed"], disarmed["ledger"]) == (True, fleet)
    with pytest.raises(Forbidden):
        task(host="kvm1", own=others["kvm2"])


def test_the_brake_may_be_the_first_document_of_a_configured_ledger(task: Task, tmp_path: pathlib.Path) -> None:
    configured = {"kvmfleet_ledger": str(tmp_path / "fleet")}
    assert task(check_mode=True, state="disarmed", own=configured) == {"changed": True, "places": [], "armed": False, "ledger": None}
    assert task(state="disarmed", own=configured) == {"changed": True, "places": [], "armed": False, "ledger": str(tmp_path / "fleet")}


def test_a_disarmed_brake_refuses_slots_and_still_releases_them(task: Task, tmp_path: pathlib.Path) -> None:
    task(host="kvm1")
    (tmp_path / "kvmfleet" / "events").mkdir()
    (tmp_path / "kvmfleet" / "events" / "disarmed").touch()
    for check_mode in (False, True):
        with pytest.raises(Forbidden, match="disarmed"):
            task(check_mode=check_mode, host="kvm1")
    assert task(host="kvm1", state="released")["changed"]


@pytest.mark.parametrize(
    ("host", "work", "kind", "words"),
    [
        ("", {"inventory": ["kvm1"]}, InvalidArgument, "The source that was not given is not a host of the inventory. Nothing was done."),
        ("kvm9", {"inventory": ["kvm1"]}, InvalidArgument, "The source kvm9 is not a host of the inventory. Nothing was done."),
        ("kvm1", {"inventory": []}, InvalidArgument, "is not a host of the inventory"),
        ("", {"play": ["kvm1"]}, InvalidArgument, "Set the host that is back, for example -e source=kvm1. Nothing was done."),
        ("kvm1", {"play": ["kvm1", "kvm2"]}, InvalidArgument, "Set the host that is back"),
        ("kvm1", {"play": []}, InvalidArgument, "Set the host that is back"),
        (
            "kvm1",
            {"entries": []},
            NotFound,
            "kvm1 is not in the ledger. Set kvmfleet_ledger to the ledger under which the host was protected. Nothing was done.",
        ),
        ("kvm1", {"entries": 7}, InvalidArgument, "entries"),
    ],
)
def test_a_request_of_a_playbook_is_refused_and_takes_no_slot(
    task: Task, tmp_path: pathlib.Path, host: str, work: dict[str, t.Any], kind: type[KvmfleetError], words: str
) -> None:
    with pytest.raises(kind) as caught:
        task(host=host, _work=work)
    assert words in str(caught.value)
    assert not (tmp_path / "kvmfleet").exists()


@pytest.mark.parametrize("work", [{"inventory": ["kvm1", "kvm2"]}, {"play": ["kvm1"]}, {"entries": ["kvm1"]}])
def test_an_accepted_request_takes_no_slot_yet(task: Task, tmp_path: pathlib.Path, work: dict[str, t.Any]) -> None:
    assert task(host="kvm1", _work=work) == {"changed": False, "places": []}
    assert not (tmp_path / "kvmfleet").exists()
