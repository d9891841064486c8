# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The choice among the strategies of a domain: the first one that is possible, and why those before it are not."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import deletes_tpm
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError, printable_line
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import LEAVE, MIGRATE, SAVE, SHUTDOWN
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DiskNeed, DomainRequest

from .._scheduler.request import Request
from .._settings.policies import owner_of, read_scheduling
from .._settings.variables import Settings
from .inputs import DrainOptions
from .plan_entries import PassedStrategy
from .strategy_options import StrategyOptions

NO_RECEIVER = "A migration of it without a record is in progress, and no candidate reports that it receives the domain: wait until it ends, then run again."
ARRIVING = "It is still arriving here: wait until that migration ends, then run again."
TRANSIENT = "It is transient: it exists only while it runs, so it can only be moved live."
NO_FOLDER = "No folder for its memory is given (drain_host_save_folder)."


def local_disks(needs: DomainRequest) -> list[DiskNeed]:
    """Return the disks that the domain writes to and that are on storage of its host alone."""
    return [disk for disk in needs.disks or () if disk.shared is False and not disk.readonly and disk.source]


def check_save_folder(domains: Iterable[DomainFacts], host: str, settings: Settings, options: StrategyOptions) -> None:
    """Raise L(InvalidArgument) if the only strategy of an active domain, by its policy, is to save its memory, and the drain has no folder for that."""
    if options.save_folder:
        return
    names = sorted(domain.name for domain in domains if domain.active and _is_only_saved(domain, host, settings))
    if names:
        raise InvalidArgument(
            f"The policy of {', '.join(map(printable_line, names))} on {host} saves its memory (drain: save), but the drain has no folder for that.",
            "Set drain_host_save_folder to a folder on storage that the hosts share, or change the policy. Nothing was changed.",
        )


def _is_only_saved(domain: DomainFacts, host: str, settings: Settings) -> bool:
    try:
        return set(read_scheduling(owner_of(domain, host), settings).strategies) == {SAVE}
    except KvmfleetError:
        # The plan names the domain with the error.
        return False


@dataclass(frozen=True)
class StrategyChoice:
    """The strategy for a domain; None if none is possible. C(passed) are those that are preferred to it."""

    strategy: t.Optional[str]
    passed: tuple[PassedStrategy, ...]

    @property
    def reason(self) -> str:
        """Why no strategy is possible."""
        return self.passed[0].reason if len(self.passed) == 1 else describe_passed(self.passed)


def describe_passed(passed: Iterable[PassedStrategy]) -> str:
    """Return sentences about strategies that were not possible; empty for none."""
    return " ".join(f"{one.strategy} is not possible. {one.reason}" for one in passed)


def choose_strategy(strategies: Sequence[str], find_problem: Callable[[str], t.Optional[str]], refused: t.Optional[Mapping[str, str]] = None) -> StrategyChoice:
    """Return the first strategy that is possible.

    :arg strategies: in the order of preference.
    :arg find_problem: returns why a strategy is not possible for the domain, or None.
    :arg refused: why strategies are not possible that were tried already, e.g. because no host can accept the domain.
    """
    passed: list[PassedStrategy] = []
    for strategy in strategies:
        problem = (refused or {}).get(strategy) or find_problem(strategy)
        if problem is None:
            return StrategyChoice(strategy, tuple(passed))
        passed.append(PassedStrategy(strategy, problem))
    return StrategyChoice(None, tuple(passed))


@dataclass(frozen=True)
class DrainedDomain:
    """What the choice for a domain depends on.

    :arg elsewhere: the other hosts where it is active.
    :arg record: its unsettled record away from its host.
    :arg libvirt: the version of its host's libvirt, as libvirt's number; None if it is not known.
    """

    facts: DomainFacts
    request: Request
    elsewhere: Sequence[str]
    record: t.Optional[MoveRecord]
    options: DrainOptions
    libvirt: t.Optional[int] = None

    def find_problem(self, strategy: str) -> t.Optional[str]:
        """Return why the strategy is not possible for the active domain now, or None."""
        if strategy == LEAVE:
            return None
        problem = self._find_state_problem(strategy)
        if problem:
            return problem
        if strategy == MIGRATE:
            return self._find_live_problem()
        if strategy == SAVE:
            return NO_FOLDER if not self.options.cold.save_folder else self.find_cold_problem()
        return self.find_cold_problem() if self.options.cold.moves_stopped else None

    def _find_state_problem(self, strategy: str) -> t.Optional[str]:
        state = self.facts.state or ""
        if self.facts.is_leaving:
            return NO_RECEIVER
        if self.facts.is_arriving:
            return ARRIVING
        if strategy == SHUTDOWN and state != domain_states.RUNNING:
            return f"It is {state}: only a running domain can be shut down. Resume, stop or repair it and run again."
        if state not in (domain_states.RUNNING, domain_states.PAUSED):
            return f"It is {state}: only a running or a paused domain can be {'saved' if strategy == SAVE else 'moved live'}. Stop or repair it and run again."
        if self.elsewhere:
            return f"It is active on {', '.join(self.elsewhere)} as well. Neither is changed: find out which copy is correct."
        return None

    def _find_live_problem(self) -> t.Optional[str]:
        local = [] if self.options.copies_storage else self._list_local_disks()
        if not local:
            return None
        return (
            f"It writes to storage of {self.request.source} alone (disk {', '.join(local)}). Put that on shared storage or have it copied (copy_storage); "
            "or let the domain be shut down (drain: shutdown)."
        )

    def find_cold_problem(self) -> t.Optional[str]:
        """Return why the domain cannot be moved while it is off or saved, or None."""
        if self.facts.persistent is False:
            return TRANSIENT
        if self.record:
            return f"Record {self.record.id} of its move is unsettled ({self.record.status}): wait until that move ends, then run again."
        local = self._list_local_disks()
        if local:
            return f"It writes to storage of {self.request.source} alone (disk {', '.join(local)}), and only a live move can copy that."
        return self._find_tpm_problem()

    def _find_tpm_problem(self) -> t.Optional[str]:
        """Return the reason for which C(cold_migrate) refuses every destination of a domain whose source would delete the state of its TPM."""
        source = self.request.source
        if not self.libvirt or not deletes_tpm(self.request.needs, self.libvirt):
            return None
        return (
            f"It has an emulated TPM, and the libvirt of {source} would delete the state of that with the definition (libvirt 8.9 keeps it). Update libvirt on "
            f"{source}, or let the domain be moved live (drain: migrate)."
        )

    def _list_local_disks(self) -> list[str]:
        return [] if self.options.is_unsafe else sorted(disk.target for disk in local_disks(self.request.needs))
