# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import subprocess

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.integration.cleanup.support.scene import IMAGES, Scene
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import eventually

HOST_ID = "/var/lib/kvmfleet/host-id"


@pytest.mark.long
def test_a_domain_that_runs_on_the_host_again_is_not_cleaned(scene: Scene) -> None:
    scene.guest("web", "--storage", "shared")
    scene.protect(shared=True)
    first = scene.evacuated("web")
    uuid = scene.lab.uuid("web", 2)
    scene.start_elsewhere("web", source=2, destination=1)
    back = scene.record("web", uuid, source=2, destination=1)
    outcome = scene.clean()
    assert outcome.code == 0, outcome.text
    assert [entry["record"] for entry in outcome.result["superseded"]] == [first["id"]]
    assert outcome.result["cleaned"] == []
    assert scene.lab.places("web") == {1: "running", 2: "shut off"}
    assert scene.status(first) == ("completed", "superseded")
    there = scene.control.task(2, "evacuation_cleanup", {})
    assert there.code == 0, there.text
    assert scene.lab.places("web") == {1: "running"}
    assert scene.status(back) == ("completed", None)


@pytest.mark.long
def test_a_host_without_its_identity_cleans_nothing_until_it_is_adopted(scene: Scene) -> None:
    scene.guest("web", "--storage", "shared")
    scene.protect(shared=True)
    record = scene.evacuated("web")
    host_id = scene.lab.on(1, "cat", HOST_ID).strip()
    scene.lab.on(1, "rm", HOST_ID)
    assert scene.clean().refused() == "conflict"
    scene.lab.on(1, "sh", "-c", f"echo garbage > {HOST_ID}")
    assert scene.clean().refused() == "internal"
    # The identity of the other host: that one's tombstones are not this one's.
    scene.lab.on(1, "sh", "-c", f"echo {scene.place(2).host_id} > {HOST_ID}")
    assert scene.clean().refused() == "conflict"
    assert scene.lab.places("web") == {1: "shut off", 2: "running"}
    assert scene.status(record) == ("done", None)
    scene.lab.on(1, "rm", HOST_ID)
    adopted = scene.control.task(1, "host", {"adopt_identity": True, "reason": "the disk was restored without it"})
    assert adopted.code == 0, adopted.text
    assert scene.lab.on(1, "cat", HOST_ID).strip() == host_id
    assert scene.clean().code == 0
    assert scene.lab.places("web") == {2: "running"}


@pytest.mark.long
def test_cleanup_is_completed_by_the_next_run_after_the_control_node_is_killed(scene: Scene) -> None:
    names = [f"web{number}" for number in range(4)]
    for name in names:
        scene.guest(name, "--storage", "local")
    scene.protect()
    records = {}
    for name in names:
        scene.copy_image(name)
        records[name] = scene.evacuated(name)
    running = scene.control.begin(1, "evacuation_cleanup", {})
    eventually(lambda: 1 not in scene.lab.places(names[0]), "the first domain is undefined")
    running.kill()
    outcome = scene.clean()
    assert outcome.code == 0, outcome.text
    for name in names:
        assert scene.lab.places(name) == {2: "running"}
        assert scene.status(records[name]) == ("completed", None)
        assert not scene.exists(f"{IMAGES}/{name}.qcow2")
        manifest = json.loads(scene.lab.on(1, "cat", f"/var/lib/kvmfleet/quarantine/{records[name]['id']}.json"))
        assert manifest["state"] == "complete"
        assert scene.exists(manifest["items"][0]["to"])


@pytest.mark.long
def test_an_image_that_backs_another_domain_is_kept(scene: Scene) -> None:
    scene.guest("web", "--storage", "local")
    scene.guest("other", "--storage", "local", "--off")
    scene.protect()
    scene.copy_image("web")
    scene.evacuated("web")
    overlay = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", f"{IMAGES}/web.qcow2", f"{IMAGES}/other.qcow2"]
    scene.lab.on(1, *overlay)
    outcome = scene.clean()
    assert outcome.code == 0, outcome.text
    (kept,) = outcome.result["kept"]
    assert ("domain other" in kept["reason"], kept["only_copy"]) == (True, True)
    assert scene.exists(f"{IMAGES}/web.qcow2")
    assert scene.lab.places("web") == {2: "running"}


@pytest.mark.long
def test_quarantined_files_are_deleted_by_a_later_run_after_their_retention(scene: Scene) -> None:
    scene.guest("web", "--storage", "local")
    scene.protect()
    scene.copy_image("web")
    record = scene.evacuated("web")
    outcome = scene.clean(storage="delete", retention_days=0)
    put = outcome.result["cleaned"][0]["quarantined"][0]["quarantine"]
    assert outcome.result["deleted"] == []
    assert scene.exists(put)
    assert not scene.clean(storage="delete").changed
    assert not scene.clean(storage="quarantine", retention_days=0).changed
    predicted = scene.clean("--check", storage="delete", retention_days=0)
    assert (predicted.changed, scene.exists(put)) == (True, True)
    deleted = scene.clean(storage="delete", retention_days=0)
    assert [entry["record"] for entry in deleted.result["deleted"]] == [record["id"]]
    assert not scene.exists(put)


@pytest.mark.long
def test_a_quarantine_dated_by_a_wrong_clock_is_not_overdue_after_the_clock_is_set(scene: Scene) -> None:
    """The hardware clock has failed: the quarantine is dated 1970, until NTP has set the clock."""
    scene.guest("web", "--storage", "local")
    scene.protect()
    scene.copy_image("web")
    record = scene.evacuated("web")
    put = scene.clean().result["cleaned"][0]["quarantined"][0]["quarantine"]
    manifest = f"/var/lib/kvmfleet/quarantine/{record['id']}.json"
    scene.lab.on(1, "sed", "-i", "-E", 's/"(created_at|completed_at)": "[0-9]{4}-/"\\1": "1970-/', manifest)
    assert '"completed_at": "1970-' in scene.lab.on(1, "cat", manifest)
    outcome = scene.clean(storage="delete", retention_days=14)
    assert (outcome.code, outcome.result["deleted"], scene.exists(put)) == (0, [], True), outcome.text


@pytest.mark.long
def test_cleanup_refuses_another_uri_bad_options_and_another_ledger(scene: Scene) -> None:
    scene.guest("web", "--storage", "shared")
    scene.protect(shared=True)
    record = scene.evacuated("web")
    assert scene.clean(uri=f"qemu+ssh://{scene.lab.host(2)}/system").refused() == "not_supported"
    assert scene.clean(retention_days=-1).refused() == "invalid_argument"
    assert scene.control.task(1, "evacuation_cleanup", {"storage": "shred"}).refused() == "invalid_argument"
    other = str(scene.control.folder / "other-ledger")
    assert scene.control.task(1, "host", {"ledger": other, "state": "maintenance"}).refused() == "conflict"
    open_ledger(other)
    assert scene.clean(ledger=other).refused() == "conflict"
    assert scene.lab.places("web") == {1: "shut off", 2: "running"}
    assert scene.status(record) == ("done", None)


@pytest.mark.long
def test_no_password_is_shown_and_only_root_can_read_the_quarantined_definition(scene: Scene) -> None:
    scene.guest("web", "--storage", "shared")
    scene.lab.virsh(1, "destroy", "web")
    definition = scene.control.folder / "secret.xml"
    text = scene.lab.virsh(1, "dumpxml", "--inactive", "web")
    graphics = "<graphics type='vnc' port='-1' autoport='yes' listen='127.0.0.1' passwd='Geheim42'/></devices>"
    definition.write_text(text.replace("</devices>", graphics), encoding="utf-8")
    scene.lab.virsh(1, "define", str(definition))
    scene.lab.virsh(1, "start", "web")
    scene.protect(shared=True)
    record = scene.evacuated("web")
    outcome = scene.clean("-vvvv", "--diff")
    assert outcome.code == 0, outcome.text
    assert "Geheim42" not in outcome.text
    kept = f"/var/lib/kvmfleet/quarantine/{record['id']}/definition.xml"
    assert "Geheim42" in scene.lab.on(1, "cat", kept)
    assert scene.lab.on(1, "stat", "-c", "%a %U", kept).split() == ["600", "root"]
    assert subprocess.run(["grep", "-r", "Geheim42", str(scene.control.path / "migrations")], check=False).returncode == 1
