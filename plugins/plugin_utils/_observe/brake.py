# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The brake on reactions to events: a limit on the number of hosts within a time window, and on the number of hosts that are silent at once.

Its state is a document of the ledger, which all control nodes share. It is written before a reaction acts.
"""

from __future__ import annotations

import datetime
import random
import time
import typing as t
from collections.abc import Callable, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import format_time
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, InvalidArgument, Unsafe, printable_line
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.brake_document import (
    ISOLATED,
    SILENT_TOGETHER,
    UNREADABLE,
    BrakeDisarming,
    BrakeDocument,
    BrakeIncident,
    BrakeSlot,
    new_brake,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger

# Older slots and incidents are removed, so that the document stays small.
LONGEST_WINDOW_MINUTES = 31 * 24 * 60
# A reaction that another process overtakes decides again.
_MOST_TRIES = 50
_LONGEST_PAUSE_SECONDS = 0.2
_ARM_AGAIN = "The module event_brake with state: armed arms them again."


class Slot(t.NamedTuple):
    """An action of a reaction on a host.

    :arg at: the time of the action, in UTC.
    """

    reaction: str
    host: str
    at: datetime.datetime

    def as_dict(self) -> dict[str, str]:
        """Return the slot as the task's result has it."""
        return {"reaction": self.reaction, "host": self.host, "at": format_time(self.at)}


def read_time(text: str) -> datetime.datetime:
    """Return the time in a text of RFC 3339. Raises C(ValueError), also for one without a time zone."""
    at = datetime.datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return at


@dataclass(frozen=True)
class SlotRequest:
    """The request for an action.

    :arg hosts: on how many different hosts the reaction may act within the window, this one included.
    :arg silent: the hosts that are silent at this moment, as far as is known, without those whose silence has a known cause.
    :arg is_known: whether the silence of this host has a known cause.
    """

    reaction: str
    host: str
    hosts: int
    window_minutes: int
    silent: tuple[str, ...] = ()
    is_known: bool = False

    def __post_init__(self) -> None:
        """Raise L(InvalidArgument) for an invalid limit, and for names that cannot be printed in a message."""
        for name, values in (("host", (self.host,)), ("reaction", (self.reaction,)), ("silent", self.silent)):
            for value in values:
                if not value.strip() or not value.isprintable():
                    raise InvalidArgument(f"{name} is {value!r}.", "Give a name. Nothing was changed.")
        if self.hosts < 1:
            raise InvalidArgument(f"hosts is {self.hosts}.", "Give at least 1; state: disarmed prevents all reactions. Nothing was changed.")
        if not 1 <= self.window_minutes <= LONGEST_WINDOW_MINUTES:
            raise InvalidArgument(f"window_minutes is {self.window_minutes}.", f"Give 1 to {LONGEST_WINDOW_MINUTES}. Nothing was changed.")

    @property
    def window(self) -> datetime.timedelta:
        """The length of the window."""
        return datetime.timedelta(minutes=self.window_minutes)

    @property
    def silent_hosts(self) -> tuple[str, ...]:
        """The hosts that are silent at once, this one included unless the cause is known."""
        return tuple(sorted({*self.silent, *(() if self.is_known else (self.host,))}))


def slots_in_window(slots: Sequence[Slot], request: SlotRequest, now: datetime.datetime) -> list[Slot]:
    """Return the slots of this reaction in the window. Slots in the future count, too: setting the clock back frees nothing."""
    return [slot for slot in slots if slot.reaction == request.reaction and slot.at > now - request.window]


def take_slot(slots: Sequence[Slot], request: SlotRequest, now: datetime.datetime) -> list[Slot]:
    """Return the slots with one for this host. A host that has one keeps it and its time, so that an interrupted reaction can continue.

    Raises L(Conflict) if no slot is free.
    """
    within = slots_in_window(slots, request, now)
    if any(slot.host == request.host for slot in within):
        return list(slots)
    others = {slot.host for slot in within}
    if len(others) >= request.hosts:
        free = max(min(slot.at for slot in within) + request.window, now)
        raise Conflict(
            f"The brake holds: '{request.reaction}' has acted on {', '.join(sorted(map(printable_line, others)))} within {request.window_minutes} minutes, "
            f"and may act on {_count_hosts(request.hosts)} in that time. Nothing was done for {request.host}.",
            f"Find out what is wrong with the fleet, and handle by hand what {request.host} needs; the brake releases at {free:%Y-%m-%d %H:%M} UTC.",
        )
    young = now - datetime.timedelta(minutes=LONGEST_WINDOW_MINUTES)
    kept = [slot for slot in slots if slot.at > young and (slot.reaction, slot.host) != (request.reaction, request.host)]
    return [*kept, Slot(request.reaction, request.host, now)]


def release_slot(slots: Sequence[Slot], request: SlotRequest) -> list[Slot]:
    """Return the slots without this host's."""
    return [slot for slot in slots if (slot.reaction, slot.host) != (request.reaction, request.host)]


def _count_hosts(number: int) -> str:
    return f"{number} host{'s' if number > 1 else ''}"


def read_slots(document: BrakeDocument) -> list[Slot]:
    """Return the slots in the document. Raises L(Unsafe) for a time that is none."""
    try:
        return [Slot(slot.reaction, slot.host, read_time(slot.at)) for slot in document.slots]
    except ValueError as error:
        raise Unsafe(f"The brake in the ledger has a slot without a time ({error}). Nothing was done.", "Check the document, or restore it.") from error


def with_slots(document: BrakeDocument, slots: Sequence[Slot]) -> BrakeDocument:
    """Return the document with these slots; those that it has already keep what a later version wrote into them."""
    known = {(slot.reaction, slot.host, slot.at): slot for slot in document.slots}
    written = (BrakeSlot(slot.reaction, slot.host, format_time(slot.at)) for slot in slots)
    return replace(document, slots=tuple(known.get((one.reaction, one.host, one.at), one) for one in written))


class BrakeDecision(t.NamedTuple):
    """The document after the decision, and why the reaction must not act, if it must not."""

    after: BrakeDocument
    refusal: t.Optional[Conflict] = None


def request_slot(document: BrakeDocument, request: SlotRequest, now: datetime.datetime, by: str) -> BrakeDecision:
    """Decide about a slot. Raises L(Forbidden) if the reactions are disarmed, L(Conflict) if no slot is free.

    If too many hosts are silent at once, the incident is in the document, and nothing is done for any of them: the cause is then rather a switch than that
    many dead hosts. A host that has a slot keeps it.
    """
    refuse_disarmed(document, request.host)
    slots = read_slots(document)
    has_slot = any(slot.host == request.host for slot in slots_in_window(slots, request, now))
    if not has_slot and len(request.silent_hosts) > request.hosts:
        error = _silence_error(request)
        return BrakeDecision(_note_refusal(document, request, now, by, error, SILENT_TOGETHER, request.silent_hosts), error)
    after = with_slots(document, take_slot(slots, request, now))
    return BrakeDecision(replace(after, incidents=_without_host(document, request)))


def return_slot(document: BrakeDocument, request: SlotRequest) -> BrakeDecision:
    """Release the slot of the host, and end its incidents."""
    after = with_slots(document, release_slot(read_slots(document), request))
    return BrakeDecision(replace(after, incidents=_without_host(document, request)))


def note_isolation(document: BrakeDocument, request: SlotRequest, now: datetime.datetime, by: str, detail: str, host_id: str) -> BrakeDecision:
    """Note that the host does not answer and is not dead."""
    new = BrakeIncident(ISOLATED, request.reaction, (request.host,), format_time(now), format_time(now), by, detail, host_id)
    return BrakeDecision(_with_incident(document, new, request, now))


def note_unreadable(document: BrakeDocument, request: SlotRequest, now: datetime.datetime, by: str, domains: Sequence[str]) -> BrakeDecision:
    """Note that nothing can be done for a silent host, because no document of these domains can be read, and refuse the reaction."""
    error = Conflict(
        f"The documents of domains in the ledger cannot be read ({', '.join(domains)}), so that it is not known whether they are on {request.host}, which"
        f" is gone. Nothing was done for {request.host}.",
        "Restore the documents from a backup, or update the collection if a later version has written them. Then, if the host is really dead:"
        f" ansible-playbook kvmfleet.migration.evacuate -e source={request.host}",
    )
    return BrakeDecision(_note_refusal(document, request, now, by, error, UNREADABLE, (request.host,)), error)


def refuse_disarmed(document: BrakeDocument, host: str) -> None:
    """Raise L(Forbidden) if a person has disarmed the reactions."""
    if document.disarmed:
        raise Forbidden(f"{_disarmed_text(document.disarmed)} Nothing was done for {host}.", _ARM_AGAIN)


def _disarmed_text(disarmed: BrakeDisarming) -> str:
    return f"Reactions to events are disarmed: {disarmed.by} disarmed them at {disarmed.at}."


def disarmed_lines(document: BrakeDocument) -> list[str]:
    """Return a line for a person if the reactions are disarmed, with what arms them again."""
    return [f"{_disarmed_text(document.disarmed)} {_ARM_AGAIN}"] if document.disarmed else []


def disarm_reactions(document: BrakeDocument, now: datetime.datetime, by: str) -> BrakeDecision:
    """Disarm all reactions; those that are disarmed already stay as they are."""
    return BrakeDecision(document if document.disarmed else replace(document, disarmed=BrakeDisarming(format_time(now), by)))


def _silence_error(request: SlotRequest) -> Conflict:
    names = ", ".join(map(printable_line, request.silent_hosts))
    return Conflict(
        f"The brake holds: {len(request.silent_hosts)} hosts are silent at once ({names}), and '{request.reaction}' may act on "
        f"{_count_hosts(request.hosts)}. Nothing was done for any of them.",
        "Check the network between the control node and these hosts first. Evacuate a host that is really dead by hand, "
        f"for example: ansible-playbook kvmfleet.migration.evacuate -e source={request.host}",
    )


def _note_refusal(
    document: BrakeDocument, request: SlotRequest, now: datetime.datetime, by: str, error: Conflict, kind: str, hosts: tuple[str, ...]
) -> BrakeDocument:
    new = BrakeIncident(kind, request.reaction, hosts, format_time(now), format_time(now), by, f"{error.message} {error.next_step}")
    return _with_incident(document, new, request, now)


def _with_incident(document: BrakeDocument, new: BrakeIncident, request: SlotRequest, now: datetime.datetime) -> BrakeDocument:
    """Return the document with the incident. One that has a host in common with it, and was reported within the window, continues."""
    young = format_time(now - datetime.timedelta(minutes=LONGEST_WINDOW_MINUTES))
    kept = [one for one in document.incidents if one.at > young]
    for index, old in enumerate(kept):
        if (old.kind, old.reaction) == (new.kind, new.reaction) and set(old.hosts) & set(new.hosts) and old.at > format_time(now - request.window):
            kept[index] = replace(old, hosts=tuple(sorted({*old.hosts, *new.hosts})), at=new.at)
            return replace(document, incidents=tuple(kept))
    return replace(document, incidents=(*kept, new))


def _without_host(document: BrakeDocument, request: SlotRequest) -> tuple[BrakeIncident, ...]:
    """Return the incidents without those of this reaction that the host is in: they have ended."""
    return tuple(one for one in document.incidents if one.reaction != request.reaction or request.host not in one.hosts)


def read_brake(ledger: t.Optional[Ledger]) -> BrakeDocument:
    """Return the state of the brake; None is a ledger that does not exist yet. Raises L(Unsafe) if the document was damaged."""
    if ledger is None:
        return new_brake("")
    found = ledger.read_brake()
    if found is None and ledger.has_damaged_brake():
        raise _damaged_error(ledger)
    return found.brake if found else new_brake(ledger.ledger_id)


def change_brake(ledger: Ledger, decide: Callable[[BrakeDocument], BrakeDecision], may_begin_anew: bool = False) -> tuple[BrakeDocument, BrakeDecision]:
    """Return the state before, and the decision, which is in the ledger when this returns. If another process came first, it is made again.

    Raises what C(decide) raises; L(Unsafe) if the document was damaged, and it may not be begun anew.
    """
    for tries_left in range(_MOST_TRIES, -1, -1):
        found = ledger.read_brake()
        if found is None and not may_begin_anew and ledger.has_damaged_brake():
            raise _damaged_error(ledger)
        before = found.brake if found else new_brake(ledger.ledger_id)
        decision = decide(before)
        if decision.after == before and (found or not may_begin_anew):
            return before, decision
        try:
            ledger.put_brake(decision.after, found)
            return before, decision
        except Conflict:
            if not tries_left:
                raise
        time.sleep(_LONGEST_PAUSE_SECONDS * random.random())  # noqa: S311  spreads those that write
    raise AssertionError("unreachable")


def _damaged_error(ledger: Ledger) -> Unsafe:
    return Unsafe(
        f"The brake in the ledger {ledger.name} was damaged and set aside, so the hosts of earlier reactions are not known. Nothing was done.",
        "Find out on which hosts reactions have acted. Then the module event_brake with state: armed begins with an empty brake.",
    )
