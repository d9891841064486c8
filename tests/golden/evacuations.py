# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that are protected, drained, lost and given back; and the one that is never given back."""

from __future__ import annotations

import json
import shutil

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import status
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.tests.golden.stage import PLAIN, Document, Stage
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import BEFORE

SMALL = {"mib": 32}
IMAGES = "/var/lib/libvirt/images"
BY = "root@control pid 1"


def drained(stage: Stage) -> None:
    """A drain that is planned, saved and carried out as saved."""
    site = stage.site
    for name in ("alpha", "beta"):
        stage.guest(name, on=2, **PLAIN)
    plan = site.folder / "plan.json"
    options: Document = {"target": site.name(2), "drain_host_plan_file": str(plan)}
    code, text = site.playbook("drain", drain_host_plan_only=True, **options)
    assert code == 0, text
    stage.keep_text("plans/drain.json", plan.read_text(encoding="utf-8"))
    code, text = site.playbook("drain", drain_host_plan_apply=True, **options)
    assert code == 0, text
    assert site.task(2, "host", {"state": "enabled"}).code == 0
    stage.remove("alpha", "beta")


def evacuated_and_recovered(stage: Stage) -> None:
    """One guest is forced onto a host without room, the others follow; the host returns, is held, cleaned and released."""
    site = stage.site
    stage.guest("web", storage="shared", **SMALL)
    stage.guest("db", storage="bindfs", **SMALL)
    stage.guest("idle", off=True, **SMALL)
    stage.guest("held", paused=True, storage="shared", **SMALL)
    stage.guest("auto", autostart=True, storage="shared", **SMALL)
    _save_all(stage, guard=True)
    stage.keep_tokens(stage.lab.layout.shared)
    stage.keep_disk("protected")
    stage.keep_run("guard-released")
    site.lose(1)
    full = ("-e", json.dumps({"kvmfleet_scheduler": {"reserved_memory_mib": 100_000_000}}))
    assert site.evacuate(2, 1, *full, domains=["web"]).code != 0
    forced = site.evacuate(2, 1, *full, domains=["web"], force=True)
    assert forced.code == 0, forced.text
    others = site.evacuate(3, 1, domains=["db", "idle", "held", "auto"])
    assert others.code == 0, others.text
    stage.keep_disk("took-over", 3)
    site.bring_back(1)
    stage.keep_run("guard-held")
    stage.keep_disk("returned")
    cleaned = site.clean(1)
    assert cleaned.code == 0, cleaned.text
    released = site.task(1, "boot_guard", {"state": "released"})
    assert released.code == 0, released.text
    stage.keep_run("guard-released-by-control")
    stage.keep_disk("released")
    assert site.task(1, "host", {"state": "enabled"}).code == 0
    stage.remove("web", "db", "idle", "held", "auto")


def trusted(stage: Stage) -> None:
    """A host leaves a token at each clean shutdown. Shared storage confirms the first; the second is revoked while the host is off, the third on the host."""
    site = stage.site
    stage.guest("keeper", on=3, storage="shared", **SMALL)
    # A host is granted a token only after the other hosts have seen its folders.
    for number in (3, 1, 2):
        _save(stage, number, guard=number == 3)
    _save(stage, 3, guard=True, clean_shutdown_token=True)
    _shut_down(stage, 3)
    stage.keep_disk("trusted", 3)
    site.bring_back(3)
    stage.keep_run("guard-released-by-token", 3)
    _shut_down(stage, 3)
    revocation = {"name": site.name(3), "revoke_token": True, "reason": "it is to be evacuated without a visit"}
    revoked = site.task(2, "host", revocation)
    assert revoked.code == 0, revoked.text
    stage.keep_tombstones(stage.lab.layout.shared)
    site.bring_back(3)
    stage.keep_run("guard-held-by-tombstone", 3)
    stage.keep_disk("revoked-elsewhere", 3)
    assert site.task(3, "boot_guard", {"state": "released"}).code == 0
    _save(stage, 3, guard=True, clean_shutdown_token=True)
    revoked = site.task(3, "host", revocation)
    assert revoked.code == 0, revoked.text
    stage.keep_disk("revoked", 3)
    stage.remove("keeper")


def _shut_down(stage: Stage, number: int) -> None:
    """Shut a host down cleanly, so that it leaves a token."""
    assert "Left a token" in stage.lab.on(number, f"/{status.PROGRAM_FILE}", "shutdown")
    stage.site.lose(number)


def _save(stage: Stage, number: int, **options: bool) -> None:
    """Save the definitions of one host, whose storage was proved before."""
    saved = stage.site.task(number, "protect", dict(options))
    assert saved.code == 0, saved.text


def _save_all(stage: Stage, **options: bool) -> None:
    """Save the definitions of all hosts, of the first one last: only then it is known who sees its tokens."""
    for number in (1, 2, 3, 1):
        _save(stage, number, **options)


def put_aside(stage: Stage) -> None:
    """A local disk whose copy runs elsewhere is put aside; one of two is deleted later. The records are what a restore from a backup leaves."""
    site, lab = stage.site, stage.lab
    records = []
    for name in ("kept", "gone"):
        stage.guest(name, storage="local", **SMALL)
    _save(stage, 1)
    for name in ("kept", "gone"):
        lab.on(2, "mkdir", "-p", IMAGES)
        shutil.copyfile(lab.path(1, f"{IMAGES}/{name}.qcow2"), lab.path(2, f"{IMAGES}/{name}.qcow2"))
        records.append(_evacuated_by_hand(stage, name))
    cleaned = site.clean(1)
    assert cleaned.code == 0, cleaned.text
    stage.keep_disk("put-aside")
    deleted = site.clean(1, storage="delete", retention_days=0)
    assert deleted.code == 0, deleted.text
    stage.keep_disk("deleted")
    stage.remove("kept", "gone")


def _evacuated_by_hand(stage: Stage, name: str) -> MoveRecord:
    """Start a guest on the second host by libvirt's own means, and write the record that an evacuation leaves."""
    lab, ledger, uuid = stage.lab, stage.site.ledger, stage.lab.uuid(name)
    definition = lab.virsh(1, "dumpxml", "--inactive", "--security-info", name)
    lab.virsh(1, "destroy", name)
    lab("virsh", lab.host(2), "define", "/dev/stdin", stdin=definition)
    lab.virsh(2, "start", name)
    ends = [_place(stage, number) for number in (1, 2)]
    stored = ledger.open_record(new_record(s.EVACUATION, DomainRef(uuid, name), ends[0], ends[1], {}, by=BY))
    for next_status in (s.PRE_MIGRATING, s.DONE):
        stored = ledger.update_record(stored, stored.record.advance(next_status, BY))
    return stored.record


def _place(stage: Stage, number: int) -> HostRef:
    entry = stage.site.ledger.find_host(name=stage.site.name(number))
    assert entry
    return HostRef(stage.site.name(number), entry.body["host_id"], entry.body["host_uuid"])


def given_up_for_a_newer_one(stage: Stage) -> None:
    """The destination loses its power while it starts the guest: a third host takes the guest, and the first record is superseded."""
    site = stage.site
    stage.guest("sup", storage="shared", **SMALL)
    uuid = stage.lab.uuid("sup")
    _save_all(stage)
    site.lose(1)
    site.hooks[2].hold(BEFORE, "sup")
    running = site.begin_evacuation(2, domains=[uuid])
    site.hooks[2].wait_for(BEFORE, "sup")
    site.lose(2)
    assert running.wait().code != 0
    site.hooks[2].let_go(BEFORE, "sup")
    done = site.evacuate(3, 1, domains=[uuid])
    assert done.code == 0, done.text
    stage.keep_lines("ledgers/superseded.jsonl", site.records()[-2:])
    for number in (2, 1):
        site.bring_back(number)
    for number in (1, 2):
        cleaned = site.clean(number)
        assert cleaned.code == 0, cleaned.text
        assert site.task(number, "host", {"state": "enabled"}).code == 0
    stage.remove("sup")


def lost_for_good(stage: Stage) -> None:
    """The first host was scrapped; the second one is dead, and what it ran is started on the third."""
    site = stage.site
    stage.guest("web", storage="shared", **SMALL)
    # Earlier scenes have left other domains of that name in the ledger.
    uuid = stage.lab.uuid("web")
    _save_all(stage)
    site.lose(1)
    done = site.evacuate(2, 1, domains=[uuid])
    assert done.code == 0, done.text
    scrapped = {"name": site.name(1), "source_discarded": True, "reason": "its mainboard is beyond repair"}
    assert site.task(2, "host", scrapped).code == 0
    fenced = site.task(2, "host", {"name": site.name(1), "state": "fenced", "reason": "scrapped"})
    assert fenced.code == 0, fenced.text
    site.lose(2)
    done = site.evacuate(3, 2, domains=[uuid], accept_silent=[site.name(1)])
    assert done.code == 0, done.text
    cordoned = site.task(3, "host", {"state": "maintenance", "reason": "the last one: no more guests"})
    assert cordoned.code == 0, cordoned.text
