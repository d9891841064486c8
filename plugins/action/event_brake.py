# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(event_brake), which works on the control node alone: the brake's folder is there."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._event_brake_spec import event_brake_spec
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._brake import folder, places

Result = dict[str, t.Any]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "event_brake"

    def spec(self) -> Result:
        """Return the module's options."""
        return event_brake_spec()

    def act(self, args: Result, task_vars: Result) -> Result:
        """Take a place for the host, or release it. What another process wrote is seen, for the file is read under its lock."""
        wish = places.Wish(args["reaction"], args["host"], args["hosts"], args["window_minutes"])
        path = args["folder"] or folder.default_folder()
        now = datetime.datetime.now(datetime.UTC)

        def take(before: t.Sequence[places.Place]) -> list[places.Place]:
            folder.check_armed(path, wish.host)
            return places.taken(before, wish, now)

        change = take if args["state"] == "taken" else lambda before: places.released(before, wish)
        before, after = folder.change_places(path, change, write=not self._task.check_mode)
        return {"changed": before != after, "places": [place.as_dict() for place in places.counted(after, wish, now)]}
