# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._cold import saved_memory as sm
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold import steps as st
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states as ds
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import MigrationFailed
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import FakeDomain
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.saved import write_image


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet("kvm1", "kvm2")


def test_an_image_is_ready_until_it_is_spent(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    host, path = fleet.open(LOCAL_URI), tmp_path / "kvmfleet-1.save"
    assert sm.find_image(str(path), UUID, host) == st.NO_IMAGE
    for begun in (b"", b"LibvirtQemudPart" + 100 * b"\0"):
        path.write_bytes(begun)
        assert sm.find_image(str(path), UUID, host) == st.INCOMPLETE
    for other in (b"Part", b"LibvirtQemudSave"):
        path.write_bytes(other)
        assert sm.find_image(str(path), UUID, host) == st.UNREADABLE
    path.unlink()
    write_image(str(path), FakeDomain("another", "web2"))
    assert sm.find_image(str(path), UUID, host) == st.UNREADABLE
    path.unlink()
    write_image(str(path), FakeDomain(UUID, "web1"))
    sm.sync_image(str(path))
    assert sm.find_image(str(path), UUID, host) == st.READY
    sm.spend_image(str(path), st.SPENT_THERE)
    assert sm.find_image(str(path), UUID, host) == st.SPENT_THERE
    sm.remove_image(str(path))
    assert list(tmp_path.iterdir()) == []
    sm.remove_image(str(path))


def test_an_image_spent_on_the_source_is_told_apart(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kvmfleet-1.save"
    write_image(str(path), FakeDomain(UUID, "web1"))
    sm.spend_image(str(path), st.SPENT_HERE)
    assert sm.find_image(str(path), UUID, fleet.open(LOCAL_URI)) == st.SPENT_HERE


def test_an_image_in_a_folder_that_gives_no_answer_is_unreadable(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    """As in a folder of a network file system whose server reports ESTALE or EIO."""
    folder = tmp_path / "stale"
    folder.symlink_to(folder)
    assert sm.find_image(str(folder / "kvmfleet-1.save"), UUID, fleet.open(LOCAL_URI)) == st.UNREADABLE


def test_an_image_that_is_gone_cannot_be_spent_or_flushed(tmp_path: pathlib.Path) -> None:
    with pytest.raises(MigrationFailed, match="cannot be renamed"):
        sm.spend_image(str(tmp_path / "gone"), st.SPENT_THERE)
    with pytest.raises(MigrationFailed, match="cannot be flushed"):
        sm.sync_image(str(tmp_path / "gone"))


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        ((11003000, 10000000), (11002000, 9000000), sm.SPARSE),
        ((11003000, 10000000), (9000000, 7002022), sm.RAW),
        ((11003000, 8002000), (11003000, 10000000), sm.RAW),
    ],
)
def test_memory_is_saved_sparse_if_both_hosts_can(fleet: FakeFleet, source: tuple[int, int], destination: tuple[int, int], expected: str) -> None:
    for machine, versions in zip(fleet.machines.values(), (source, destination)):
        machine.versions = dict(zip(("libvirt", "hypervisor"), versions))
    assert sm.choose_format([fleet.open(LOCAL_URI), fleet.open("qemu+tcp://kvm2/system")], qemu_replaced=False) == expected


def test_a_qemu_that_was_replaced_under_its_guest_may_not_know_the_sparse_format(fleet: FakeFleet) -> None:
    for machine in fleet.machines.values():
        machine.versions = {"libvirt": 12_000_000, "hypervisor": 11_000_000}
    hosts = [fleet.open(LOCAL_URI), fleet.open("qemu+tcp://kvm2/system")]
    assert [sm.choose_format(hosts, is_replaced) for is_replaced in (False, True)] == [sm.SPARSE, sm.RAW]


@pytest.mark.parametrize(("runs", "state"), [(True, ds.RUNNING), (False, ds.PAUSED)])
def test_a_managed_save_image_tells_how_its_guest_resumes(fleet: FakeFleet, tmp_path: pathlib.Path, runs: bool, state: str) -> None:
    host, path = fleet.open(LOCAL_URI), str(tmp_path / "web1.save")
    assert sm.find_managed_save("web1", UUID, host) is None
    fleet.source.saved_memory["web1"] = path
    assert sm.find_managed_save("web1", UUID, host) is None
    write_image(path, FakeDomain(UUID, "web1"), runs)
    found = sm.find_managed_save("web1", UUID, host)
    assert found is not None
    assert (found.path, found.resumes_as) == (path, state)
    assert sm.find_managed_save("web1", "another", host) is None


@pytest.mark.parametrize("header", [b"", b"LibvirtQemudSave", b"LibvirtQemudPart" + 12 * b"\0", b"LibvirtQemudSave" + 8 * b"\0" + 4 * b"\7"])
def test_a_header_that_is_not_one_of_libvirt_tells_nothing(fleet: FakeFleet, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, header: bytes) -> None:
    host, path = fleet.open(LOCAL_URI), tmp_path / "web1.save"
    path.write_bytes(header)
    fleet.source.saved_memory["web1"] = str(path)
    monkeypatch.setattr(type(host), "read_saved_uuid", lambda host, path: UUID)
    assert sm.find_managed_save("web1", UUID, host) is None


def test_an_image_that_is_held_outlasts_the_one_that_is_used_up(tmp_path: pathlib.Path) -> None:
    path, held = tmp_path / "web1.save", tmp_path / "kvmfleet-1.memory"
    path.write_bytes(b"memory")
    sm.hold_image(str(path), str(held))
    path.unlink()
    assert held.read_bytes() == b"memory"
    with pytest.raises(MigrationFailed, match="cannot be held"):
        sm.hold_image(str(path), str(held))


def refuse_to_sync(folder: str) -> t.NoReturn:
    raise OSError(errno.EIO, "Input/output error", folder)


@pytest.mark.parametrize("state", [st.SPENT_THERE, st.SPENT_HERE])
def test_an_image_whose_new_name_may_not_be_on_disk_is_not_spent(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """Whoever looks next would resume the guest. After a loss of power, the image would be ready again, and its memory could run a second time."""
    image = tmp_path / "web1.save"
    image.write_text("memory", encoding="ascii")
    monkeypatch.setattr(sm, "sync_folder", refuse_to_sync)
    with pytest.raises(MigrationFailed, match="cannot be renamed: Input/output error"):
        sm.spend_image(str(image), state)
    assert [path.name for path in tmp_path.iterdir()] == ["web1.save"]


def test_an_image_whose_second_name_may_not_be_on_disk_is_not_held(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks next would start the domain, which uses up the first name."""
    image = tmp_path / "web1.save"
    image.write_text("memory", encoding="ascii")
    monkeypatch.setattr(sm, "sync_folder", refuse_to_sync)
    with pytest.raises(MigrationFailed, match="cannot be held"):
        sm.hold_image(str(image), str(tmp_path / "kvmfleet.memory"))
    assert [path.name for path in tmp_path.iterdir()] == ["web1.save"]
