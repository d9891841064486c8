# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the survivors of a play are asked for: the request of evacuate_plan, its checks, and which hosts of the play share the work."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import EVACUATE_ASSESS
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, InvalidArgument, Unreachable, Unsafe

from .._drain.answers import FactsOf, readable_facts
from .._observe.fleet_scan import list_contradicting, scan_fleet
from .._settings.variables import read_facts
from .fleet_answers import FirstRound
from .job import EvacuationTask, EvacuationWork

_NOTHING_STARTED = "Nothing was started."
NOT_ROOT = "the user is not root there, and only root can start domains"


@dataclass(frozen=True)
class Survivors:
    """The hosts of a play that share the work, and those that answered and were excluded, with the reason: now, and earlier.

    :arg ask_again: hosts that contradict each other, and that have to be asked again before any of this counts.
    """

    hosts: tuple[str, ...]
    excluded: Mapping[str, str]
    earlier: Mapping[str, str]
    ask_again: tuple[str, ...] = ()

    def list_warnings(self, source: str) -> list[str]:
        """Return a warning of each host that was excluded now."""
        return [
            f"{host} starts no domain of {source}: {why}. Set become: true for {host}, or connect to it as root, and run this again."
            for host, why in self.excluded.items()
        ]


@dataclass(frozen=True)
class EvacuationRequest:
    """The request of a play whose hosts are the survivors.

    :arg task: its options.
    :arg work: what the role adds.
    :arg first_round: what the source and the fleet have answered while the facts of the survivors were gathered; None for a step that has to ask itself.
    """

    task: EvacuationTask
    work: EvacuationWork
    first_round: FirstRound | None = None

    @classmethod
    def from_task(cls, task: EvacuationTask) -> EvacuationRequest:
        """Return the request of a task with these options."""
        work = task.work or EvacuationWork()
        # What was asked before tasks of the user have fenced the source shows nothing afterwards.
        is_valid = not work.fence_tasks or task.step == EVACUATE_ASSESS
        return cls(task, work, decode(FirstRound, work.first_round) if work.first_round and is_valid else None)

    @property
    def play(self) -> tuple[str, ...]:
        """The hosts of the play."""
        return self.work.play or ()

    @property
    def destination(self) -> str:
        """The survivor that starts all domains, empty for any."""
        return self.task.destination or ""

    @property
    def excluded(self) -> Mapping[str, str]:
        """Hosts that were excluded earlier, with the reason."""
        return self.work.excluded or {}

    def check_options(self) -> None:
        """Raise L(InvalidArgument) for an invalid request, or one that lacks a person's reason."""
        if not self.task.source:
            raise InvalidArgument("evacuate_host_source is empty: name the dead host.", _NOTHING_STARTED)
        if self.task.source in self.play:
            raise InvalidArgument(
                f"{self.task.source} is one of the hosts of the play: run the role on the other hosts, for example hosts: kvmfleet_hosts:!{self.task.source}.",
                _NOTHING_STARTED,
            )
        if self.task.force_down and not self.task.force_down["reason"]:
            raise InvalidArgument(f"evacuate_host_force_down needs evacuate_host_reason: how do you know that {self.task.source} is off?", _NOTHING_STARTED)
        if self.task.accept_locked and not self.task.accept_locked["reason"]:
            raise InvalidArgument("evacuate_host_accept_locked needs evacuate_host_reason: how do you know that nobody writes these images?", _NOTHING_STARTED)
        if self.task.force_down and (self.task.fencing or self.work.fence_tasks):
            raise InvalidArgument("Both evacuate_host_force_down and other evidence are given.", f"Give one of them. {_NOTHING_STARTED}")
        if self.destination and self.destination not in self.play:
            raise InvalidArgument(
                f"evacuate_host_destination is {self.destination}, which is not one of the hosts of the play: {', '.join(sorted(self.play))}.", _NOTHING_STARTED
            )

    def check_choice(self) -> None:
        """Raise L(InvalidArgument) for C(force) without a destination, and for two lists of domains, or one that names none, or one without a name."""
        if self.work.twice:
            raise InvalidArgument(f"Both {' and '.join(self.work.twice)} name domains.", f"Set only one of them. {_NOTHING_STARTED}")
        if self.task.force and not self.destination:
            raise InvalidArgument(
                "evacuate_host_force is true, but evacuate_host_destination is empty: which host is to start domains that the scheduler refuses there?",
                f"Name one of the surviving hosts. {_NOTHING_STARTED}",
            )
        if self.task.domains is not None and not all(self.task.domains or ("",)):
            raise InvalidArgument("evacuate_host_domains has no name, or an empty one.", f"Name domains, or leave it out for all of them. {_NOTHING_STARTED}")

    def find_survivors(self, facts_of: FactsOf) -> Survivors:
        """Return the hosts of the play that answered to root, which share the work, and those that answered to another user.

        Raises L(Unreachable) if none answered, L(Forbidden) if none did to root, L(Unsafe) if a domain or an image is in use twice on them and they cannot be
        asked again.
        """
        asked = self.work.asked or {}
        found = [host for host in self.play if (answer := asked.get(host)) and answer.ansible_facts is not ABSENT]
        if not found:
            raise Unreachable(f"None of {', '.join(self.play)} answers.", f"Check the connection of the control node to them. {_NOTHING_STARTED}")
        with readable_facts():
            known = {host: read_facts(facts) for host in found if (facts := facts_of(host))}
            able = [host for host in found if host not in known or known[host].is_read_by_root]
            findings = scan_fleet(known).findings
        if findings and not self.work.may_ask_again:
            raise Unsafe(" ".join(one.msg for one in findings), _NOTHING_STARTED)
        if not able:
            raise Forbidden(f"The user is root on none of {', '.join(found)}, and only root can start domains.", f"Set become: true. {_NOTHING_STARTED}")
        earlier = {host: why for host, why in self.excluded.items() if host not in self.play}
        return Survivors(tuple(able), {host: NOT_ROOT for host in found if host not in able}, earlier, list_contradicting(findings))

    @property
    def must_assess_first(self) -> bool:
        """Whether the source has to be assessed before it is proved to be off: a tasks file fences before the proof."""
        return bool(self.work.fence_tasks)

    def given_evidence(self, name: str, check_mode: bool) -> list[Json] | None:
        """Return the evidence of the tasks, or else the given evidence, or None. Raises L(Unsafe) if tasks have left no evidence.

        :arg name: the source's, in the ledger.
        """
        evidence = self.work.evidence
        if evidence is not ABSENT and evidence is not None and evidence != "":
            return _list_documents(evidence)
        if self.work.fence_tasks and not check_mode:
            raise Unsafe(f"{self.work.fence_tasks} has set no fact evacuate_host_evidence, so there is no evidence that {name} is off.", _NOTHING_STARTED)
        return list(self.task.fencing or ()) or None


def _list_documents(evidence: Json) -> list[Json] | None:
    listed = [evidence] if isinstance(evidence, Mapping) else evidence
    if not isinstance(listed, (list, tuple)) or not all(isinstance(one, Mapping) for one in listed):
        raise InvalidArgument("evacuate_host_evidence must be a dictionary, or a list of dictionaries.", _NOTHING_STARTED)
    return list(listed) or None
