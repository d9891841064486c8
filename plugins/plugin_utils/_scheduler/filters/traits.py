# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the domain's policy asks of the host's hypervisor, such as post-copy."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import TRAITS

from ..fleet import Fleet
from ..host_state import HostState
from ..request import Request
from .base import PASS, Finding, Rule

_FEATURES = {trait: feature for feature, trait in TRAITS.items()}


class Traits(Rule):
    """A trait that the host is known to lack refuses it; one that could not be verified is a warning."""

    name = "traits"

    def concerns(self, request: Request) -> bool:
        """Return whether anything is asked of the hypervisor."""
        return bool(request.traits)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Give the host's own explanation."""
        open_traits = [trait for trait in request.traits if trait not in host.hardware.traits]
        if not open_traits:
            return PASS
        lacking = host.hardware.missing_traits
        reasons = [f"It lacks {_in_words(trait)}: {lacking[trait]}" for trait in open_traits if trait in lacking]
        unverified = [
            f"{_in_words(trait)} for {request.name} is unverified on {host.name}: no host_facts gathered there say it. QEMU itself checks it at the "
            "start, before anything moves."
            for trait in open_traits
            if trait not in lacking
        ]
        return Finding(" ".join(reasons) or None, tuple(unverified))


def _in_words(trait: str) -> str:
    return f"{_FEATURES[trait]} ({trait})" if trait in _FEATURES else trait
