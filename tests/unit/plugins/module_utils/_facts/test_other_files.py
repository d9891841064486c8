# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import other_files
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.gather import gather_facts
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.other_files import ImageProbe, SharedImage, list_shared_images
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.survey import survey_hosts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState, KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts, StoragePool
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DiskFile, DiskNeed, DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import SurveyQuestion
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.folder import DirectoryFolder

KVM2 = "qemu+tcp://kvm2/system"
LONG_AGO = 3600.0


class Destination:
    """A host that has C(folder) at C(path), and lists it once."""

    uri = KVM2

    def __init__(self, path: str, folder: DirectoryFolder, error: t.Optional[KvmfleetError] = None) -> None:
        self._path, self.folder, self._error = path, folder, error
        self._names: t.Optional[t.Set[str]] = None
        self.opened = 0

    def has_path(self, path: str) -> t.Optional[bool]:
        if self._error:
            raise self._error
        if self._names is None:
            self._names = set(os.listdir(self.folder.path))
        return os.path.dirname(path) == self._path and os.path.basename(path) in self._names

    @contextlib.contextmanager
    def open_folder(self, path: str) -> t.Iterator[DirectoryFolder]:
        self.opened += 1
        self.folder.refresh_listing()
        yield self.folder


class OldImages(DirectoryFolder):
    """The time of change of a file cannot be set: every file of this folder was changed long ago."""

    def find_volume(self, name: str) -> t.Any:
        found = super().find_volume(name)
        return found and dataclasses.replace(found, changed_at=found.changed_at - LONG_AGO)


@pytest.fixture
def own(tmp_path: pathlib.Path) -> pathlib.Path:
    return make_folder(tmp_path / "shared")


@pytest.fixture
def local(tmp_path: pathlib.Path) -> pathlib.Path:
    return make_folder(tmp_path / "local")


def make_folder(path: pathlib.Path) -> pathlib.Path:
    path.mkdir()
    (path / "vda").touch()
    return path


def found(own: pathlib.Path, host: Destination) -> t.Tuple[str, ...]:
    image = SharedImage("images/vda", str(own / "vda"), "/srv/images/vda")
    with contextlib.closing(ImageProbe()) as probe:
        probe.leave_tokens([image])
        return probe.find_other_files(t.cast(t.Any, host), [image])


def test_an_old_file_below_a_store_that_is_not_mounted_is_another_file(own: pathlib.Path, local: pathlib.Path) -> None:
    assert found(own, Destination("/srv/images", OldImages(local))) == ("images/vda",)
    assert os.listdir(own) == os.listdir(local) == ["vda"]


def test_an_image_in_the_same_folder_is_proved_by_the_listing_alone(own: pathlib.Path) -> None:
    host = Destination("/srv/images", OldImages(own))
    assert found(own, host) == ()
    assert host.opened == 0
    assert os.listdir(own) == ["vda"]


def test_a_stale_listing_is_no_proof(own: pathlib.Path) -> None:
    host = Destination("/srv/images", OldImages(own))
    host.has_path("/srv/images/vda")
    assert found(own, host) == ()
    assert host.opened == 1


def test_a_file_that_was_changed_at_the_same_time_may_be_the_image_behind_a_link(own: pathlib.Path, local: pathlib.Path) -> None:
    assert found(own, Destination("/srv/images", DirectoryFolder(local))) == ()


def test_what_the_destination_does_not_have_is_no_other_file(own: pathlib.Path, local: pathlib.Path) -> None:
    (local / "vda").unlink()
    assert found(own, Destination("/srv/images", OldImages(local))) == ()


def test_nothing_is_proved_without_a_token_on_both_sides(own: pathlib.Path, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(own, Destination("/srv/images", OldImages(local, refuses=InvalidState("read-only")))) == ()
    assert found(own, Destination("/srv/images", OldImages(local), error=Unreachable("kvm2 is gone."))) == ()
    assert found(own / "gone", Destination("/srv/images", OldImages(local))) == ()


def test_a_token_that_is_written_too_late_is_removed_at_once(own: pathlib.Path, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late: t.List[t.Callable[[], t.Any]] = []

    def ask_late(_seconds: float, questions: t.Mapping[str, t.Callable[[], t.Any]]) -> t.Dict[str, None]:
        late.extend(questions.values())
        return dict.fromkeys(questions)

    monkeypatch.setattr(other_files, "answer_all_within", ask_late)
    assert found(own, Destination("/srv/images", OldImages(local))) == ()
    write, remove = late
    write()
    remove()
    assert os.listdir(own) == ["vda"]


def test_written_disks_and_backing_files_on_shared_storage_are_listed() -> None:
    base = DiskFile("backing", "file", "/nfs/base", shared=True)
    disks = (
        DiskNeed("vda", kind="file", source="/nfs/vda", shared=True, files=(base, DiskFile("backing", "file", "/srv/base", shared=False))),
        DiskNeed("vdb", kind="volume", source="images/vdb", shared=True),
        DiskNeed("vdc", kind="file", source="/srv/vdc", shared=False),
        DiskNeed("sda", kind="file", source="/nfs/sda.iso", shared=True, readonly=True),
        DiskNeed("vdd", kind="network", source="pool/vdd", shared=True),
        DiskNeed("vde", kind="block", source="/dev/mapper/a", shared=True),
    )
    renamed = (dataclasses.replace(disks[0], source="/mnt/vda", files=()), *disks[1:])
    pools = [[StoragePool("images", "netfs", path="/nfs/pool")], [StoragePool("images", "dir", path="/var/lib/images")]]
    request, there = (DomainRequest(1, 1, disks=listed) for listed in (disks, renamed))
    volume = SharedImage("images/vdb", "/nfs/pool/vdb", "/var/lib/images/vdb")
    assert list_shared_images(request, request, *pools) == [
        SharedImage("/nfs/vda", "/nfs/vda", "/nfs/vda"),
        SharedImage("/nfs/base", "/nfs/base", "/nfs/base"),
        volume,
    ]
    assert list_shared_images(request, there, *pools) == [SharedImage("/mnt/vda", "/nfs/vda", "/mnt/vda"), volume]


@pytest.mark.parametrize(("may_examine", "expected"), [(True, {KVM2: ["vda"]}), (False, None)])
def test_a_survey_reports_other_files_of_destinations(
    own: pathlib.Path, local: pathlib.Path, may_examine: bool, expected: t.Optional[t.Dict[str, t.List[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = FakeFleet()
    fleet.guest()
    host = Destination(str(own), OldImages(local))
    monkeypatch.setattr(type(fleet.open(KVM2)), "has_path", lambda _host, path: host.has_path(path))
    monkeypatch.setattr(type(fleet.open(KVM2)), "open_folder", lambda _host, path: host.open_folder(path))

    def described(one: t.Any) -> HostFacts:
        facts = gather_facts(one)[0]
        disks = [encode(DiskNeed("vda", kind="file", source=str(own / "vda"), shared=True))]
        for domain in facts.domains or ():
            t.cast("t.Dict[str, t.Any]", domain.request)["disks"] = disks
        return facts

    question = SurveyQuestion("web1", None, (KVM2,))
    examine = (lambda *_given: []) if may_examine else None
    (domain,) = survey_hosts(fleet.open(LOCAL_URI), [question], fleet.open, lambda path: True, described, examine).domains
    assert encode(domain).get("other_files") == (expected and {KVM2: [str(own / "vda")]})
