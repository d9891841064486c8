# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(event_brake) runs on the control node alone, which has the folder of the brake."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, event_brake_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, SignedInt, decode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import brake


@dataclasses.dataclass(frozen=True)
class _BrakeTask:
    """The options of C(event_brake)."""

    host: str
    reaction: str
    hosts: SignedInt
    window_minutes: SignedInt
    folder: t.Optional[str]
    state: str


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "event_brake"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return event_brake_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Take a slot for the host, or release it. Changes of other processes are seen, because the file is read under its lock."""
        task = decode(_BrakeTask, args)
        wanted = brake.SlotRequest(task.reaction, task.host, task.hosts, task.window_minutes)
        path = task.folder or brake.default_folder()
        now = datetime.datetime.now(datetime.UTC)

        def take(before: t.Sequence[brake.Slot]) -> list[brake.Slot]:
            brake.check_armed(path, wanted.host)
            return brake.take_slot(before, wanted, now)

        change = take if task.state == "taken" else lambda before: brake.release_slot(before, wanted)
        before, after = brake.change_slots(path, change, write=not self._task.check_mode)
        return {"changed": before != after, "places": [place.as_dict() for place in brake.slots_in_window(after, wanted, now)]}
