# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The acts on a running job: each is in the journal before libvirt is asked, and a refusal is too."""

from __future__ import annotations

import typing as t

from .._errors import InvalidState, KvmfleetError, NotSupported, Unreachable
from .._migration.force import ForceAction, SetBandwidth, StartPostCopy, Suspend
from .._migration.hypervisor import Host
from .._migration.monitor import Abort, SetDowntime
from .._records import statuses as s
from .journal import Journal

ABORT_PREFIX = "abort: "
FORCE_PREFIX = "force: "
SUSPEND_ACT = FORCE_PREFIX + "suspend"
_ACTS: t.Dict[type, str] = {StartPostCopy: "post_copy", SetBandwidth: "bandwidth", SetDowntime: "downtime", Suspend: "suspend"}

Refusals = t.Tuple[t.Type[KvmfleetError], ...]


class Pilot:
    """Carries out what the monitor, forcing, or a person wants of one domain's job."""

    def __init__(self, uuid: str, journal: Journal) -> None:
        self._uuid = uuid
        self._journal = journal
        self._begun: t.Set[str] = set()
        self._refused: t.Set[str] = set()

    def abort(self, host: Host, action: Abort) -> t.Optional[KvmfleetError]:
        """Cancel the job; return what libvirt refused it with, if it did. Any other error is raised: the abort may not have arrived."""
        act = ABORT_PREFIX + action.reason
        if act not in self._begun:
            self._journal.note(s.ABORT_START, action.reason)
        return self._tried(act, lambda: host.abort(self._uuid), (InvalidState, NotSupported))

    def allow(self, host: Host, milliseconds: int) -> bool:
        """Allow a pause; a step of the ramp is no event of the record. Returns whether libvirt accepted it."""
        return self._asked("downtime", lambda: host.set_max_downtime_ms(self._uuid, milliseconds)) is None

    def force(self, host: Host, action: ForceAction) -> t.Optional[KvmfleetError]:
        """Do one act of forcing; return what libvirt refused it with, if it did."""
        calls: t.Dict[type, t.Callable[[], None]] = {
            StartPostCopy: lambda: host.start_post_copy(self._uuid),
            SetBandwidth: lambda: host.set_bandwidth_mib(self._uuid, t.cast(SetBandwidth, action).mib),
            SetDowntime: lambda: host.set_max_downtime_ms(self._uuid, t.cast(SetDowntime, action).milliseconds),
            Suspend: lambda: host.suspend(self._uuid),
        }
        return self._tried(FORCE_PREFIX + _ACTS[type(action)], calls[type(action)])

    def break_post_copy(self, host: Host) -> None:
        """Break a post-copy stream that stands still."""
        self._tried("recover: pause", lambda: host.pause_post_copy(self._uuid))

    def _tried(self, act: str, call: t.Callable[[], None], refusals: Refusals = (KvmfleetError,)) -> t.Optional[KvmfleetError]:
        if act not in self._begun:
            self._begun.add(act)
            self._journal.intend(act)
        return self._asked(act, call, refusals)

    def _asked(self, act: str, call: t.Callable[[], None], refusals: Refusals = (KvmfleetError,)) -> t.Optional[KvmfleetError]:
        """Do it; what is refused again at every poll is noted once."""
        try:
            call()
        except Unreachable:
            raise
        except refusals as error:
            if act not in self._refused:
                self._refused.add(act)
                self._journal.note(f"{act} refused", str(error))
            return error
        return None
