# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The other hosts that did not answer, and why the silence of each is accepted. Each of them could run any domain of the source, whatever the ledger says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import AcceptedSilence, accept_silence
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef

from .._ledger.documents import HostEntry


@dataclass(frozen=True)
class SilentHosts:
    """The silence of a host is accepted if a person names it, if a person has discarded it, or if it is off by evidence.

    This is about domains that the ledger does not place on the host. A domain that it places there needs evidence in every case.

    :arg source: the name of the dead host.
    :arg why: why each has not answered, by name.
    :arg accepted: the names that a person accepts in this task.
    :arg entries: the ledger's hosts.
    """

    source: str
    why: Mapping[str, str]
    accepted: Collection[str]
    entries: Sequence[HostEntry]

    def list_refs_to_prove(self) -> list[HostRef]:
        """Return the hosts whose silence no person has accepted: they have to be off by evidence."""
        return [where for name in self._list_unaccepted() for where in self._refs_of(name)]

    def check_accepted(self, is_off: Callable[[HostRef], bool], unproved: Mapping[str, str]) -> None:
        """Raise L(Unsafe) for a host whose silence is not accepted.

        :arg is_off: whether there is evidence that a host is off.
        :arg unproved: by name, why the agents of a host are no evidence.
        """
        refused = [name for name in self._list_unaccepted() if not all(map(is_off, self._refs_of(name)))]
        if refused:
            why = " ".join(f"{self.why[name]} {unproved[name]}." if name in unproved else self.why[name] for name in refused)
            raise Unsafe(
                f"{', '.join(refused)} did not answer, and a domain of {self.source} could run there: {why}",
                "Nothing was started. Give evidence in fencing that they are off; or, if you are certain that none does, accept their silence by name:"
                f" accept_silent: [{', '.join(refused)}] (evacuate_host_accept_silent).",
            )

    def list_accepted(self, by: str, at: str) -> list[AcceptedSilence]:
        """Return the decisions of persons, for the records. Evidence that a host is off is recorded as such.

        :arg by: who accepts silence in this task, and C(at) when.
        """
        named = sorted(name for name in self.why if name in self.accepted)
        decisions = [(name, entry.discarded) for name in sorted({*self.why} - {*named}) for entry in self._list_discarded(name)[-1:]]
        earlier = [accept_silence([name], decision.by or by, decision.at or at) for name, decision in decisions if decision]
        return [*([accept_silence(named, by, at)] if named else []), *earlier]

    def _list_unaccepted(self) -> list[str]:
        return [name for name in self.why if name not in self.accepted and not self._list_discarded(name)]

    def _list_discarded(self, name: str) -> list[HostEntry]:
        """Return the entries of that name if a person has discarded all of them. A successor may have the name of a discarded host."""
        found = [entry for entry in self.entries if entry.name == name]
        return found if all(entry.discarded for entry in found) else []

    def _refs_of(self, name: str) -> list[HostRef]:
        """Return the hosts of that name: those of the ledger, or else the name alone."""
        return [entry.host_ref for entry in self.entries if entry.name == name] or [HostRef(name, None, None)]
