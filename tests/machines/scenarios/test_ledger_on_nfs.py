# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two control nodes with one file ledger on NFS: of two that open a record for one domain at once, one does, and each sees at once what the other wrote."""

from __future__ import annotations

import concurrent.futures
import io
import json
import pathlib
import subprocess
import tarfile
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines import access
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines

COLLECTION = pathlib.Path(__file__).resolve().parents[3]
# Where both see it, and where Python finds it.
FOLDER = "/srv/images/control"
LEDGER = "/srv/images/ledger"
PACKAGE = "ansible_collections/kvmfleet/migration"
WRITER = f"{FOLDER}/{PACKAGE}/tests/machines/scenarios/support/ledger_writer.py"
DOMAINS = 25
VERIFY = f"""
import json, sys
sys.path.insert(0, "{FOLDER}")
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
ledger = FileLedger("{LEDGER}", create=False)
print(json.dumps([ledger.verify_audit(), sorted(record.domain.name for record in ledger.list_records())]))
"""


def bring_collection(machines: Machines) -> None:
    """Put the collection where all machines see it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for part in ("plugins", "tests/machines/scenarios/support"):
            archive.add(COLLECTION / part, f"{PACKAGE}/{part}", filter=lambda one: None if "__pycache__" in one.name else one)
    fleet = machines.fleet
    unpack = f"mkdir -p {FOLDER} && tar -xzf - -C {FOLDER}"
    command = access.ssh_command(fleet, fleet.require_machine("m1"), "root", unpack)
    subprocess.run(command, input=packed.getvalue(), check=True, timeout=300)


@pytest.mark.parametrize("version", ["4.2", "3"])
def test_two_control_nodes_share_one_file_ledger_on_nfs(version: str, machines: Machines) -> None:
    bring_collection(machines)
    if version == "3":
        for number in machines.numbers:
            machines.on(number, "umount /srv/images; mount -t nfs -o vers=3 nfs:/srv/images /srv/images")

    def write(number: int) -> dict[str, t.Any]:
        command = f"python3 {WRITER} {FOLDER} {LEDGER} control{number} {DOMAINS}"
        return t.cast("dict[str, t.Any]", json.loads(machines.on(number, command, seconds=900)))

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(write, (1, 2))
    assert sorted(first["opened"] + second["opened"]) == list(range(DOMAINS)), (first, second)
    # Otherwise they did not compete.
    assert first["opened"], first
    assert second["opened"], second
    assert first["unseen"] + second["unseen"] == []
    assert first["problems"] + second["problems"] == []
    wrong, names = json.loads(machines.on(3, f"python3 - <<'END'\n{VERIFY}END", seconds=300))
    assert wrong == []
    assert names == sorted(f"d{number}" for number in range(DOMAINS))
