# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether both hosts of a move can do what its policy asks for. What cannot be told is a warning; a feature is never left out in silence."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import TRAITS, required_traits
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import FACTS_MAX_AGE_SECONDS, Settings

Facts = t.Mapping[str, t.Any]
_FEATURES = {trait: feature for feature, trait in TRAITS.items()}


@dataclass(frozen=True)
class TraitCheck:
    """The required traits of one move against what is known of its hosts."""

    request: MoveRequest
    survey: Facts
    settings: Settings
    source: str

    def check_source(self) -> None:
        """Raise L(NotSupported) where the source's own probe says that it cannot do it."""
        missing = _missing(self._required(), self.survey["source"]["traits"])
        if missing:
            raise NotSupported(f"{self.source} cannot move domain {self.request.label} as asked: {missing}", "Nothing was moved.")

    def fitting(self, candidates: list[str]) -> list[str]:
        """Return the candidates that are not known to lack a trait. Raises L(Conflict) where none is left."""
        problems = {host: _missing(self._required(), self._known(host)) for host in candidates}
        left = [host for host in candidates if not problems[host]]
        if not left:
            host = candidates[0]
            raise Conflict(f"{host} cannot take domain {self.request.label} as asked: {problems[host]}", "Nothing was moved.")
        return left

    def warnings(self, destination: str) -> list[str]:
        """Return a warning for each trait that could not be verified, now that the destination is known."""
        return [
            *(self._unverified(trait, self.source) for trait in _open(self._required(), self.survey["source"]["traits"])),
            *(self._unverified(trait, destination) for trait in _open(self._required(), self._known(destination))),
        ]

    def _required(self) -> list[str]:
        return required_traits(self.request.policy)

    def _known(self, host: str) -> Facts:
        """Return what the destination said of itself in this run, else what was seen of it from the source."""
        surveyed = self.survey["destinations"][self.request.uris[host]]
        own = self.settings.fresh_facts(host)
        same = own is not None and own.get("host_uuid") == surveyed["host_uuid"] and "traits" in own
        return t.cast(Facts, own if same else surveyed["traits"])

    def _unverified(self, trait: str, host: str) -> str:
        return (
            f"{_FEATURES[trait]} for domain {self.request.label} is unverified on {host} ({trait}): there are no host_facts of it from the last "
            f"{FACTS_MAX_AGE_SECONDS} s that tell. QEMU itself checks it at the start, before anything moves."
        )


def _missing(required: list[str], known: Facts) -> str:
    return " ".join(f"it needs {trait} ({_FEATURES[trait]}). {known['missing_traits'][trait]}" for trait in required if trait in known["missing_traits"])


def _open(required: list[str], known: Facts) -> list[str]:
    return [trait for trait in required if trait not in known["traits"] and trait not in known["missing_traits"]]
