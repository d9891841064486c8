# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The boot guard of this host, as a module sees it."""

from __future__ import annotations

import dataclasses
import os
import typing as t

from .._errors import Forbidden
from . import systemd
from .layout import missing
from .program import Guard


@dataclasses.dataclass(frozen=True)
class State:
    """Whether the guard is there, and what it did in this boot."""

    installed: bool
    systemd: bool
    """Whether systemd runs here. Where it does not, nothing runs the guard, and so nothing is held at the next boot."""
    boot_id: str
    ran: bool
    """Whether the guard decided anything in this boot."""
    held: t.Optional[t.Dict[str, t.Any]]
    """Since when (C(at)) and why (C(why)) this boot is held; null where it is not."""
    released: t.Optional[t.Dict[str, t.Any]]
    """When (C(at)) and by whom (C(by): C(control), C(token), C(install)) this boot was released; null where it was not.

    C(control) keeps C(would_start), C(token) the IDs C(token) and C(grant)."""
    marked: bool
    """Whether libvirt's mark keeps its daemons from starting guests."""
    grant: t.Optional[str]
    """The ID under which this host may leave a clean-shutdown token; null where it may not."""
    token: t.Optional[str]
    """The ID of a token that lies here. One lies here only between a shutdown and the next boot."""
    would_start: t.List[t.Dict[str, t.Any]]
    """What a boot without guard would start now: C(uuid), C(name), C(why)."""


def state(root: str = "/") -> State:
    """Return the state; changes nothing. Raises L(Forbidden) without root."""
    if root == "/" and os.geteuid() != 0:
        raise Forbidden("The boot guard's files are root's.", "Set become: true, or connect as root.")
    return State(installed=not missing(root), systemd=systemd.is_running(root), **Guard(root).status())
