# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import (
    QUARANTINE_FOLDER,
    Quarantine,
    expire_quarantine,
    list_quarantined,
    read_manifest,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cleanup import QuarantineExpiry, QuarantineListing, QuarantineManifest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef

RECORD = "0f6f2f7a-9d0f-4d43-8f2b-2d1f0f7a3c11"
DOMAIN = DomainRef("5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11", "web")


class Died(Exception):
    """The process ends here."""


class Store:
    """A file system with one image, and a folder of manifests."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.mount = folder / "mount"
        self.root = folder / "quarantine"
        self.image = self.mount / "images" / "it's web.qcow2"
        self.image.parent.mkdir(parents=True)
        self.image.write_text("data")

    def quarantine(self, die_at: str = "") -> Quarantine:
        def step(name: str) -> None:
            if name == die_at:
                raise Died(name)

        return Quarantine(RECORD, str(self.root), step)

    def put(self, definition: str | None = "<domain/>", die_at: str = "") -> QuarantineManifest:
        quarantine = self.quarantine(die_at)
        manifest = quarantine.record_files(DOMAIN, "me", definition, [quarantine.locate_file("disk", "vda", str(self.image), str(self.mount))])
        for file in manifest.items:
            quarantine.move_file(file)
        return quarantine.mark_complete()

    @property
    def put_aside(self) -> pathlib.Path:
        return self.mount / QUARANTINE_FOLDER / RECORD / f"vda-{self.image.name}"

    def expire(self, check: bool = False, users: t.Sequence[str] = (), due: t.Sequence[str] = (RECORD,)) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", encode(expire_quarantine(due, lambda path: users, check, str(self.root))))

    def listed(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", encode(list_quarantined(str(self.root))))


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Store:
    return Store(tmp_path)


def test_a_file_is_quarantined_on_its_file_system_and_readable_only_by_root(store: Store) -> None:
    manifest = store.put()
    assert (store.put_aside.read_text(), store.image.exists()) == ("data", False)
    assert store.put_aside.parent.stat().st_mode & 0o777 == 0o700
    assert (store.root / f"{RECORD}.json").stat().st_mode & 0o777 == 0o600
    assert pathlib.Path(str(manifest.definition)).read_text() == "<domain/>"
    assert pathlib.Path(str(manifest.definition)).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("die_at", ["definition", "manifest", "move disk", "finish"])
def test_a_quarantine_that_died_at_any_step_is_continued(store: Store, die_at: str) -> None:
    with pytest.raises(Died):
        store.put(die_at=die_at)
    assert store.image.exists() != store.put_aside.exists()
    manifest = store.put(definition=None if die_at != "definition" else "<domain/>")
    assert (manifest.state, store.put_aside.read_text(), store.image.exists()) == ("complete", "data", False)
    assert pathlib.Path(str(manifest.definition)).read_text() == "<domain/>"


def test_the_restore_command_restores_the_file_and_overwrites_none(store: Store) -> None:
    command = str(store.put().restore).partition(" && virsh")[0]
    store.image.write_text("new")
    assert subprocess.run(["sh", "-c", command], check=False).returncode != 0
    assert (store.image.read_text(), store.put_aside.read_text()) == ("new", "data")
    store.image.unlink()
    subprocess.run(["sh", "-c", command], check=True)
    assert (store.image.read_text(), store.put_aside.exists()) == ("data", False)


def test_another_file_in_the_quarantine_is_not_overwritten(store: Store) -> None:
    store.put_aside.parent.mkdir(parents=True, mode=0o700)
    store.put_aside.write_text("other")
    with pytest.raises(Unsafe, match="another file"):
        store.put()
    assert (store.image.read_text(), store.put_aside.read_text()) == ("data", "other")


@pytest.mark.parametrize("target", ["../../etc/cron.d/x", "/etc/x", "a/b"])
def test_a_device_name_with_a_slash_is_refused(store: Store, target: str) -> None:
    with pytest.raises(Unsafe, match="not the name of a device"):
        store.quarantine().locate_file("disk", target, str(store.image), str(store.mount))


def test_a_quarantine_folder_that_is_a_link_is_refused(store: Store, tmp_path: pathlib.Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (store.mount / QUARANTINE_FOLDER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unsafe, match="that root owns"):
        store.put()
    assert store.image.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"items": [{"kind": "disk", "target": "vda", "from": "/a", "to": "/etc/passwd"}]},
        {"items": [{"kind": "disk", "target": "vda", "from": "/a", "to": f"/x/{QUARANTINE_FOLDER}/{RECORD}/../../../etc/passwd"}]},
        {"items": [{"kind": "disk", "target": "vda", "from": "a", "to": f"/x/{QUARANTINE_FOLDER}/{RECORD}/b"}]},
        {"items": "none"},
        {"definition": "/etc/passwd"},
        {"record": "another"},
        {"state": "unknown"},
        {"domain": None},
    ],
)
def test_an_edited_manifest_is_refused_and_nothing_is_deleted(store: Store, change: dict[str, t.Any]) -> None:
    path = store.root / f"{RECORD}.json"
    path.write_text(json.dumps({**encode(store.put()), **change}))
    with pytest.raises(Internal, match="cannot be read"):
        read_manifest(str(path))
    with pytest.raises(Internal, match="cannot be read"):
        store.expire()
    answer = store.listed()
    assert (answer["quarantined"], [one["record"] for one in answer["kept"]]) == ([], [RECORD])
    assert store.put_aside.exists()


def test_a_torn_manifest_stops_the_run(store: Store) -> None:
    store.put()
    path = store.root / f"{RECORD}.json"
    path.write_text(path.read_text()[:50])
    with pytest.raises(Internal, match="not JSON"):
        store.put()
    assert store.put_aside.exists()


def test_a_missing_manifest_is_an_error(store: Store) -> None:
    with pytest.raises(Internal, match="is missing"):
        store.quarantine().mark_complete()


def test_unknown_keys_of_a_manifest_are_kept(store: Store) -> None:
    path = store.root / f"{RECORD}.json"
    path.write_text(json.dumps({**encode(store.put()), "of_a_later_version": [1]}))
    assert store.expire()["deleted"][0]["record"] == RECORD
    assert json.loads(path.read_text())["of_a_later_version"] == [1]


def test_files_added_after_a_deletion_reopen_the_manifest(store: Store) -> None:
    store.put()
    store.expire()
    store.image.write_text("more")
    quarantine = store.quarantine()
    added = quarantine.locate_file("disk", "vdb", str(store.image), str(store.mount))
    manifest = quarantine.record_files(DOMAIN, "me", None, [added])
    assert (manifest.state, manifest.deleted_at, [file.target for file in manifest.items]) == ("working", ABSENT, ["vda", "vdb"])


def test_due_files_are_deleted_and_the_manifest_records_it(store: Store) -> None:
    manifest = store.put()
    assert store.listed() == {"quarantined": [{"record": RECORD, **encode(DOMAIN), "paths": [str(store.put_aside)]}], "kept": []}
    assert store.expire(due=[])["deleted"] == []
    assert store.put_aside.exists()
    assert store.expire(check=True)["deleted"][0]["paths"] == [str(store.put_aside)]
    assert store.put_aside.exists()
    assert store.expire()["deleted"][0]["record"] == RECORD
    assert not os.path.lexists(store.mount / QUARANTINE_FOLDER)
    assert not os.path.lexists(str(manifest.definition))
    after = read_manifest(str(store.root / f"{RECORD}.json"))
    assert after is not None
    assert (after.state, after.restore) == ("deleted", None)
    assert store.expire() == {"deleted": [], "kept": []}
    assert store.listed() == {"quarantined": [], "kept": []}


def test_a_quarantine_whose_file_system_is_not_mounted_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put()
    store.mount.rename(store.mount.parent / "elsewhere")
    store.mount.mkdir()
    (kept,) = store.expire()["kept"]
    assert f"{store.mount} is not mounted" in kept["reason"]
    assert (store.listed()["quarantined"], os.path.lexists(store.root / RECORD / "definition.xml")) != ([], False)
    mounted = [types.SimpleNamespace(path=str(store.mount))]
    monkeypatch.setattr("ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine.read_mounts", lambda: mounted)
    assert store.expire()["deleted"][0]["record"] == RECORD


def test_files_in_use_or_of_an_unfinished_quarantine_are_not_deleted(store: Store) -> None:
    with pytest.raises(Died):
        store.put(die_at="move disk")
    assert store.expire() == {"deleted": [], "kept": []}
    assert store.listed() == {"quarantined": [], "kept": []}
    store.put()
    answer = store.expire(users=["domain other"])
    assert "used by domain other" in answer["kept"][0]["reason"]
    assert store.put_aside.exists()


def test_a_host_without_a_quarantine_has_nothing_to_delete(tmp_path: pathlib.Path) -> None:
    assert expire_quarantine([RECORD], lambda path: (), False, str(tmp_path / "none")) == QuarantineExpiry((), ())
    assert list_quarantined(str(tmp_path / "none")) == QuarantineListing((), ())
