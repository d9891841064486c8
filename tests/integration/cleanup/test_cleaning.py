# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.cleanup.support.scene import IMAGES, Scene

DONE = ("done", None)
COMPLETED = ("completed", None)


def test_a_copy_is_undefined_its_disk_quarantined_and_restore_puts_both_back(scene: Scene) -> None:
    scene.guest("web", "--storage", "local")
    scene.protect()
    scene.copy_image("web")
    record = scene.evacuated("web")
    image = f"{IMAGES}/web.qcow2"

    predicted = scene.clean("--check")
    assert predicted.changed, predicted.text
    assert [entry["path"] for entry in predicted.result["cleaned"][0]["quarantined"]] == [image]
    assert scene.lab.places("web") == {1: "shut off", 2: "running"}
    assert scene.status(record) == DONE

    outcome = scene.clean()
    assert outcome.code == 0, outcome.text
    (cleaned,) = outcome.result["cleaned"]
    assert (cleaned["where"], cleaned["undefined"], outcome.result["kept"]) == (scene.lab.host(2), True, [])
    put = cleaned["quarantined"][0]["quarantine"]
    assert scene.lab.places("web") == {2: "running"}
    assert (scene.exists(image), scene.exists(put)) == (False, True)
    assert scene.status(record) == COMPLETED
    manifest = json.loads(scene.lab.on(1, "cat", f"/var/lib/kvmfleet/quarantine/{record['id']}.json"))
    assert (manifest["state"], manifest["restore"]) == ("complete", cleaned["restore"])

    again = scene.clean()
    assert (again.code, again.changed, again.result["cleaned"]) == (0, False, [])

    scene.lab.on(1, "sh", "-c", cleaned["restore"])
    assert (scene.exists(image), scene.exists(put)) == (True, False)
    assert scene.lab.places("web") == {1: "shut off", 2: "running"}


def test_a_disk_that_the_other_host_sees_too_is_kept(scene: Scene) -> None:
    scene.guest("web", "--storage", "shared")
    scene.protect(shared=True)
    record = scene.evacuated("web")
    outcome = scene.clean()
    assert outcome.code == 0, outcome.text
    (kept,) = outcome.result["kept"]
    assert (kept["reason"], kept["only_copy"]) == ("other hosts see it too", False)
    assert outcome.result["cleaned"][0]["quarantined"] == []
    assert scene.lab.places("web") == {2: "running"}
    assert scene.exists(kept["path"])
    assert scene.status(record) == COMPLETED


@pytest.mark.long
def test_a_managed_save_image_is_quarantined_and_not_deleted(scene: Scene) -> None:
    scene.guest("web", "--storage", "local")
    scene.protect()
    scene.copy_image("web")
    scene.lab.virsh(1, "managedsave", "web")
    saved = "/var/lib/libvirt/qemu/save/web.save"
    assert scene.exists(saved)
    scene.evacuated("web")
    outcome = scene.clean(storage="keep")
    assert outcome.code == 0, outcome.text
    (put,) = outcome.result["cleaned"][0]["quarantined"]
    assert (put["target"], put["path"]) == (None, saved)
    assert (scene.exists(saved), scene.exists(put["quarantine"])) == (False, True)
    assert scene.exists(f"{IMAGES}/web.qcow2")
    assert [kept["reason"] for kept in outcome.result["kept"]] == ["storage is 'keep'"]


@pytest.mark.long
def test_a_running_local_copy_stops_the_cleanup_of_all_domains(scene: Scene) -> None:
    for name in ("web", "twice"):
        scene.guest(name, "--storage", "local")
    scene.protect()
    records = []
    for name in ("web", "twice"):
        scene.copy_image(name)
        records.append(scene.evacuated(name))
    scene.lab.virsh(1, "start", "twice")
    for options in ((), ("--check",)):
        outcome = scene.clean(*options)
        assert outcome.refused() == "unsafe"
        assert "twice" in outcome.msg
        assert scene.lab.host(2) in outcome.msg
    assert scene.lab.places("web") == {1: "shut off", 2: "running"}
    assert scene.lab.places("twice") == {1: "running", 2: "running"}
    assert [scene.status(record) for record in records] == [DONE, DONE]


@pytest.mark.long
def test_cleanup_without_a_record_changes_nothing(scene: Scene) -> None:
    scene.guest("web", "--storage", "local")
    scene.protect()
    scene.copy_image("web")
    scene.start_elsewhere("web")
    outcome = scene.clean()
    assert (outcome.code, outcome.changed) == (0, False), outcome.text
    assert scene.lab.places("web") == {1: "shut off", 2: "running"}
    assert scene.exists(f"{IMAGES}/web.qcow2")


@pytest.mark.long
def test_cleanup_changes_nothing_for_a_record_that_is_not_done(scene: Scene) -> None:
    scene.guest("web", "--storage", "local")
    scene.protect()
    scene.copy_image("web")
    record = scene.evacuated("web", until="pre-migrating")
    outcome = scene.clean()
    assert (outcome.code, outcome.changed) == (0, False), outcome.text
    assert scene.lab.places("web") == {1: "shut off", 2: "running"}
    assert scene.status(record) == ("pre-migrating", None)


@pytest.mark.long
def test_a_copy_is_kept_while_the_domain_is_shut_off_on_its_destination(scene: Scene) -> None:
    scene.guest("web", "--storage", "local")
    scene.protect()
    scene.copy_image("web")
    record = scene.evacuated("web")
    scene.lab.virsh(2, "destroy", "web")
    outcome = scene.clean()
    assert (outcome.code, outcome.changed) == (0, False), outcome.text
    assert "shut off on" in outcome.result["refused"][0]["reason"]
    assert "was not cleaned" in outcome.warnings
    assert scene.lab.places("web") == {1: "shut off", 2: "shut off"}
    assert scene.status(record) == DONE


@pytest.mark.long
def test_an_evacuation_that_only_defined_the_domain_is_cleaned_while_it_is_shut_off(scene: Scene) -> None:
    scene.guest("web", "--storage", "local")
    scene.protect()
    scene.copy_image("web")
    uuid = scene.lab.uuid("web")
    scene.start_elsewhere("web", start=False)
    record = scene.record("web", uuid, wanted_state="shut off")
    outcome = scene.clean()
    assert outcome.code == 0, outcome.text
    assert scene.lab.places("web") == {2: "shut off"}
    assert scene.status(record) == COMPLETED
