# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bringing a move into post-copy so that it stays there for a while."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Record
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

# After two seconds at 1 MiB/s nearly all of a guest's memory is left, and comes over as slowly.
POST_COPY = {"timeout_seconds": 2, "on_timeout": "force_complete", "post_copy": True, "bandwidth_mib": 1, "post_copy_bandwidth_mib": 1}


def await_status(lab: Lab, name: str, status: str) -> Record:
    """Wait until the watcher has written that status; return its state file."""
    uuid = lab.uuid(name)

    def found() -> Record | None:
        state = lab.state_file(uuid)
        return state if state and state["status"] == status else None

    return eventually(found, f"{name} is {status}")


def await_post_copy(lab: Lab, name: str) -> Record:
    return await_status(lab, name, "running (post-copy)")
