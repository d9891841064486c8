# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What is read, written down and made before the job of a move is started."""

from __future__ import annotations

import dataclasses
import typing as t

from .._libvirt.interface import Host
from .._migration.rewriting import rewrite_for_move
from .._model import domain_states
from .._model.codec import ABSENT
from .._model.errors import InvalidState, Unsafe
from .._model.record_parts import Before
from .._model.watched_moves import StartOrder
from .calls import ArrivalEvents, make_targets
from .journal import MIGRATE_ACT, Journal


class JobPreparation:
    """Prepares the job of one move, before each try.

    C(check_intents) carries out an abort that has arrived, by raising; C(is_shared) says whether the window shares the link.
    """

    def __init__(
        self,
        journal: Journal,
        open_destination: t.Callable[[], Host],
        arrivals: ArrivalEvents,
        check_intents: t.Callable[[], None],
        is_shared: t.Callable[[], bool],
    ) -> None:
        self._journal = journal
        self._open_destination = open_destination
        self._arrivals = arrivals
        self._check_intents = check_intents
        self._is_shared = is_shared

    def prepare_job(self, host: Host, order: StartOrder, first_downtime_ms: int) -> t.Tuple[StartOrder, t.Mapping[str, str]]:
        """Read the guest as it is, and write that down with the intent to move it.

        Return the order as it can be carried out, and the parameters with the definitions for the destination, none if nothing differs there.
        """
        info = host.find_domain(uuid=order.uuid)
        job = host.find_other_job(order.uuid) or info.view.job
        # It may have waited: a guest that has suspended itself since does not wake up at a destination whose QEMU is older than 9.0.
        is_movable = info.view.active and info.view.state in (domain_states.RUNNING, domain_states.PAUSED)
        if not is_movable or job != domain_states.JOB_NONE:
            raise InvalidState(f"Domain {order.name} is {info.view.describe()} with job '{job}' on its source host. Nothing was started.")
        self._journal.record = dataclasses.replace(self._journal.record, before=self._read_before(host, order, info))
        definitions = self._rewrite_definitions(host, order, info)
        self._check_intents()
        self._make_targets()
        self._keep_connection(order)
        self._arrivals.expect_at(order.destination_uri)
        self._journal.intend_act(MIGRATE_ACT)
        self._journal.require_written()
        host.set_max_downtime_ms(order.uuid, first_downtime_ms)
        if info.view.state == domain_states.PAUSED:
            # A paused guest stays paused at the destination, which libvirt does not combine with post-copy; it converges anyway.
            order = self._drop_post_copy(order)
        return order, definitions

    def _rewrite_definitions(self, host: Host, order: StartOrder, info: domain_states.DomainInfo) -> t.Mapping[str, str]:
        """Rewrite the definitions as they are now, and write down what differs: the guest may have changed since the move was accepted."""
        if not order.renaming:
            return {}
        rewritten = rewrite_for_move(host, info, order.renaming)
        self._journal.record = self._journal.record.rewrite(rewritten.changes)
        return rewritten.as_parameters()

    def _read_before(self, host: Host, order: StartOrder, info: domain_states.DomainInfo) -> Before:
        """Return the guest as it is. A later try would read what the first one has changed or left behind, so that is kept from the first."""
        old = self._read_old_definition(order)
        now = Before(
            state=info.view.state,
            reason=info.view.reason,
            persistent=info.view.persistent,
            autostart=info.autostart,
            max_downtime_ms=host.max_downtime_ms(order.uuid),
            bandwidth_mib=host.bandwidth_mib(order.uuid),
            at_destination=old is not None,
            autostart_at_destination=True if old and old.autostart else ABSENT,
            checkpoints=host.list_checkpoints(order.uuid) or ABSENT,
        )
        record = self._journal.record
        if not record.has_begun(MIGRATE_ACT):
            return now
        return dataclasses.replace(
            now,
            max_downtime_ms=now.max_downtime_ms if record.before.max_downtime_ms is ABSENT else record.before.max_downtime_ms,
            bandwidth_mib=now.bandwidth_mib if record.before.bandwidth_mib is ABSENT else record.before.bandwidth_mib,
            at_destination=now.at_destination if record.before.at_destination is ABSENT else record.before.at_destination,
        )

    def _keep_connection(self, order: StartOrder) -> None:
        """Keep the flags and parameters of the job: recovering the move from post-copy requires the same ones."""
        self._journal.keep_connection(flags=order.flags, parameters=order.parameters)
        if self._is_shared():
            self._journal.keep_connection(is_shared=True)

    def _drop_post_copy(self, order: StartOrder) -> StartOrder:
        """Return the order without post-copy. The record keeps the flags that were planned, and the parameters that are used."""
        flags = tuple(flag for flag in order.flags if flag != "POSTCOPY")
        parameters = {name: value for name, value in order.parameters.items() if name != "bandwidth.postcopy"}
        record = self._journal.record
        if record.connection:
            self._journal.record = dataclasses.replace(record, connection=dataclasses.replace(record.connection, parameters=parameters))
        return dataclasses.replace(order, flags=flags, parameters=parameters)

    def _make_targets(self) -> None:
        """Make the images that disks are copied into, if the move copies any."""
        if self._journal.record.disk_copies:
            destination = self._open_destination()
            try:
                make_targets(self._journal, destination)
            finally:
                destination.close()

    def _read_old_definition(self, order: StartOrder) -> t.Optional[domain_states.DomainInfo]:
        """Return the domain as the destination has it, which is off there; null if it does not have it."""
        destination, old = self._open_destination(), None
        try:
            view = destination.view_domain(order.uuid)
            is_off = view.present and not view.active
            is_saved = is_off and destination.has_managed_save(order.uuid)
            if is_off and not is_saved:
                old = destination.find_domain(uuid=order.uuid)
        finally:
            destination.close()
        if view.active:
            raise InvalidState(
                f"Domain {order.name} is {view.describe()} on its destination already, under the same UUID. Nothing was started.",
                "Find out which of the two copies is correct before you change anything.",
            )
        if is_saved:
            # libvirt would keep it, and the next start there would resume that memory with disks that were written since.
            raise Unsafe(
                f"The destination has a managed-save image of domain {order.name}, with memory that is older than that of the guest. Nothing was started. "
                f"If the image is not needed, discard it there (virsh managedsave-remove {order.uuid}), and run the task again."
            )
        return old
