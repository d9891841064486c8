# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The program of the lease on a host. C(serve) is run by systemd, C(test) by the watchdog daemon, C(status) by people."""

from __future__ import annotations

import json
import sys

from .._model.clock import boot_moment
from .._model.codec import encode
from .._model.errors import KvmfleetError
from .state import read_lease_state
from .testing import run_test

_USAGE = "usage: kvmfleet-lease.pyz serve|test|status"


def run_lease() -> None:
    """Run the command of the command line."""
    command = sys.argv[1] if len(sys.argv) == 2 else ""
    try:
        if command == "serve":
            # The daemon runs the test every few seconds, and a busy host takes long to load the service.
            from .service import serve

            serve()
        elif command == "test":
            raise SystemExit(run_test())
        elif command == "status":
            sys.stdout.write(f"{_describe_status()}\n")
        else:
            raise SystemExit(_USAGE)
    except (KvmfleetError, OSError, ValueError) as error:
        raise SystemExit(str(error)) from error


def _describe_status() -> str:
    """Return the state as JSON; C(held) says whether the host has its lease now."""
    state = read_lease_state()
    if state is None:
        raise SystemExit("The service of the lease did not run since this host was started.")
    return json.dumps({"held": state.view.is_held(boot_moment().seconds), **encode(state)}, indent=2)
