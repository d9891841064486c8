# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small ledger that begins in a folder and moves into etcd, where it goes on: all of its keys with their values."""

from __future__ import annotations

import base64
import json
import pathlib
import shutil
import typing as t

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.client import Client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import parse_address, read_options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import range_end, range_read
from ansible_collections.kvmfleet.migration.tests.golden.moves import CAP
from ansible_collections.kvmfleet.migration.tests.golden.stage import ENDLESS, PLAIN, Document, Stage
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import forget_collection


def tell(stage: Stage) -> None:
    """Tell the story, and leave the hosts as if they had never heard of that ledger."""
    stage.lab("etcd", "up", "--members", "1")
    try:
        _in_the_folder(stage)
        _in_etcd(stage)
    finally:
        stage.lab("etcd", "down")
        stage.remove()
        forget_collection(stage.lab, 3)
        # The rest of the story has a ledger of its own: hosts know a new one only.
        shutil.rmtree(stage.site.path, ignore_errors=True)


def _in_the_folder(stage: Stage) -> None:
    site = stage.site
    plain = stage.guest("plain", **PLAIN)
    stage.guest("web", mib=32, storage="shared")
    for number in (1, 2, 3, 1):
        assert site.task(number, "protect", {}).code == 0
    stage.ends(site.move(plain), "completed")


def _in_etcd(stage: Stage) -> None:
    site, variables = stage.site, json.loads(stage.lab("etcd", "variables"))
    folder, where = site.path, str(variables["kvmfleet_ledger"])
    given = pathlib.Path(site.folder) / "variables.json"
    given.write_text(json.dumps(variables), encoding="utf-8")
    arguments = json.dumps({"ledger": str(folder), "to": where})
    command = ["ansible", "-i", site.inventory, "localhost", "-m", "kvmfleet.migration.ledger_copy", "-a", arguments, "-e", f"@{given}"]
    copied = Running(site.popen(command)).wait()
    assert copied.code == 0, copied.text
    stage.keep_ledger(folder, "moved-to-etcd")
    shutil.rmtree(folder)
    site.options, site.where = ("-e", f"@{given}"), where
    try:
        _go_on(stage)
        _keep(stage, where, variables.get("kvmfleet_etcd", {}))
    finally:
        site.options, site.where = (), str(folder)


def _go_on(stage: Stage) -> None:
    """Go on with moves, a loss and an evacuation; one move is on its way in the end, and its control node is dead."""
    site = stage.site
    endless = stage.guest("endless", **ENDLESS)
    stage.ends(site.move(endless, timeout_seconds=2, **CAP), "cancelled", "timeout")
    stage.ends(site.task(2, "live_migrate", {"name": "plain", "destination": site.name(3)}), "completed")
    cordoned = site.task(2, "host", {"state": "maintenance", "reason": "a new fan"})
    assert cordoned.code == 0, cordoned.text
    stage.ends(site.task(3, "live_migrate", {"name": "plain", "destination": site.name(2)}), "conflict")
    assert site.task(2, "host", {"state": "enabled"}).code == 0
    stage.remove(endless)
    site.lose(1)
    done = site.evacuate(2, 1, domains=["web"])
    assert done.code == 0, done.text
    last = stage.guest("last", on=3, **ENDLESS)
    running = site.begin(3, "live_migrate", {"name": last, "destination": site.name(2), **CAP})
    stage.under_way(last, 3)
    running.kill()
    stage.lab.on(3, "virsh", "domjobabort", last)


def _keep(stage: Stage, where: str, variables: Document) -> None:
    address = parse_address(where)
    client = Client(address, read_options(variables, address))
    found = client.read_range(range_read(address.prefix, range_end(address.prefix))).found
    lines = [{"key": one.key[len(address.prefix) :], **_value(one.value)} for one in found]
    stage.keep_text("ledgers/etcd.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))


def _value(data: bytes) -> t.Dict[str, str]:
    """Return a value as text where it is one."""
    try:
        return {"value": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}
