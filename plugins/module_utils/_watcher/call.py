# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The one libvirt call that blocks for as long as the move lasts, in a thread and on a connection of its own."""

from __future__ import annotations

import threading
import typing as t

from .._errors import KvmfleetError
from .._migration.flags import check_call
from .._migration.hypervisor import Host
from .order import Order


class MigrateCall(threading.Thread):
    """Runs L(Host.migrate); C(error) is what it raised, once it has ended."""

    def __init__(self, host: Host, order: Order, flags: t.Optional[t.Sequence[str]] = None) -> None:
        super().__init__(name=f"migrate-{order.uuid}", daemon=True)
        self.error: t.Optional[KvmfleetError] = None
        self._host = host
        self._order = order
        self._flags = order.flags if flags is None else flags

    def run(self) -> None:
        order = self._order
        try:
            check_call(order.flags, order.parameters)
            self._host.migrate(order.uuid, order.destination_uri, self._flags, order.parameters)
        except KvmfleetError as error:
            self.error = error
        finally:
            self._host.close()
