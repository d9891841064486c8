# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(event_brake) runs on the control node alone, which has the folder of the brake."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, event_brake_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, Maybe, SignedInt, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, NotFound
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import brake
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import readable_results

_NOTHING_DONE = "Nothing was done."


@dataclasses.dataclass(frozen=True)
class _Work:
    """What a playbook passes to have its request checked, which takes no slot.

    :arg inventory: the hosts of the inventory.
    :arg play: the hosts of the play; absent before the play of the host.
    :arg entries: the names of the host's entries in the ledger; absent before they are read.
    """

    inventory: Maybe[tuple[str, ...]] = ABSENT
    play: Maybe[tuple[str, ...]] = ABSENT
    entries: Maybe[tuple[str, ...]] = ABSENT

    def check_request(self, host: str) -> None:
        """Raise L(InvalidArgument) unless the request names the one host of the play, L(NotFound) if the ledger does not know it."""
        if self.inventory is not ABSENT and host not in (self.inventory or ()):
            raise InvalidArgument(f"The source {host or 'that was not given'} is not a host of the inventory.", _NOTHING_DONE)
        if self.play is not ABSENT and list(self.play or ()) != [host]:
            raise InvalidArgument("Set the host that is back, for example -e source=kvm1.", _NOTHING_DONE)
        if self.entries is not ABSENT and not self.entries:
            raise NotFound(f"{host} is not in the ledger.", f"Set kvmfleet_ledger to the ledger under which the host was protected. {_NOTHING_DONE}")


@dataclasses.dataclass(frozen=True)
class _BrakeTask:
    """The options of C(event_brake)."""

    KEYS: t.ClassVar[Mapping[str, str]] = {"work": "_work"}

    host: str
    reaction: str
    hosts: SignedInt
    window_minutes: SignedInt
    folder: t.Optional[str]
    state: str
    work: t.Optional[_Work]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "event_brake"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return event_brake_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Take a slot for the host, or release it. Changes of other processes are seen, because the file is read under its lock."""
        with readable_results():
            task = decode(_BrakeTask, args)
        if task.work:
            task.work.check_request(task.host)
            return {"changed": False, "places": []}
        wanted = brake.SlotRequest(task.reaction, task.host, task.hosts, task.window_minutes)
        path = task.folder or brake.default_folder()
        now = datetime.datetime.now(datetime.UTC)

        def take(before: t.Sequence[brake.Slot]) -> list[brake.Slot]:
            brake.check_armed(path, wanted.host)
            return brake.take_slot(before, wanted, now)

        change = take if task.state == "taken" else lambda before: brake.release_slot(before, wanted)
        before, after = brake.change_slots(path, change, write=not self._task.check_mode)
        return {"changed": before != after, "places": [place.as_dict() for place in brake.slots_in_window(after, wanted, now)]}
