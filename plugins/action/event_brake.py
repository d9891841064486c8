# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(event_brake) runs on the control node alone: the state of the brake is in the ledger."""

from __future__ import annotations

import dataclasses
import datetime
import operator
import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, event_brake_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, Maybe, SignedInt, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.brake_document import BrakeDocument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any, open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import brake, brake_folder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import readable_results
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import LedgerLocation, TaskSettings

_NOTHING_DONE = "Nothing was done."
TAKEN, RELEASED, ARMED, DISARMED = "taken", "released", "armed", "disarmed"
# What a person does, about reactions that act with a ledger that exists.
_BY_HAND = (RELEASED, ARMED, DISARMED)


@dataclass(frozen=True)
class _Work:
    """What a playbook passes to have its request checked, which takes no slot.

    :arg inventory: the hosts of the inventory.
    :arg play: the hosts of the play; absent before the play of the host.
    :arg entries: the names of the host's entries in the ledger; absent before they are read.
    :arg seems_empty: whether no document that can be read has a domain on the host.
    """

    inventory: Maybe[tuple[str, ...]] = ABSENT
    play: Maybe[tuple[str, ...]] = ABSENT
    entries: Maybe[tuple[str, ...]] = ABSENT
    seems_empty: Maybe[bool] = ABSENT

    def check_request(self, host: str) -> None:
        """Raise L(InvalidArgument) unless the request names the one host of the play, L(NotFound) if the ledger does not know it."""
        if self.inventory is not ABSENT and host not in (self.inventory or ()):
            raise InvalidArgument(f"The source {host or 'that was not given'} is not a host of the inventory.", _NOTHING_DONE)
        if self.play is not ABSENT and list(self.play or ()) != [host]:
            raise InvalidArgument("Set the host that is back, for example -e source=kvm1.", _NOTHING_DONE)
        if self.entries is not ABSENT and not self.entries:
            raise NotFound(f"{host} is not in the ledger.", f"Set kvmfleet_ledger to the ledger under which the host was protected. {_NOTHING_DONE}")


@dataclass(frozen=True)
class _BrakeTask:
    """The options of C(event_brake)."""

    KEYS: t.ClassVar[Mapping[str, str]] = {"work": "_work"}

    ledger: t.Optional[str]
    host: t.Optional[str]
    reaction: str
    hosts: SignedInt
    window_minutes: SignedInt
    silent: t.Optional[tuple[str, ...]]
    isolated: t.Optional[str]
    folder: t.Optional[str]
    state: str
    work: t.Optional[_Work]


@dataclass(frozen=True)
class _Run:
    """A task with everything that its decision needs.

    :arg request: None for a task about all reactions.
    :arg host_id: of the host, if the ledger knows it.
    :arg old: slots that an earlier version kept in the folder.
    :arg unreadable: the UUIDs of domains that may be on the host, because their document cannot be read.
    """

    task: _BrakeTask
    request: t.Optional[brake.SlotRequest]
    host_id: t.Optional[str]
    folder: str
    old: t.Sequence[brake.Slot]
    now: datetime.datetime
    by: str
    unreadable: t.Sequence[str] = ()

    def decide(self, before: BrakeDocument) -> brake.BrakeDecision:
        """Return the decision about the brake as it is now."""
        document = brake.with_slots(before, brake_folder.join_slots(brake.read_slots(before), self.old)) if self.old else before
        if self.request is None:
            return self._decide_arming(document)
        if self.unreadable:
            return brake.note_unreadable(document, self.request, self.now, self.by, self.unreadable)
        if self.task.state == RELEASED:
            return brake.return_slot(document, self.request)
        if self.task.isolated is not None:
            return brake.note_isolation(document, self.request, self.now, self.by, self.task.isolated, str(self.host_id))
        brake_folder.check_armed(self.folder, self.request.host)
        decision = brake.request_slot(document, self.request, self.now, self.by)
        return decision if self.task.state == TAKEN or decision.refusal else brake.BrakeDecision(document)

    def _decide_arming(self, document: BrakeDocument) -> brake.BrakeDecision:
        if self.task.state == DISARMED:
            return brake.disarm_reactions(document, self.now, self.by)
        return brake.BrakeDecision(dataclasses.replace(document, disarmed=ABSENT))


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "event_brake"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return event_brake_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Take a slot for the host, or release it, or arm or disarm all reactions.

        Raises L(Conflict) if the brake holds, or if it is not known which domains are on the host; L(NotFound) for a ledger that the reactions cannot use.
        """
        with readable_results():
            task = decode(_BrakeTask, args)
        if task.work:
            task.work.check_request(task.host or "")
            if not task.work.seems_empty:
                return {"changed": False, "places": []}
        settings, target_host = self.settings(task_vars), self.target_host(task_vars)
        location = settings.ledger(target_host, task.ledger)
        if task.state in _BY_HAND and (task.ledger or not location.location):
            ledger: t.Optional[Ledger] = _open_existing(location, settings, target_host)
        else:
            ledger = open_if_any(*location, create=not self._task.check_mode)
        unreadable = _list_unreadable(ledger) if task.work else ()
        if task.work and not unreadable:
            return {"changed": False, "places": []}
        if ledger and not self._task.check_mode:
            self.attach_notifier(ledger, settings, target_host, location)
        return self._change_brake(ledger, dataclasses.replace(self._prepare_run(task, ledger, task_vars), unreadable=unreadable))

    def _prepare_run(self, task: _BrakeTask, ledger: t.Optional[Ledger], task_vars: Result) -> _Run:
        folder = task.folder or brake_folder.default_folder()
        now, by = datetime.datetime.now(datetime.UTC), describe_actor(task_vars)
        request = _read_request(task, ledger)
        host_id = _find_host_id(ledger, request.host) if request and task.isolated is not None else None
        return _Run(task, request, host_id, folder, brake_folder.read_old_slots(folder), now, by)

    def _change_brake(self, ledger: t.Optional[Ledger], run: _Run) -> JsonObject:
        if ledger and not self._task.check_mode:
            before, decision = brake.change_brake(ledger, run.decide, may_begin_anew=run.task.state == ARMED)
            if run.old:
                brake_folder.retire_old_slots(run.folder)
        else:
            before = brake.read_brake(ledger)
            decision = run.decide(before)
        if decision.refusal:
            raise decision.refusal
        return {**_make_result(run, before, decision.after), "ledger": ledger.name if ledger else None}


def _open_existing(location: LedgerLocation, settings: TaskSettings, target_host: str) -> Ledger:
    """Return the ledger that the task names, or the user's own. Raises L(NotFound) if it is missing, or if the hosts of the fleet have another one."""
    other = None if location.location else settings.find_fleet_host("kvmfleet_ledger")
    next_step = f"Set kvmfleet_ledger for {target_host}, or 'ledger', to the ledger of the fleet. {_NOTHING_DONE}"
    if other:
        raise NotFound(f"The ledger of the fleet is not known: kvmfleet_ledger is set for {other}, and not for {target_host}.", next_step)
    try:
        return open_ledger(*location, create=False)
    except NotFound as error:
        raise NotFound(error.message, next_step) from None


def _read_request(task: _BrakeTask, ledger: t.Optional[Ledger]) -> t.Optional[brake.SlotRequest]:
    """Return the request; None for a task about all reactions. Raises L(InvalidArgument) for invalid options."""
    if task.state in (ARMED, DISARMED):
        return None
    # Hosts that are known to be off, or that somebody is working on, are silent for a known cause.
    known = {entry.name for entry in map(operator.attrgetter("host"), ledger.list_hosts()) if entry.state != ENABLED} if ledger and task.silent else set()
    silent = tuple(host for host in task.silent or () if host not in known)
    return brake.SlotRequest(task.reaction, task.host or "", task.hosts, task.window_minutes, silent, task.host in known)


def _list_unreadable(ledger: t.Optional[Ledger]) -> list[str]:
    """Return the UUIDs of the domains whose document cannot be read: they may be on any host."""
    found = ledger.read_domains() if ledger else None
    return [*found.damaged, *found.newer] if found else []


def _find_host_id(ledger: t.Optional[Ledger], host: str) -> str:
    found = ledger.find_host(name=host) if ledger else None
    if not found or not found.host.host_id:
        raise NotFound(f"{host} is not in the ledger.", f"Set kvmfleet_ledger to the ledger under which the host was protected. {_NOTHING_DONE}")
    return found.host.host_id


def _make_result(run: _Run, before: BrakeDocument, after: BrakeDocument) -> Result:
    is_armed = not after.disarmed and not brake_folder.is_disarmed(run.folder)
    slots = brake.slots_in_window(brake.read_slots(after), run.request, run.now) if run.request else brake.read_slots(after)
    result: Result = {"changed": before != after, "places": [slot.as_dict() for slot in slots], "armed": is_armed}
    if run.task.state == ARMED and not is_armed:
        result["warnings"] = [f"The reactions stay disarmed, because there is a file {brake_folder.DISARMING_FILE} in {run.folder}."]
    return result
