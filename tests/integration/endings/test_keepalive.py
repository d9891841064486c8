# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A watcher that a module starts after it has used libvirt: its connections notice a host that goes silent."""

from __future__ import annotations

import json
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.endings.support.hosts import put_to_sleep
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.session import Session
from ansible_collections.kvmfleet.migration.tests.integration.support.control import BUILD
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

# What migration_abort does for a move without a watcher, with a watcher that only asks the destination.
MODULE = """\
import json, os, sys, time
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.host import open_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.detach import SpareProcess, launch_process

uri, folder = sys.argv[1:]

def watch(report):
    host = open_host(uri)
    report({"hostname": host.read_hostname()})
    while not os.path.exists(f"{folder}/silent"):
        time.sleep(0.1)
    began = time.monotonic()
    try:
        said = str(host.list_states())
    except KvmfleetError as error:
        said = error.error_code
    with open(f"{folder}/answer.new", "w") as stream:
        json.dump({"said": said, "seconds": time.monotonic() - began}, stream)
    os.rename(f"{folder}/answer.new", f"{folder}/answer")

spare = SpareProcess(lambda dummy: launch_process(watch, f"{folder}/log", "5a3f0c62-0000-4000-8000-00000000000a"))
open_host("qemu:///system").read_hostname()
print(json.dumps(spare.call_once({})))
"""


@pytest.mark.long
@pytest.mark.usefixtures("mended")
def test_the_watcher_notices_a_silent_destination_by_keepalive(lab: Lab, control: Session, tmp_path: pathlib.Path) -> None:
    """Its connection stays open, as when a host loses its power. Without keepalive the watcher would wait until TCP gives up, a quarter of an hour."""
    uri = f"qemu+tcp://{lab.host(2)}/system"
    command = ("env", f"PYTHONPATH={BUILD}", "/usr/bin/python3", "-B", "-c", MODULE, uri, str(tmp_path))
    assert json.loads(lab.on(1, *command)) == {"hostname": lab.host(2)}
    put_to_sleep(lab, 2)
    (tmp_path / "silent").touch()
    eventually((tmp_path / "answer").exists, "the watcher notices it")
    answer = json.loads((tmp_path / "answer").read_text(encoding="utf-8"))
    assert answer["said"] == "unreachable", answer
