# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import functools
import json
import pathlib
import threading
import time
import types
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _host_identity, _module
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.install import revoke_grant
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.program import Guard
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.status import read_guard_state
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import protect
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import storage_queries
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.boot_guard import AutomaticStart, StartNote
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    Forbidden,
    Internal,
    InvalidArgument,
    NotFound,
    Unreachable,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import LibvirtNetwork, Surroundings
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost
from ansible_collections.kvmfleet.migration.tests.unit.fakes.hung import hung_libvirt

LEDGER = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01"
OTHER = "2b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a02"
NOTHING = {"ledger_id": LEDGER, "known": {}, "check": False}
ALL = {"host_id": None, "uuids": None}

Json = t.Dict[str, t.Any]


class Boot:
    """What the guard says of this boot."""

    held: t.Optional[Json] = None
    would_start: t.Tuple[AutomaticStart, ...] = ()
    boot_id: str = "3b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a03"


class DefinitionsHost(FakeHost):
    """Its definitions tell whether they are those of the next start."""

    refuse: t.ClassVar[t.Dict[str, Exception]] = {}

    def read_whole_definition(self, uuid: str, persistent: bool) -> str:
        domain = self._machine.domain(uuid)
        if domain.name in self.refuse:
            raise self.refuse[domain.name]
        return domain.xml().replace("</name>", f"</name><title>{'inactive' if persistent else 'live'}</title>")


@pytest.fixture
def fleet(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> FakeFleet:
    fleet = FakeFleet()
    places = {"remember_ledger_id": _host_identity.remember_ledger_id, "check_ledger_id": _host_identity.check_ledger_id}
    for name, function in places.items():
        monkeypatch.setattr(protect, name, functools.partial(function, path=str(tmp_path / "ledger-id")))
    for name, read in (("read_host_id", _host_identity.read_host_id), ("create_host_id", _host_identity.create_host_id)):
        monkeypatch.setattr(protect, name, functools.partial(read, str(tmp_path / "host-id")))
    monkeypatch.setattr(protect, "require_root", lambda: None)
    monkeypatch.setattr(protect, "read_guard_state", lambda: types.SimpleNamespace(boot=Boot))
    monkeypatch.setattr(protect, "open_host", lambda uri: DefinitionsHost(fleet, fleet.machine_of(uri), uri))
    monkeypatch.setattr(Boot, "held", None)
    monkeypatch.setattr(DefinitionsHost, "refuse", {})
    return fleet


@pytest.fixture
def images(fleet: FakeFleet, tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a folder with the image of the domain web1."""
    folder = tmp_path / "images"
    folder.mkdir()
    fleet.guest(disks=(domain_states.Disk("vda", "file", str(folder / "web1.qcow2")),))
    return folder


def save(**work: t.Any) -> Json:
    return protect.report_domains(LOCAL_URI, {**ALL, **work})


def saved_state(fleet: FakeFleet, **how: t.Any) -> t.Optional[str]:
    fleet.guest(**how)
    return t.cast("t.Optional[str]", save()["domains"][0]["state"])


def test_storage_tokens_are_written_once_and_seen_in_the_same_folder(images: pathlib.Path) -> None:
    first = protect.leave_own_tokens(LOCAL_URI, NOTHING)
    assert (first["changed"], list(first["folders"]), first["unwritable"]) == (True, [str(images)], {})
    again = protect.leave_own_tokens(LOCAL_URI, {**NOTHING, "known": first["folders"]})
    assert again == {**first, "changed": False}
    work = {"folders": {first["host_id"]: first["folders"], OTHER: first["folders"]}, "devices": {}, "host_id": None}
    seen = protect.report_seen_tokens(LOCAL_URI, work)
    assert (seen["sees"], seen["boot_id"]) == ({first["host_id"]: first["folders"]}, boot_moment().boot_id)


def test_no_token_waits_for_a_libvirt_that_hangs(fleet: FakeFleet, images: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hung_libvirt(monkeypatch, "list_definitions", "list the domains of kvm1") as open_hung:
        monkeypatch.setattr(protect, "open_host", open_hung)
        with pytest.raises(Unreachable, match="Failed to list the domains of kvm1: libvirt did not answer"):
            protect.leave_own_tokens(LOCAL_URI, NOTHING)
    assert list(images.iterdir()) == []


def test_check_mode_writes_no_storage_token_and_no_host_id(images: pathlib.Path, tmp_path: pathlib.Path) -> None:
    answer = protect.leave_own_tokens(LOCAL_URI, {**NOTHING, "check": True})
    assert (answer["changed"], answer["host_id"], answer["folders"]) == (True, None, {})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["images"]
    assert list(images.iterdir()) == []


def test_a_missing_folder_is_reported_and_the_others_get_a_token(fleet: FakeFleet, images: pathlib.Path, tmp_path: pathlib.Path) -> None:
    fleet.guest("db1", OTHER, disks=(domain_states.Disk("vda", "file", str(tmp_path / "gone" / "db1")),))
    answer = protect.leave_own_tokens(LOCAL_URI, NOTHING)
    assert (list(answer["folders"]), answer["unwritable"]) == ([str(images)], {str(tmp_path / "gone"): f"There is no folder {tmp_path}/gone"})


def test_a_folder_that_does_not_answer_is_waited_for_twice_for_all_peers(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, is_over = [], threading.Event()

    def hang(folder: str, _host_id: str, _nonce: str) -> bool:
        asked.append(folder)
        return is_over.wait(60)

    monkeypatch.setattr(storage_queries, "STORAGE_SECONDS", 0.01)
    monkeypatch.setattr(protect.images, "has_token", hang)
    peers = [str(uuid.UUID(int=number)) for number in range(1, 6)]
    work = {"folders": {peer: {"/dead": peer} for peer in peers}, "devices": {}, "host_id": None}
    answer = protect.report_seen_tokens(LOCAL_URI, work)
    is_over.set()
    assert (answer["sees"], answer["unread"]) == ({}, {peer: ["/dead"] for peer in peers})
    assert asked == ["/dead"] * 2


def test_a_token_that_cannot_be_read_now_stays_and_one_that_is_gone_does_not(images: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer protects the host while its file server hangs."""
    left = protect.leave_own_tokens(LOCAL_URI, NOTHING)
    known = {**NOTHING, "known": left["folders"]}
    token = pathlib.Path(protect.images.token_path(str(images), left["host_id"]))

    def fail(_folder: str, _host_id: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(protect.images, "_read_token", fail)
        during = protect.leave_own_tokens(LOCAL_URI, known)
        assert (during["changed"], during["folders"]) == (False, left["folders"])
        assert during["unwritable"] == {str(images): "Input/output error, so what is known of the one from before stays"}
        assert protect.leave_own_tokens(LOCAL_URI, NOTHING)["folders"] == {}
    token.unlink()
    with monkeypatch.context() as full:
        full.setattr(protect.images, "_write_token", lambda *_arguments: fail("", ""))
        assert protect.leave_own_tokens(LOCAL_URI, known)["folders"] == {}


def test_images_whose_storage_does_not_answer_are_named(fleet: FakeFleet, images: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert save()["domains"][0].get("unread") is None
    monkeypatch.setattr(storage_queries.StorageQueries, "ask", lambda storage, folder, question: None)
    (domain,) = save()["domains"]
    assert domain["unread"] == [str(images / "web1.qcow2")]


def test_a_folder_that_is_also_reached_by_a_link_has_one_token(fleet: FakeFleet, images: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once would each write one, and only the last one would be there."""
    linked, calls = images.with_name("linked"), []
    linked.symlink_to(images)
    disks = [domain_states.Disk(target, "file", str(folder / f"{target}.qcow2")) for target, folder in (("vda", images), ("vdb", linked))]
    fleet.guest(disks=tuple(disks))
    leave = protect.images.leave_tokens

    def leave_noted(folders: list[str], host_id: str) -> tuple[dict[str, str], dict[str, str]]:
        calls.append(list(folders))
        return leave(folders, host_id)

    monkeypatch.setattr(protect.images, "leave_tokens", leave_noted)
    answer = protect.leave_own_tokens(LOCAL_URI, NOTHING)
    assert calls == [[str(images), str(linked)]]
    assert len(set(answer["folders"].values())) == 1
    assert set(answer["folders"]) == {str(images), str(linked)}


def test_a_token_may_take_longer_to_write_than_storage_takes_to_answer(images: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On NFS, some hundred requests of the server."""

    def leave_slowly(folders: list[str], host_id: str) -> tuple[dict[str, str], dict[str, str]]:
        time.sleep(0.2)
        return dict.fromkeys(folders, host_id), {}

    monkeypatch.setattr(storage_queries, "STORAGE_SECONDS", 0.01)
    monkeypatch.setattr(protect.images, "leave_tokens", leave_slowly)
    answer = protect.leave_own_tokens(LOCAL_URI, NOTHING)
    assert (list(answer["folders"]), answer["unwritable"]) == ([str(images)], {})


def test_folders_that_do_not_answer_share_one_time_limit(
    fleet: FakeFleet, images: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.guest("db1", OTHER, disks=(domain_states.Disk("vda", "file", str(tmp_path / "slow" / "db1")),))
    begun, is_over = threading.Barrier(2), threading.Event()

    def hang(_folders: list[str], _host_id: str) -> None:
        begun.wait(60)
        is_over.wait(60)

    monkeypatch.setattr(protect, "TOKEN_SECONDS", 1)
    monkeypatch.setattr(protect.images, "leave_tokens", hang)
    answer = protect.leave_own_tokens(LOCAL_URI, NOTHING)
    is_over.set()
    assert (answer["folders"], sorted(answer["unwritable"])) == ({}, [str(images), str(tmp_path / "slow")])
    assert begun.n_waiting == 0, "the second folder was not asked while the first one hung"


def test_another_ledger_is_refused_before_a_token_is_written(images: pathlib.Path) -> None:
    protect.remember_ledger_id(OTHER)
    for phase in (protect.identify_host, protect.leave_own_tokens):
        with pytest.raises(Conflict, match=OTHER):
            phase(LOCAL_URI, NOTHING)
    assert list(images.iterdir()) == []


def test_the_inactive_definition_is_saved_except_for_transient_domains(fleet: FakeFleet) -> None:
    fleet.guest()
    fleet.guest("tmp1", OTHER, persistent=False)
    found = {domain["name"]: domain for domain in save()["domains"]}
    assert "<title>inactive" in found["web1"]["definition"]
    assert "<title>live" in found["tmp1"]["definition"]
    assert found["web1"]["request"]["uuid"] == UUID
    assert found["web1"]["request"]["blockers"] == []


def test_a_domain_is_saved_with_the_kinds_of_its_networks(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the loss of the host, nothing else tells whether a network of that name connects the guest."""
    networks = (LibvirtNetwork("lan", True, forward="bridge"), LibvirtNetwork("lab", True, forward=None))
    monkeypatch.setattr(FakeHost, "read_surroundings", lambda _self: Surroundings((), networks, (), (), (), ()))
    cards = "".join(f"<interface type='network'><source network='{name}'/></interface>" for name in ("lan", "lab", "gone"))
    guest = fleet.guest()
    guest.definition = guest.xml().replace("<devices>", f"<devices>{cards}<interface type='bridge'><source bridge='lan'/></interface>")
    (found,) = save()["domains"]
    known = {"lan": {"forward": "bridge"}, "lab": {"forward": None}, "gone": {}}
    wanted = [{"type": "network", "source": name, **kind} for name, kind in known.items()]
    assert found["request"]["networks"][:4] == [*wanted, {"type": "bridge", "source": "lan"}]


def test_a_domain_is_saved_with_the_vlans_of_its_networks(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    network = LibvirtNetwork("lan", True, portgroups=("dmz",), forward="bridge", vlan=None, portgroup_vlans={"dmz": "42"})
    monkeypatch.setattr(FakeHost, "read_surroundings", lambda _self: Surroundings((), (network,), (), (), (), ()))
    guest = fleet.guest()
    cards = "".join(f"<interface type='network'><source network='lan'{group}/></interface>" for group in ("", " portgroup='dmz'"))
    guest.definition = guest.xml().replace("<devices>", f"<devices>{cards}")
    (found,) = save()["domains"]
    assert [need["network_vlan"] for need in found["request"]["networks"][:2]] == [None, "42"]


def test_the_disks_of_a_transient_domain_are_those_of_a_start(fleet: FakeFleet) -> None:
    """Its definition is the live one, in which the policies of disks mean what they do in a move."""
    medium = "<disk type='file' device='{}'><source file='/srv/{}' startupPolicy='{}'/><target dev='{}'/></disk>"
    guest = fleet.guest(persistent=False)
    devices = medium.format("cdrom", "a.iso", "requisite", "sda") + medium.format("disk", "a.img", "optional", "vdb")
    guest.definition = guest.xml().replace("<domain ", "<domain id='7' ").replace("<devices>", f"<devices>{devices}")
    (found,) = save()["domains"]
    assert {disk["target"]: disk["optional"] for disk in found["disks"] if disk["target"] != "vda"} == {"sda": False, "vdb": True}


@pytest.mark.parametrize(
    ("how", "state"),
    [
        ({}, "running"),
        ({"state": domain_states.PAUSED, "reason": "user"}, "paused"),
        ({"state": domain_states.PAUSED, "reason": "I/O error"}, "running"),
        ({"state": domain_states.PAUSED, "reason": domain_states.MIGRATION, "job": domain_states.JOB_OUTGOING}, None),
        ({"state": domain_states.SHUTOFF, "reason": "shutdown"}, "shut off"),
    ],
)
def test_the_saved_state_ignores_io_errors_migrations_and_jobs(fleet: FakeFleet, how: Json, state: t.Optional[str]) -> None:
    assert saved_state(fleet, **how) == state


def test_an_inactive_domain_of_a_held_host_has_no_saved_state(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Boot, "held", {"why": "a boot"})
    assert saved_state(fleet, state=domain_states.SHUTOFF, reason="") is None
    assert saved_state(fleet) == "running"


def test_a_domain_that_a_recovery_is_to_start_awaits_its_start(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    note = StartNote(UUID, "web1", ("drain",), "then")
    monkeypatch.setattr(Boot, "would_start", (AutomaticStart(UUID, "web1", ("autostart",)),))
    for notes, held, is_awaited in (([], None, False), ([note], None, True), ([], {"why": "a boot"}, True)):
        monkeypatch.setattr(Boot, "held", held)
        monkeypatch.setattr(protect, "list_notes", functools.partial(tuple, (notes, [])))
        for how, expected in (({"state": domain_states.SHUTOFF, "reason": ""}, is_awaited), ({}, False)):
            fleet.guest(**how)
            assert save()["domains"][0]["awaits_start"] is expected


@pytest.mark.parametrize("how", [{}, {"state": domain_states.SHUTOFF, "reason": "shutdown"}, {"state": domain_states.SHUTOFF, "reason": ""}])
def test_a_saved_domain_has_the_boot_of_its_host_and_the_reason_of_its_state(fleet: FakeFleet, how: Json) -> None:
    fleet.guest(**how)
    (domain,) = save()["domains"]
    assert (domain["boot_id"], domain["reason"]) == (Boot.boot_id, how.get("reason", "booted"))


def test_an_incoming_domain_is_not_saved(fleet: FakeFleet) -> None:
    fleet.guest(state=domain_states.PAUSED, reason=domain_states.MIGRATION, job=domain_states.JOB_INCOMING)
    assert save() == {"changed": False, "domains": [], "arriving": [UUID], "unreadable": [], "remembered": [], "boot_id": Boot.boot_id}


def test_an_unreadable_domain_does_not_stop_the_others(fleet: FakeFleet) -> None:
    fleet.guest()
    fleet.guest("bad", OTHER)
    fleet.guest("gone", LEDGER)
    DefinitionsHost.refuse.update(bad=Internal("No secret."), gone=NotFound("Gone."))
    answer = save()
    assert [domain["name"] for domain in answer["domains"]] == ["web1"]
    assert answer["unreadable"] == [{"uuid": OTHER, "name": "bad", "why": "No secret."}]


def test_only_requested_domains_are_read(fleet: FakeFleet) -> None:
    fleet.guest()
    fleet.guest("db1", OTHER)
    assert [domain["name"] for domain in save(uuids=[OTHER])["domains"]] == ["db1"]


def test_a_host_with_an_unexpected_host_id_is_a_conflict(fleet: FakeFleet) -> None:
    fleet.guest()
    with pytest.raises(Conflict, match=OTHER):
        save(host_id=OTHER)


def test_an_invalid_grant_is_refused_before_the_guard_is_installed(fleet: FakeFleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.setattr(protect, "install_guard", functools.partial(protect.install_guard, str(root)))
    grant = {"grant": "../../etc/passwd", "host_id": LEDGER, "folders": {}}
    with pytest.raises(InvalidArgument, match="Nothing was changed"):
        protect.PHASES["guard"](LOCAL_URI, {"install": True, "grant": grant, "taken_back": [OTHER], "check": False})
    assert list(root.iterdir()) == []


def test_a_withdrawn_grant_is_reported_and_nothing_is_installed(fleet: FakeFleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    boot_id = root / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text(LEDGER)
    for name in ("install_guard", "is_withdrawn"):
        monkeypatch.setattr(protect, name, functools.partial(getattr(protect, name), root=str(root)))
    monkeypatch.setattr(protect, "read_guard_state", functools.partial(read_guard_state, str(root)))
    revoke_grant(str(root), grant=OTHER)
    before = sorted(root.rglob("*"))
    grant = {"grant": OTHER, "host_id": LEDGER, "folders": {"/images": LEDGER}}
    answer = protect.PHASES["guard"](LOCAL_URI, {"install": True, "grant": grant, "taken_back": [], "check": False})
    assert (answer["changed"], answer["withdrawn"], answer["revoked_in"]) == (True, True, [])
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize(("released", "is_spent"), [(None, False), ({"by": "install"}, False), ({"grant": LEDGER}, False), ({"grant": OTHER}, True)])
def test_a_grant_whose_token_has_released_this_boot_is_spent(
    fleet: FakeFleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, released: t.Optional[Json], is_spent: bool
) -> None:
    boot_id = tmp_path / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text(LEDGER)
    if released is not None:
        document = tmp_path / "run/kvmfleet/guard/released.json"
        document.parent.mkdir(parents=True)
        document.write_text(json.dumps({"boot_id": LEDGER, "by": "token", "at": "2026-01-01T00:00:00Z", **released}))
    monkeypatch.setattr(protect, "install_guard", functools.partial(protect.install_guard, str(tmp_path)))
    monkeypatch.setattr(protect, "read_guard_state", functools.partial(read_guard_state, str(tmp_path)))
    grant = {"grant": OTHER, "host_id": LEDGER, "folders": {"/images": LEDGER}}
    answer = protect.PHASES["guard"](LOCAL_URI, {"install": True, "grant": grant, "taken_back": [], "check": False})
    assert answer["spent"] is is_spent
    assert answer["guard"]["note"] == protect.NOT_HELD


@pytest.mark.parametrize("check", [False, True])
def test_a_grant_that_the_host_has_lost_is_spent(fleet: FakeFleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, check: bool) -> None:
    """The host was installed anew on another disk: the former one may have a token."""
    boot_id = tmp_path / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text(LEDGER)
    monkeypatch.setattr(protect, "install_guard", functools.partial(protect.install_guard, str(tmp_path)))
    monkeypatch.setattr(protect, "read_guard_state", functools.partial(read_guard_state, str(tmp_path)))
    grant = {"grant": OTHER, "host_id": LEDGER, "folders": {"/images": LEDGER}}
    work = {"install": True, "grant": grant, "taken_back": [], "check": check}
    # The task may die before it replaces the grant: the next one finds the same.
    for _try in range(2):
        answer = protect.PHASES["guard"](LOCAL_URI, {**work, "granted": True})
        assert (answer["spent"], answer["guard"]["installed"], read_guard_state(str(tmp_path)).boot.grant) == (True, True, None)
    for was_given in (False, True):
        spent = protect.PHASES["guard"](LOCAL_URI, {**work, "granted": was_given})["spent"]
        assert spent is (check and was_given)


@pytest.mark.parametrize(
    ("guard", "work", "is_held"),
    [
        ({}, {}, True),
        ({"installed": False}, {}, False),
        ({"systemd": False}, {}, False),
        # By a token, the host would start its guests again; a grant may be on the host and not in the ledger, or only there so far.
        ({"grant": OTHER}, {}, False),
        ({}, {"grant": {"grant": OTHER, "host_id": LEDGER, "folders": {"/srv": OTHER}}}, False),
    ],
)
def test_a_host_is_held_after_a_reset_by_its_guard_unless_it_has_a_grant(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, guard: Json, work: Json, is_held: bool
) -> None:
    seen: t.List[bool] = []
    state = {"installed": True, "systemd": True, "grant": None, **guard}
    boot = types.SimpleNamespace(held=None, grant=state.pop("grant"))
    monkeypatch.setattr(protect, "read_guard_state", lambda: types.SimpleNamespace(boot=boot, **state))
    monkeypatch.setattr(protect, "read_protected_watchdog", lambda held_at_boot: seen.append(held_at_boot))
    protect.PHASES["guard"](LOCAL_URI, {"install": False, "grant": None, "taken_back": [], "check": False, **work})
    assert seen == [is_held]


@pytest.mark.parametrize("check", [True, False])
def test_a_grant_is_withdrawn_without_installing_a_guard(fleet: FakeFleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, check: bool) -> None:
    root = tmp_path / "root"
    boot_id = root / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text(LEDGER)
    monkeypatch.setattr(protect, "revoke_grant", functools.partial(revoke_grant, str(root)), raising=False)
    monkeypatch.setattr(protect, "install_guard", functools.partial(protect.install_guard, str(root)))
    monkeypatch.setattr(protect, "read_guard_state", functools.partial(read_guard_state, str(root)))
    answer = protect.PHASES["guard"](LOCAL_URI, {"install": False, "grant": None, "taken_back": [OTHER], "check": check})
    assert (answer["guard"]["installed"], Guard(str(root)).list_revoked_grants()) == (False, [] if check else [OTHER])


@pytest.mark.parametrize("phase", sorted(protect.PHASES))
def test_every_phase_without_root_is_forbidden(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    monkeypatch.setattr(protect, "require_root", _module.require_root)
    monkeypatch.setattr(_module.os, "geteuid", lambda: 1000)
    with pytest.raises(Forbidden, match="become"):
        protect.PHASES[phase](LOCAL_URI, {})


@pytest.mark.parametrize("work", [{}, {"forget_started": False}, {"forget_started": True}])
def test_notes_of_starts_are_given_up_only_on_request(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, work: Json) -> None:
    asked: t.List[str] = []
    monkeypatch.setattr(protect, "forget_started", lambda host: asked.append(host.uri))
    save(**work)
    assert asked == ([LOCAL_URI] if work.get("forget_started") else [])
