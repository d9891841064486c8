# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(event_brake) runs on the control node alone, which has the folder of the brake."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, event_brake_spec
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import brake

Result = dict[str, t.Any]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "event_brake"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return event_brake_spec()

    def run_task(self, args: Result, task_vars: Result) -> Result:
        """Take a slot for the host, or release it. Changes of other processes are seen, because the file is read under its lock."""
        wish = brake.SlotRequest(args["reaction"], args["host"], args["hosts"], args["window_minutes"])
        path = args["folder"] or brake.default_folder()
        now = datetime.datetime.now(datetime.UTC)

        def take(before: t.Sequence[brake.Slot]) -> list[brake.Slot]:
            brake.check_armed(path, wish.host)
            return brake.take_slot(before, wish, now)

        change = take if args["state"] == "taken" else lambda before: brake.release_slot(before, wish)
        before, after = brake.change_slots(path, change, write=not self._task.check_mode)
        return {"changed": before != after, "places": [place.as_dict() for place in brake.slots_in_window(after, wish, now)]}
