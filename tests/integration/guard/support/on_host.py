# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Calls one function of the boot guard on a host, as a module would, and prints its answer as JSON."""

from __future__ import annotations

import json
import sys
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import install, status
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError


def read_state() -> dict[str, t.Any]:
    now = status.read_guard_state()
    return {"installed": now.installed, "systemd": now.systemd, **encode(now.boot)}


CALLS: dict[str, t.Callable[..., t.Any]] = {
    "install": lambda grant=None, **options: install.install_guard(grant=install.read_grant(grant) if grant else None, **options),
    "revoke": lambda **options: install.revoke_grant(**options)[0],
    "release": status.release_host,
    "state": read_state,
    "leave_tombstones": lambda grant, **options: install.leave_tombstones(install.read_grant(grant), **options),
}


def main(name: str, arguments: str) -> int:
    try:
        answer = CALLS[name](**json.loads(arguments))
    except KvmfleetError as error:
        print(json.dumps(error.as_result()))
        return 1
    print(json.dumps(answer, default=encode))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
