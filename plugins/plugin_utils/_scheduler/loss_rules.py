# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The rules by which the guests of a lost host are placed on other hosts: what may be possible, and what the facts prove."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import FILE_LABELS
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import REPLACEABLE, REPLACEABLE_ADVICE

from .filters.base import PASS, Filter, Finding, Rule, names_text
from .filters.cpu import CpuAtStart
from .filters.return_path import OneWay
from .filters.storage import Storage
from .fleet import Fleet, HostState
from .request import Request
from .verdicts import DEFAULT_FILTERS

# A start is not a move: no QEMU hands over to another, and no device has to be migratable.
_MOVE_FILTERS = ("max_moves", "migratable", "traits", "hypervisor", "cpu_threads")
LOSS_FILTERS: t.Final[tuple[Filter, ...]] = tuple(
    CpuAtStart() if rule.name == CpuAtStart.name else rule for rule in DEFAULT_FILTERS if rule.name not in (*_MOVE_FILTERS, OneWay.name)
)

# The disks and files of a domain, each with the IDs of the hosts that were proved to see it.
SeenImages = Mapping[str, frozenset[str]]


class SeenStorage(Storage):
    """A guest of a lost host starts only where its images were proved to be seen.

    What C(protect) has proved decides. Without it, the stores of the facts decide, and an image on storage of the lost host alone is lost with it.
    """

    def __init__(self, seen: t.Optional[Mapping[str, SeenImages]] = None) -> None:
        self._seen = seen or {}

    def applies_to(self, request: Request) -> bool:
        """Return whether the guest has any disk or file of its own."""
        return bool(request.images or request.uuid in self._seen or _private_state(request))

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the disks and files that are lost, not proved or not known."""
        proved = self._seen.get(request.uuid)
        if proved is not None:
            missing = [image for image, hosts in proved.items() if host.host_id not in hosts]
            return Finding(f"Its access to {names_text(missing)} of {request.name} was not proved by protect{_advise_fresh(missing)}.") if missing else PASS
        local = [image.source for image in request.images if image.shared is False and not image.disk.optional]
        if local:
            return Finding(f"{names_text(local)} of {request.name} is on storage of {request.source} alone.")
        finding = super().judge_host(request, host, fleet)
        state = _private_state(request)
        if not state:
            return finding
        return Finding(finding.reason, (*finding.warnings, f"Whether {host.name} would have {state} of {request.name} is not known: it was not protected."))


_REPLACEABLE_LABELS = tuple(FILE_LABELS[what] for what in REPLACEABLE)


def _advise_fresh(missing: Sequence[str]) -> str:
    """Return the way out if the guest lacks nothing but what it can be given anew."""
    if not all(image.startswith(_REPLACEABLE_LABELS) for image in missing):
        return ""
    return f": {REPLACEABLE_ADVICE}"


def _private_state(request: Request) -> str:
    return " and ".join([*(["the firmware variables"] if request.nvram else []), *(["the TPM state"] if request.needs.tpm else [])])


class Proved(Rule):
    """A rule that also refuses a host about which it is in doubt. Warnings that do not concern a start are no doubt."""

    def __init__(self, rule: Filter) -> None:
        self._rule = rule
        self.name = rule.name
        self.judges_silent = rule.judges_silent

    def applies_to(self, request: Request) -> bool:
        """Return whether the rule itself applies."""
        return self._rule.applies_to(request)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Return the finding of the rule, with its doubts as the reason."""
        finding = self._rule.judge_host(request, host, fleet)
        if finding.reason is not None or not finding.warnings or not _is_doubt(self.name, host):
            return finding
        return Finding(" ".join(finding.warnings))


def _is_doubt(name: str, host: HostState) -> bool:
    """Whether the warnings of a rule mean that the guest may not start. The rest concerns only its live migration."""
    return name != "host_devices" or host.hardware.devices is None


# Rules that have an opinion on every host, and can be in doubt. The others never warn.
_DOUBTFUL = ("storage", "cpu_model", "machine_type", "numa", "hugepages", "host_devices", "boot_files", "firmware", "tpm", "secrets", "networks")


class LossRules(t.NamedTuple):
    """The rules for one fleet: a host that C(proved) passes can start the guest, and one that C(possible) refuses cannot."""

    possible: Sequence[Filter]
    proved: Sequence[Filter]
    seen: Mapping[str, SeenImages]


def make_loss_rules(seen: t.Optional[Mapping[str, SeenImages]] = None) -> LossRules:
    """Return the rules.

    :arg seen: what C(protect) has proved, by the UUID of the domain.
    """
    storage = SeenStorage(seen)
    possible = tuple(storage if rule.name == storage.name else rule for rule in LOSS_FILTERS)
    return LossRules(possible, tuple(Proved(rule) if rule.name in _DOUBTFUL else rule for rule in possible), seen or {})
