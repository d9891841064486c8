# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the hosts of a fleet remember of moves, as far as they have told it."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Sequence

from .._ledger.store import Body
from .._settings import Settings


def told_by_fleet(settings: Settings, here: str, own: t.Optional[Sequence[Body]]) -> Iterator[tuple[str, t.Optional[Sequence[Body]]]]:
    """Yield by name what this host remembers, and every other one of the fleet that C(host_facts) has asked.

    However long ago that was: what a host has begun once does not become less true, and is compared with the ledger of now.

    :arg own: what the host that the task runs on has just said.
    """
    yield here, own
    for name in settings.fleet():
        facts = settings.facts(name) if name != here else None
        if facts is not None:
            yield name, facts.get("remembered")
