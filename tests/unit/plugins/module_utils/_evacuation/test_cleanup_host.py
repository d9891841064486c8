# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal, InvalidState, NotFound, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.cleanup_phases import Cleaner
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.cleanup_survey import Survey
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.images import Images
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import FOLDER, Quarantine, is_moved
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.storage import innermost, read_mounts
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.tests.unit.fakes.folder import DirectoryFolder

RECORD = "0f6f2f7a-9d0f-4d43-8f2b-2d1f0f7a3c11"
UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
XML = "<domain><name>web</name><uuid>{uuid}</uuid><devices>{tpm}{disks}</devices></domain>"
DISK = "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{path}'/><target dev='{target}'/></disk>"
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"


class Died(Exception):
    """The process ends here."""


class Host:
    """A host with one domain, or none, and folders of this machine."""

    def __init__(self, uuid: str, disks: t.Sequence[tuple[str, pathlib.Path]] = (), active: bool = False, present: bool = True) -> None:
        self.uuid = uuid
        self.disks = list(disks)
        self.active = active
        self.present = present
        self.tpm = ""
        self.snapshots = 0
        self.can_keep_tpm = True
        self.managed_save: pathlib.Path | None = None
        self.others: list[tuple[str, str, str]] = []
        self.folders: dict[str, DirectoryFolder] = {}
        self.answers = True
        self.forgets = True
        self.own_id: t.Optional[str] = None

    def host_id(self) -> t.Optional[str]:
        return self.own_id

    def host_uuid(self) -> str:
        return self.uuid

    def roster(self) -> list[dict[str, t.Any]]:
        if not self.answers:
            raise Unreachable("no answer")
        return [{"uuid": UUID, "name": "web", "active": self.active}] if self.present else []

    def view(self, uuid: str) -> h.GuestView:
        if not self.answers:
            raise Unreachable("no answer")
        state = h.RUNNING if self.active else h.SHUTOFF
        view = h.GuestView(present=True, active=self.active, persistent=True, state=state, reason="", job=h.JOB_NONE)
        return view if self.present else h.NOT_THERE

    def find(self, name: str | None = None, uuid: str | None = None) -> t.Any:
        if not self.present:
            raise NotFound("gone")
        disks = [h.Disk(target=target, kind="file", source=str(path), readonly=False, shareable=False) for target, path in self.disks]
        return h.DomainInfo(uuid=UUID, name="web", view=self.view(UUID), autostart=False, memory_bytes=0, vcpus=1, disks=tuple(disks))

    def surroundings(self) -> dict[str, t.Any]:
        return {"pools": []}

    def definition(self, uuid: str) -> str:
        return XML.format(uuid=UUID, tpm=self.tpm, disks="".join(DISK.format(path=path, target=target) for target, path in self.disks))

    def whole_definition(self, uuid: str, persistent: bool) -> str:
        return self.definition(uuid)

    def definitions(self) -> t.Iterator[tuple[str, str, str]]:
        yield from [*([(UUID, "web", self.definition(UUID))] if self.present else []), *self.others]

    def has_managed_save(self, uuid: str) -> bool:
        return self.managed_save is not None

    def attached(self, uuid: str) -> tuple[int, int]:
        return self.snapshots, 0

    def keeps_tpm(self) -> bool:
        return self.can_keep_tpm

    @contextlib.contextmanager
    def folder(self, path: str) -> t.Iterator[DirectoryFolder]:
        if path not in self.folders:
            raise NotFound(path)
        self.folders[path].look()
        yield self.folders[path]

    def forget(self, uuid: str) -> None:
        if self.active:
            raise InvalidState("it is active")
        if self.managed_save and self.managed_save.exists():
            raise InvalidState("it has a managed-save image")
        self.present = self.present and not self.forgets

    def close(self) -> None:
        pass


class Scene:
    """A domain that was evacuated from C(here) to C(there), with a disk of each host's own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.own, self.other, self.root = folder / "own", folder / "other", folder / "root"
        for place in (self.own, self.other, folder / "save"):
            place.mkdir()
        self.image = self.own / "web.img"
        self.image.write_bytes(b"data")
        (self.other / "web.img").write_bytes(b"new")
        self.save_folder = folder / "save"
        self.here = Host("here", [("vda", self.image)])
        self.there = Host("there", [("vda", self.other / "web.img")], active=True)
        self.there.folders = {str(self.other): DirectoryFolder(self.other)}
        saved = Images().disks([{"kind": "file", "source": str(self.image), "target": "vda", "readonly": False, "optional": False, "shared": False}], (), None)
        self.saved = [{**disk, "seen_by": ["me"]} for disk in saved]
        self.mount = pathlib.Path(innermost(str(folder.resolve()), {mount.path for mount in read_mounts()}))

    def plan(self, **changes: t.Any) -> dict[str, t.Any]:
        asked = {"uuid": UUID, "name": "web", "record": RECORD, "defined": False, "came_back": False, "saved": self.saved, **changes}
        asked.setdefault("expected", [{"host": "kvm2", "host_id": None, "host_uuid": None}])
        survey = Survey(self.here, "me", {"kvm2": "there"}, lambda uri: self.there, self._put_aside, str(self.save_folder))
        (plan,) = survey.plans([asked])
        return plan

    def _put_aside(self, record: str) -> list[str]:
        manifest = Quarantine(record, str(self.root)).read()
        return [item["from"] for item in manifest["items"] if is_moved(item)] if manifest else []

    def clean(self, storage: str = "quarantine", die_at: str = "") -> dict[str, t.Any]:
        def step(name: str) -> None:
            if name == die_at:
                raise Died(name)

        return Cleaner(self.here, "me", Quarantine(RECORD, str(self.root), step), step).clean(self.plan(), storage)


@pytest.fixture
def scene(tmp_path: pathlib.Path) -> t.Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    # The file system of the test's folder has got a folder of its own: it goes with what was put there.
    for path in (scene.mount / FOLDER / RECORD).glob("*"):
        path.unlink()
    for folder in (scene.mount / FOLDER / RECORD, scene.mount / FOLDER):
        with contextlib.suppress(OSError):
            folder.rmdir()


def reasons(plan: dict[str, t.Any]) -> list[str]:
    return [disk["reason"] for disk in plan["disks"]]


def test_a_disk_of_this_host_alone_may_go(scene: Scene) -> None:
    plan = scene.plan()
    assert (plan["kind"], plan["where"], plan["present"]) == ("clean", "kvm2", True)
    assert reasons(plan) == [""]


def test_a_store_that_both_see_stays_whatever_was_recorded(scene: Scene) -> None:
    scene.there.folders = {str(place): DirectoryFolder(scene.own) for place in (scene.own, scene.other)}
    assert reasons(scene.plan()) == ["other hosts see it too"]


def test_a_host_that_is_this_one_by_another_name_is_nowhere_else(scene: Scene) -> None:
    scene.there.uuid = "here"
    assert scene.plan()["kind"] == "refuse"


def test_a_host_that_shares_its_uuid_with_this_one_is_another_host(scene: Scene) -> None:
    scene.there.uuid = "here"
    scene.there.own_id = "you"
    assert scene.plan()["kind"] == "clean"


def test_the_host_that_has_it_is_expected_whatever_its_uuid_is_by_now(scene: Scene) -> None:
    """So the others need not answer."""
    scene.there.own_id = "you"
    dead = Host("dead")
    dead.answers = False
    survey = Survey(scene.here, "me", {"kvm2": "there", "kvm3": "dead"}, lambda uri: dead if uri == "dead" else scene.there, lambda record: (), "/none")
    expected = [{"host": "kvm2", "host_id": "you", "host_uuid": "there before"}]
    asked = {"uuid": UUID, "name": "web", "record": RECORD, "defined": False, "came_back": False, "saved": scene.saved, "expected": expected}
    assert [(plan["kind"], plan["where"]) for plan in survey.plans([asked])] == [("clean", "kvm2")]


def test_a_host_that_does_not_answer_is_named(scene: Scene) -> None:
    scene.there.answers = False
    plan = scene.plan()
    assert plan["kind"] == "refuse"
    assert plan["reason"].endswith("; kvm2 did not answer (no answer)"), plan["reason"]


@pytest.mark.parametrize("backing", [False, True])
def test_a_disk_that_another_domain_here_uses_stays(scene: Scene, backing: bool) -> None:
    path = scene.image
    if backing:
        path = scene.own / "folder" / "overlay.qcow2"
        path.parent.mkdir()
        name = str(scene.image).encode()
        path.write_bytes(b"QFI\xfb\x00\x00\x00\x03" + (512).to_bytes(8, "big") + len(name).to_bytes(4, "big") + b"\0" * 492 + name)
    scene.here.others = [("other", "other", XML.format(uuid="other", tpm="", disks=DISK.format(path=path, target="vda")))]
    assert reasons(scene.plan()) == ["it is used by domain other"]


def test_a_disk_that_is_no_plain_file_stays(scene: Scene) -> None:
    os.link(scene.image, scene.own / "second")
    assert "hard link" in reasons(scene.plan())[0]
    (scene.own / "second").unlink()
    scene.image.unlink()
    assert reasons(scene.plan()) == ["it is not there"]
    scene.image.symlink_to(scene.other / "web.img")
    assert reasons(scene.plan()) == ["it is no regular file"]


def test_a_definition_that_names_another_file_than_was_recorded_keeps_it(scene: Scene) -> None:
    (scene.own / "changed.img").write_bytes(b"x")
    scene.here.disks = [("vda", scene.own / "changed.img")]
    assert reasons(scene.plan()) == ["the ledger has no record of this disk on this host"]


def test_a_target_that_the_domain_has_not_there_stays(scene: Scene) -> None:
    scene.there.disks = []
    scene.there.folders = {str(scene.own): DirectoryFolder(scene.other)}
    assert reasons(scene.plan()) == ["the domain has no disk of that target where it is now"]


@pytest.mark.parametrize("change", ["snapshots", "tpm", "save"])
def test_what_libvirt_would_lose_stops_it(scene: Scene, change: str) -> None:
    if change == "snapshots":
        scene.here.snapshots = 2
    elif change == "tpm":
        scene.here.tpm, scene.here.can_keep_tpm = TPM, False
    else:
        scene.here.managed_save = scene.save_folder / "web.save"
    plan = scene.plan()
    assert plan["kind"] == "refuse", plan
    scene.here.can_keep_tpm = True
    if change == "tpm":
        assert scene.plan()["tpm"] == f"/var/lib/libvirt/swtpm/{UUID}"


def test_a_definition_goes_and_its_files_are_put_aside(scene: Scene) -> None:
    scene.here.managed_save = scene.save_folder / "web.save"
    scene.here.managed_save.write_bytes(b"memory")
    done = scene.clean()
    assert (done["changed"], done["undefined"], done["kept"]) == (True, True, [])
    assert [pathlib.Path(file["quarantine"]).read_bytes() for file in done["quarantined"]] == [b"memory", b"data"]
    assert not scene.here.present
    assert not scene.image.exists()


_STEPS = ("definition", "manifest", "move managed_save", "undefine", "finish")


@pytest.mark.parametrize(("storage", "die_at"), [("quarantine", "move disk"), *((storage, step) for storage in ("quarantine", "keep") for step in _STEPS)])
def test_a_run_that_died_anywhere_is_continued(scene: Scene, die_at: str, storage: str) -> None:
    scene.here.managed_save = scene.save_folder / "web.save"
    scene.here.managed_save.write_bytes(b"memory")
    with pytest.raises(Died):
        scene.clean(storage, die_at)
    done = scene.clean(storage)
    files = [file["path"] for file in done["quarantined"]]
    assert files == [str(scene.here.managed_save), *([str(scene.image)] if storage == "quarantine" else [])]
    assert [disk["path"] for disk in done["kept"]] == ([] if storage == "quarantine" else [str(scene.image)])
    assert (scene.here.present, scene.image.exists()) == (False, storage == "keep")
    assert "definition.xml" in done["restore"]
    assert not scene.clean(storage)["changed"]


def test_a_disk_that_got_a_user_since_a_run_died_stays(scene: Scene) -> None:
    with pytest.raises(Died):
        scene.clean(die_at="undefine")
    scene.here.others = [("other", "other", XML.format(uuid="other", tpm="", disks=DISK.format(path=scene.image, target="vda")))]
    done = scene.clean()
    assert (done["quarantined"], len(done["kept"])) == ([], 1)
    assert scene.image.exists()


def test_a_domain_that_is_not_here_and_has_no_disks_here_changes_nothing(scene: Scene) -> None:
    scene.here.present = False
    scene.image.unlink()
    done = scene.clean()
    assert (done["changed"], done["undefined"], done["restore"]) == (False, False, None)


def test_what_libvirt_does_not_forget_is_no_success_and_no_disk_is_touched(scene: Scene) -> None:
    scene.here.forgets = False
    with pytest.raises(Internal, match="still defined"):
        scene.clean()
    assert scene.image.exists()
