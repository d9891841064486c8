# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One task in a process of its own, for the race for the last room. Arguments: a folder, the ledger, the source's name, the domain's UUID."""

from __future__ import annotations

import json
import pathlib
import sys
import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import HOSTS, Control

ROOM_GIB = 4
PATIENCE_SECONDS = 300.0


def main(folder: pathlib.Path, location: str, source: str, uuid: str) -> None:
    """Survey, wait until the other task has surveyed, too, and only then go on; print how it ended."""
    control = Control(folder, (source, *(host for host in HOSTS if host != source)), location)
    control.fleet.guest(f"guest-{source}", uuid, memory_bytes=ROOM_GIB * GIB)
    # Beside the 512 MiB that a host keeps for itself, there is room for exactly one of the two guests.
    control.fleet.machines["kvm3"].total_bytes = ROOM_GIB * GIB + 512 * 1024**2
    asked = control.source.run_phase

    def phase(name: str, work: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        answer = asked(name, work)
        if name == "prepare":
            (folder / f"{source}.ready").touch()
            _wait_for_both(folder)
        return answer

    control.source.run_phase = phase  # type: ignore[method-assign]
    (job,) = control.run(uuid=uuid, destination="kvm3")
    records = [encode(job.record)] if job.record else job.error.result.get("migrations", []) if job.error else []
    code = job.error.error_code if job.error else None
    print(json.dumps({"code": code, "msg": str(job.error or ""), "statuses": [record["status"] for record in records], "moved": job.moved}))


def _wait_for_both(folder: pathlib.Path) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while len(list(folder.glob("*.ready"))) < 2:
        if time.monotonic() > until:
            raise SystemExit("the other task never came")
        time.sleep(0.01)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
