# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The phase that prepares moves on their source host reads both ends and the state of earlier moves, over fake hosts."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _run_folder
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import survey_phases
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.values import Image
from ansible_collections.kvmfleet.migration.plugins.module_utils._live_watchers import identify_watcher
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import Disk
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import Renaming, ResourceMaps
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import RUN, record_of

TO_2 = "qemu+tcp://kvm2/system"
WANTED = {"name": "web1", "uuid": None, "known_uuids": [], "destination_uris": [TO_2]}


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> FakeFleet:
    """Fake hosts in libvirt's place, and a folder of the test's own."""
    fleet = FakeFleet()
    folder = str(tmp_path)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(survey_phases, "open_host", fleet.open)
    monkeypatch.setattr(survey_phases, "state_path", lambda uuid: _run_folder.state_path(uuid, folder))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return fleet


def watch_of(fleet: FakeFleet, folder: pathlib.Path, **wanted: t.Any) -> t.Any:
    (domain,) = survey_phases.prepare_moves(LOCAL_URI, {"wanted": [{**WANTED, **wanted}]})["survey"]["domains"]
    return domain["watch"]


def test_preparing_changes_nothing_and_closes_its_connections(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    result = survey_phases.prepare_moves(LOCAL_URI, {"wanted": [WANTED]})
    assert (result["changed"], result["survey"]["domains"][0]["found"]) == (False, True)
    assert all(host.is_closed for host in fleet.connections)
    assert [machine.calls for machine in fleet.machines.values()] == [[], []]
    assert list(tmp_path.iterdir()) == []


def test_preparing_returns_the_state_file_and_whether_its_watcher_lives(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    assert watch_of(fleet, tmp_path) is None
    record = record_of(status=s.RUNNING)
    for watcher, alive in ((identify_watcher(RUN), True), (dataclasses.replace(identify_watcher(RUN), start_ticks=1), False)):
        _run_folder.write_json(_run_folder.state_path(UUID, str(tmp_path)), {**encode(record), "watcher": encode(watcher)})
        watch = watch_of(fleet, tmp_path)
        assert (watch["record"]["id"], watch["alive"]) == (record.id, alive)


def test_the_state_file_of_a_domain_that_left_is_found_by_its_uuid(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    _run_folder.write_json(_run_folder.state_path(UUID, str(tmp_path)), {**encode(record_of(status=s.COMPLETED)), "watcher": None})
    assert watch_of(fleet, tmp_path) is None
    assert watch_of(fleet, tmp_path, known_uuids=[UUID])["record"]["status"] == s.COMPLETED
    assert watch_of(fleet, tmp_path, name=None, uuid=UUID)["alive"] is False


def test_preparing_needs_root_and_a_local_uri(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotSupported):
        survey_phases.prepare_moves(TO_2, {"wanted": [WANTED]})
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Forbidden):
        survey_phases.prepare_moves(LOCAL_URI, {"wanted": [WANTED]})
    assert fleet.connections == []


def test_what_would_differ_in_the_definition_is_reported_for_each_destination(fleet: FakeFleet) -> None:
    fleet.guest(disks=(Disk("vda", "file", "/srv/web.raw", False, False),))
    fleet.destination.paths = {"/srv/web.raw": False, "/data/web.raw": True}
    before, after = ({"fast": folder} for folder in ("/srv", "/data"))
    renamings = {
        uri: encode(Renaming("kvm1", "kvm2", ResourceMaps(images=before), ResourceMaps(images=known))) for uri, known in ((TO_2, after), ("qemu://x", {}))
    }
    (domain,) = survey_phases.prepare_moves(LOCAL_URI, {"wanted": [{**WANTED, "renamings": renamings}]})["survey"]["domains"]
    change = {"path": "devices[1]/disk[1]/source[1]/@file", "before": "/srv/web.raw", "after": "/data/web.raw", "definitions": ["live", "persistent"]}
    assert domain["rewrites"][TO_2] == {"changes": [change]}
    assert domain["rewrites"]["qemu://x"]["error_code"] == "not_supported"
    assert "kvm2 has no folder 'fast'" in domain["rewrites"]["qemu://x"]["problem"]
    assert domain["paths"][TO_2] == {"/data/web.raw": True}


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_qemu_that_was_replaced_under_its_guest_is_reported(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, is_replaced: bool) -> None:
    monkeypatch.setattr(survey_phases, "is_program_replaced", lambda name: name == "web1" and is_replaced)
    fleet.guest()
    (domain,) = survey_phases.prepare_moves(LOCAL_URI, {"wanted": [WANTED]})["survey"]["domains"]
    assert domain["qemu_replaced"] is is_replaced


def test_images_below_count_with_what_is_allocated_of_them(tmp_path: pathlib.Path) -> None:
    base, middle, absent = (str(tmp_path / name) for name in ("base", "middle", "absent"))
    sizes = [pathlib.Path(path).write_bytes(b"x" * 70000) and os.stat(path).st_blocks * 512 for path in (base, middle)]
    chains = [(), (middle, base), (base,), (middle, ""), (absent,)]
    images = [Image("vda", "file", "/images/web", "qcow2", 8, 8, has_backing=bool(chain), backing=chain) for chain in chains]
    assert [image.below_bytes for image in survey_phases.count_images_below(images)] == [None, sum(sizes), sizes[0], None, None]
