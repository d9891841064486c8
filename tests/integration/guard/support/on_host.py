# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Calls one function of the boot guard on a host, as a module would, and prints its answer as JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._guard import install, release, state, tombstones

CALLS: dict[str, t.Callable[..., t.Any]] = {
    "install": install.install,
    "remove": install.remove,
    "revoke": install.revoke,
    "release": release.release,
    "state": state.state,
    "leave_tombstones": tombstones.leave_tombstones,
}


def main(name: str, arguments: str) -> int:
    try:
        answer = CALLS[name](**json.loads(arguments))
    except KvmfleetError as error:
        print(json.dumps(error.as_result()))
        return 1
    print(json.dumps(answer, default=dataclasses.asdict))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
