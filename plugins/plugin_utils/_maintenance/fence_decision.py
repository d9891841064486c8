# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether a host may be rebooted in a maintenance run, and by its fence agent: never while a guest may run there, and not twice without new evidence."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import HostStep, MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import COMPLETED, DONE, ENABLED, MAINTENANCE

from .._ledger.documents import HostEntry
from .._ledger.host_entries import recorded_grant
from .._ledger.ledger import Ledger
from .._ledger.query import Conditions, read_records
from .._ledger.remembered import RememberedMove, missing_text

# What is done with a host.
FENCE, FINISH, WAIT = "fence", "finish", "wait"


@dataclass(frozen=True)
class KnownGuests:
    """What is known of guests on a host that is to be fenced.

    :arg active: names of those that the host itself has reported within the last minute.
    :arg moves: records of moves and evacuations from or to the host that are not settled, and of those to it that have ended there since its drain began. Those
        whose guest has left it again do not count.
    :arg placed: see L(list_placed).
    :arg lost: moves and evacuations that hosts remember and the ledger lacks, see L(find_missing_records).
    """

    active: Sequence[str]
    moves: Sequence[MoveRecord]
    placed: Mapping[str, str]
    lost: Sequence[RememberedMove] = ()

    def list_possible(self, step: HostStep) -> list[str]:
        """Return the names of guests that may run there although none did when the step recorded the boot. Moves are dated by clocks that may differ."""
        arrived = {name for uuid, name in self.placed.items() if step.placed is not ABSENT and uuid not in step.placed}
        return sorted({str(record.domain.name) for record in self.moves} | arrived)


def list_placed(ledger: Ledger, entry: HostEntry) -> dict[str, str]:
    """Return the names of the domains that are on this host alone according to the ledger, by UUID. A domain that is on its way may be on two."""
    found = (document.domain for document in ledger.list_domains())
    return {domain.uuid: str(domain.name or domain.uuid) for domain in found if domain.is_only_on(entry.host_ref) and not domain.is_missing}


def read_moves(ledger: Ledger, run: MaintenanceRun, host: str) -> list[MoveRecord]:
    """Return the records by which a guest may be on the host."""
    progress = run.find_host(host)
    since = next((step.began_at for step in progress.steps if step.step == m.DRAIN), None) if progress else None
    records = [record for term in ("migrations", "evacuations") for record in read_records(ledger, term, Conditions(host=host))]
    return [record for record in records if record.is_unsettled or (_has_arrived(record, host, since) and not _has_left(ledger, record))]


def _has_arrived(record: MoveRecord, host: str, since: t.Optional[str]) -> bool:
    return record.status in (COMPLETED, DONE) and record.destination.host == host and (since is None or _arrived_at(record) >= since)


def _has_left(ledger: Ledger, record: MoveRecord) -> bool:
    """Whether the guest is on other hosts by now. A move that was under way when its destination was cordoned ends there, and the drain moves its guest on."""
    document = ledger.read_domain(record.domain.uuid)
    return document is not None and bool(document.domain.possible_hosts) and not document.domain.includes_host(record.destination)


def _arrived_at(record: MoveRecord) -> str:
    """Return when the guest arrived. The cleanup of the dead host changes the record of an evacuation later: it is then completed."""
    done, completed = ([line.at for line in record.history if line.status == status] for status in (DONE, COMPLETED))
    return max(done or completed, default=record.updated_at)


def check_reboot(entry: HostEntry, active: t.Optional[Sequence[str]]) -> None:
    """Raise L(Unsafe) for a host that must not be rebooted, whatever its drain has found: one that may get guests, or that shows some.

    :arg entry: of the host in the ledger.
    :arg active: names of its guests, as it has reported them; None if it has not.
    """
    if entry.state == ENABLED:
        raise Unsafe(f"{entry.name} is not rebooted: it is enabled in the ledger, so that guests may have been placed there.", _DRAIN)
    if active is None:
        raise Unsafe(f"{entry.name} is not rebooted: it has not reported its guests.", "Repair its libvirt, and continue the run. The host was not touched.")
    if active:
        raise Unsafe(f"{entry.name} is not rebooted: {_run_there(active)}.", _DRAIN)


def _run_there(names: Sequence[str]) -> str:
    return f"{', '.join(sorted(names))} {'runs' if len(names) == 1 else 'run'} there"


def check_fence(run: MaintenanceRun, entry: HostEntry, guests: KnownGuests) -> HostStep:
    """Return the step that reboots the host. Raises L(InvalidState) or L(Unsafe) unless its fence agent may switch it off.

    :arg entry: of the host in the ledger.
    """
    host = entry.name
    progress = run.find_host(host)
    step = progress.last_step if progress and progress.status == m.IN_PROGRESS else None
    if step is None or step.step != m.REBOOT or not step.boot_id:
        raise InvalidState(
            f"{host} is not fenced: the maintenance run {run.id} has not recorded that it is safe to reboot.",
            "Continue the run, which checks that first. Nothing was changed.",
        )
    if entry.state != MAINTENANCE:
        raise Unsafe(f"{host} is not fenced: it is {entry.state} in the ledger, so that guests may have been placed there.", "Drain it. It was not touched.")
    if guests.active:
        raise Unsafe(f"{host} is not fenced: {_run_there(guests.active)}.", _DRAIN)
    possible = guests.list_possible(step)
    lost = [one for one in guests.lost if one.destination.may_be(entry.host_ref)]
    if lost:
        names = ", ".join(sorted({str(one.domain.name or one.domain.uuid) for one in lost}))
        raise Unsafe(f"{host} is not fenced: {names} may run there. {' '.join(map(missing_text, lost))}", _DRAIN)
    if possible:
        raise Unsafe(f"{host} is not fenced: {', '.join(possible)} may run there by the ledger.", _DRAIN)
    return step


_DRAIN: t.Final = "Move the guests away or settle their moves, and continue the run. The host was not touched."


def check_guests_at_boot(step: HostStep, entry: HostEntry, boot_id: t.Optional[str]) -> None:
    """Raise L(Unsafe) if the host may have booted since its drain, and started guests that were off then.

    A clean-shutdown token releases the boot guard at the next boot.

    :arg boot_id: of the host now; None if it cannot be reached.
    """
    guard = entry.protected.guard if entry.protected else None
    is_held = bool(guard and guard.held_at_boot) and recorded_grant(entry) is None
    if boot_id == step.boot_id or step.starts_guests is False or is_held:
        return
    raise Unsafe(
        f"{entry.name} is not fenced: it may have started guests when it booted, and no boot guard is known to prevent that.",
        "Find out on its console whether guests run there, repair the host or switch it off and on by hand, and continue the run. It was not touched.",
    )


def decide_fence(step: HostStep, is_off: bool, boot_id: t.Optional[str]) -> str:
    """Return what is to be done: C(fence) it, C(finish) a fence that was interrupted and has left the host off, or C(wait) for the host.

    A fence that was begun and whose process was killed is not repeated: the host may be starting. It is repeated only for a host that still runs the boot which
    the fence was to end.

    :arg boot_id: of the host now; None if it cannot be reached.
    """
    if step.fenced_at and is_off:
        return FINISH
    if step.fenced_at and boot_id != step.boot_id:
        return WAIT
    return FENCE
