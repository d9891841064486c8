# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Live migrations, one for each way in which they end, and the files on their source host on the way."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import typing as t

from ansible_collections.kvmfleet.migration.tests.golden.alone import POLICY
from ansible_collections.kvmfleet.migration.tests.golden.stage import CALM, ENDLESS, PLAIN, Document, Stage
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.hosts import contradict
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.phases import POST_COPY, await_post_copy
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import COMMAND, eventually

CAP: t.Dict[str, t.Any] = {"bandwidth_mib": 8}
NAMESPACE = "urn:kvmfleet:migration:policy"


def completed_and_forced(stage: Stage) -> None:
    site = stage.site
    plain = stage.guest("plain", **PLAIN)
    stage.ends(site.move(plain), "completed")
    cordoned = site.task(3, "host", {"state": "maintenance", "reason": "a new fan"})
    assert cordoned.code == 0, cordoned.text
    back = {"name": plain, "destination": site.name(3)}
    stage.ends(site.task(2, "live_migrate", back), "conflict")
    stage.ends(site.task(2, "live_migrate", {**back, "force": True}), "completed")
    stage.keep_run("moved-back", 2)
    assert site.task(3, "host", {"state": "enabled"}).code == 0
    stage.remove(plain)


def timed_out_and_aborted(stage: Stage) -> None:
    site = stage.site
    endless = stage.guest("endless", **ENDLESS)
    stage.ends(site.move(endless, timeout_seconds=2, **CAP), "cancelled", "timeout")
    stage.keep_run("timed-out")
    running = site.begin_move(endless, **CAP)
    state = stage.under_way(endless)
    stage.keep_run("in-flight")
    # Only a watcher that sleeps leaves an intent where it can be read.
    watcher = str(state["watcher"]["pid"])
    stage.lab.on(1, "kill", "-STOP", watcher)
    aborting = site.popen(site.ad_hoc_command(1, "migration_abort", {"name": endless, "wait_seconds": 60}, ledger=False))
    stage.await_file("*.intent")
    stage.keep_run("aborting")
    stage.lab.on(1, "kill", "-CONT", watcher)
    text, _code = aborting.communicate(timeout=120)
    assert aborting.returncode == 0, text
    stage.ends(running.wait(), "cancelled", "operator")
    stage.keep_run("ended")
    stage.remove(endless)


def preparing(stage: Stage) -> None:
    """A watcher is stopped before its job begins. This phase is short: a watcher that was stopped too late is followed by the next one."""
    for number in range(4):
        early = stage.guest(f"early{number}", **PLAIN)
        running = stage.site.begin_move(early)
        is_kept = _keep_preparing(stage, stage.lab.uuid(early))
        stage.ends(running.wait(), "completed")
        stage.remove(early)
        if is_kept:
            return
    raise AssertionError("no watcher was stopped while it prepared its move")


def _keep_preparing(stage: Stage, uuid: str) -> bool:
    """Keep the files of a host whose watcher prepares a move; return false if the job has begun."""
    limit = time.monotonic() + 120
    while not (state := stage.lab.state_file(uuid)) or state["status"] in ("accepted", "scheduled", "queued"):
        assert time.monotonic() < limit, state
        time.sleep(0.005)
    if state["status"] != "preparing":
        return False
    watcher = str(state["watcher"]["pid"])
    stage.lab.on(1, "kill", "-STOP", watcher)
    try:
        stopped = stage.lab.state_file(uuid)
        is_preparing = stopped is not None and stopped["status"] == "preparing"
        if is_preparing:
            stage.keep_run("preparing")
    finally:
        stage.lab.on(1, "kill", "-CONT", watcher)
    return is_preparing


def stalled(stage: Stage) -> None:
    lab, endless = stage.lab, stage.guest("endless", **ENDLESS)
    running = stage.site.begin_move(endless, stall_seconds=4, **CAP)
    stage.under_way(endless)
    lab("cut", lab.host(1), "--data")
    stage.ends(running.wait(), "cancelled", "stalled")
    lab("heal", lab.host(1))
    stage.remove(endless)


def overrun(stage: Stage) -> None:
    """The link was said to be fast and is not."""
    lab, endless = stage.lab, stage.guest("endless", **ENDLESS)
    limits: Document = {"timeout_seconds": 9, "on_timeout": "force_complete", "force_suspend_seconds": 0, "force_pause_max_seconds": 2, "link_mib": 1000}
    lab("slow", lab.host(1), "--mbit", "64")
    with contradict(lab, endless):
        stage.ends(stage.site.move(endless, **limits), "cancelled", "pause_overrun")
    lab("heal", lab.host(1))
    stage.remove(endless)


def waiting(stage: Stage) -> None:
    """One move has the only turn; of those that wait one gives up, and one is killed with its control node."""
    site = stage.site
    site.variable(3, "kvmfleet_scheduler", {"limits": {"moves_in": 1}})
    first, hasty, late = stage.guest("first", **ENDLESS), stage.guest("hasty", on=2, **PLAIN), stage.guest("late", on=2, **PLAIN)
    running = site.begin(1, "live_migrate", {"name": first, "destination": site.name(3), **CAP})
    stage.under_way(first)
    gave_up = site.task(2, "live_migrate", {"name": hasty, "destination": site.name(3), "queue_timeout_seconds": 4})
    stage.ends(gave_up, "cancelled", "queue_timeout")
    patient = site.begin(2, "live_migrate", {"name": late, "destination": site.name(3)})
    stage.await_file("*.heartbeat", 2)
    uuid = stage.lab.uuid(late, 2)
    eventually(lambda: (stage.lab.state_file(uuid, 2) or {}).get("status") == "queued", "it waits", 60)
    eventually(lambda: any(record.get("turn") for record in site.records()), "the ledger knows that it waits", 60)
    stage.keep_run("waiting", 2)
    stage.abort(first)
    stage.ends(running.wait(), "cancelled", "operator")
    _keep_turns(stage, patient)
    site.variable(3, "kvmfleet_scheduler", {"cpu_allocation_ratio": 32.0})
    stage.remove(first, hasty, late)


def _keep_turns(stage: Stage, patient: t.Any) -> None:
    """Hold the waiting move's watcher just long enough to read how it is told that its turn has come."""
    folder = stage.lab.path(2, "/run/kvmfleet")
    found = eventually(lambda: list(folder.glob("*.turns")), "its turn is told", 60)
    try:
        stage.keep_text(f"run/turns/{found[0].name}", found[0].read_text(encoding="utf-8"))
    except FileNotFoundError:
        # A watcher that has ended has removed it; what was told stands in the history.
        stage.keep_text(f"run/turns/{found[0].name}", json.dumps({"given": {}, "ended": {}}, separators=(",", ":")))
    stage.ends(patient.wait(), "completed")


def controller_lost(stage: Stage) -> None:
    """A queued move is given up by its watcher when nobody has been heard of for a minute; the next run hears of it."""
    site = stage.site
    endless, queued = stage.guest("endless", **ENDLESS), stage.guest("queued", **PLAIN)
    running = site.begin_moves([(endless, 2), (queued, 2)], parallel=1, **CAP)
    state = stage.under_way(endless)
    stage.keep_run("queued")
    running.kill()
    uuid = stage.lab.uuid(queued)
    eventually(lambda: (stage.lab.state_file(uuid) or {}).get("reason") == "controller_lost", "it is given up", 120)
    stage.keep_run("controller-lost")
    stage.abort(endless)
    # One watcher has both moves. While it lives, trees up to 23de551 report a conflict for the move that it gave up.
    watcher = str(state["watcher"]["pid"])
    eventually(lambda: stage.lab.try_("exec", stage.lab.host(1), "--", "kill", "-0", watcher).returncode != 0, "the watcher has ended", 60)
    stage.ends(site.move(queued), "completed")
    stage.ends(site.move(endless), "completed")
    stage.remove(endless, queued)


def failed(stage: Stage) -> None:
    """QEMU at the destination dies."""
    endless = stage.guest("endless", **ENDLESS)
    running = stage.site.begin_move(endless, **CAP)
    stage.under_way(endless)
    stage.lab.on(2, "sh", "-c", f"kill -9 $(cat /run/libvirt/qemu/{endless}.pid)")
    stage.ends(running.wait(), "failed")
    stage.remove(endless)


def foreign(stage: Stage) -> None:
    """Somebody's own virsh moves a guest, and a task adopts that."""
    lab, slow = stage.lab, stage.guest("slow", mib=64, dirty_mib=40)
    uri = f"qemu+tcp://{lab.host(2)}/system"
    options = ("migrate", "--live", "--p2p", "--persistent", "--undefinesource", "--bandwidth", "2", slow, uri)
    command = [str(COMMAND), "--prefix", lab.prefix, "virsh", lab.host(1), *options]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        eventually(lambda: lab.has_job(slow), "virsh migrates")
        stage.ends(stage.site.join_move(slow), "completed")
        process.wait(60)
    stage.remove(slow)


def taken_over(stage: Stage) -> None:
    """A watcher dies; another one takes the move over under a new generation."""
    slow = stage.guest("slow", mib=64, dirty_mib=40)
    running = stage.site.begin_move(slow, bandwidth_mib=2)
    state = stage.under_way(slow)
    stage.lab.on(1, "kill", f"-{signal.SIGKILL.value}", str(state["watcher"]["pid"]))
    eventually(lambda: (stage.lab.state_file(state["domain"]["uuid"]) or state)["generation"] > state["generation"], "a new watcher has it")
    stage.keep_run("taken-over")
    stage.lab.hurry(slow)
    stage.ends(running.wait(), "completed")
    stage.remove(slow)


def in_post_copy(stage: Stage) -> None:
    calm = stage.guest("calm", **CALM)
    running = stage.site.begin_move(calm, 2, **POST_COPY)
    await_post_copy(stage.lab, calm)
    stage.keep_run("post-copy")
    stage.ends(running.wait(), "completed")
    stage.remove(calm)


def memory_lost(stage: Stage, name: str = "lost") -> Document:
    """QEMU at the source dies in post-copy: the record stays open until a person settles it, and the definition stays on the source."""
    lost = stage.guest(name, **CALM)
    running = stage.site.begin_move(lost, 2, **POST_COPY)
    await_post_copy(stage.lab, lost)
    stage.lab.on(1, "sh", "-c", f"kill -9 $(cat /run/libvirt/qemu/{lost}.pid)")
    record = stage.ends(running.wait(), "error", "memory_lost")
    stage.keep_run("error")
    stage.remove(lost)
    return record


def memory_lost_and_settled(stage: Stage) -> None:
    settled = {"settle": {"id": memory_lost(stage, "settled")["id"], "status": "failed"}, "reason": "given up, and started from its disk"}
    done = stage.site.task(3, "host", settled)
    assert done.code == 0, done.text


def policies(stage: Stage) -> None:
    """A policy with every field; then one that a later version, or a person, has written more into."""
    policed = stage.guest("policed", **PLAIN)
    site = stage.site
    site.variable(1, "kvmfleet_profiles", {"gold": {"priority": 20}})
    done = site.popen(site.ad_hoc_command(1, "domain_policy", {"name": policed, **POLICY}, ledger=False))
    text, _code = done.communicate(timeout=120)
    assert done.returncode == 0, text
    stage.keep_text("policy/all-fields.xml", _policy(stage, policed))
    # libvirt gives the element without its namespace, and adds that again.
    later = _policy(stage, policed).replace("<priority>", '<of_a_later_version unit="s"><x/></of_a_later_version><priority>')
    stage.lab.virsh(1, "metadata", policed, NAMESPACE, "kvmfleet", later, "--live", "--config")
    stage.keep_text("policy/unknown-keys.xml", _policy(stage, policed))
    stage.keep_text("policy/domain.xml", stage.lab.virsh(1, "dumpxml", policed))
    site.variable(1, "kvmfleet_profiles", {})
    stage.remove(policed)


def _policy(stage: Stage, name: str) -> str:
    """Return the policy element as libvirt gives it."""
    return stage.lab.virsh(1, "metadata", name, NAMESPACE).strip() + "\n"
