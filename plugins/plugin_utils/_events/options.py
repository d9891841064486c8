# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a rulebook gives the event source."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.uri import check_uri

from .words import EVENTS

_GONE_AFTER_SECONDS = 30
_QUEUE_SIZE = 1000
_KNOWN = ("hosts", "gone_after_seconds", "queue_size", "events")


class Options(t.NamedTuple):
    """Checked options.

    :arg hosts: URIs by name in the inventory.
    :arg events: names of the events that are wanted.
    """

    hosts: dict[str, str]
    gone_after_seconds: float
    queue_size: int
    events: frozenset[str]


def options_of(args: Mapping[str, t.Any]) -> Options:
    """Return the options in a source's arguments. Raises L(InvalidArgument) naming the one that cannot be."""
    unknown = sorted(set(args) - set(_KNOWN))
    if unknown:
        raise InvalidArgument(f"The event source libvirt has no option {', '.join(unknown)}.", f"It has: {', '.join(_KNOWN)}.")
    return Options(
        _hosts(args.get("hosts")),
        _number("gone_after_seconds", args.get("gone_after_seconds", _GONE_AFTER_SECONDS), 1),
        int(_number("queue_size", args.get("queue_size", _QUEUE_SIZE), 10)),
        _events(args.get("events")),
    )


def _hosts(hosts: t.Any) -> dict[str, str]:
    if not isinstance(hosts, Mapping) or not hosts:
        raise InvalidArgument(f"hosts is {hosts!r}.", "Give URIs by the names of hosts, such as {kvm1: qemu+ssh://root@kvm1/system?no_tty=1}.")
    return {str(name): check_uri(uri, f"The URI of {name} in hosts") for name, uri in hosts.items()}


def _number(name: str, value: t.Any, least: int) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    # What is no number compares as false, too.
    if not least <= number < float("inf"):
        raise InvalidArgument(f"{name} is {value!r}.", f"Give a number, at least {least}.")
    return number


def _events(events: t.Any) -> frozenset[str]:
    if events is None:
        return frozenset(EVENTS)
    if not isinstance(events, list) or not set(map(str, events)) <= set(EVENTS):
        raise InvalidArgument(f"events is {events!r}.", f"Give a list of these: {', '.join(EVENTS)}.")
    return frozenset(map(str, events))
