# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The documents of the boot guard, as modules read them, and the notes about domains that are to be started again.

The guard itself is a standalone program, which writes its own documents.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .codec import ABSENT, Absent, JsonObject, Maybe


@dataclass(frozen=True)
class AutomaticStart:
    """A guest that a boot without guard would start.

    :arg uuid: null if its definition was unreadable.
    :arg why: C(autostart), C(once) or C(libvirt-guests).
    """

    uuid: t.Optional[str]
    name: t.Optional[str]
    why: t.Tuple[str, ...]
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class BootHold:
    """Since when and why a boot is held.

    :arg unconfirmed: the clean-shutdown token that shared storage has yet to confirm.
    """

    IS_LENIENT: t.ClassVar[bool] = True
    boot_id: str
    at: t.Union[str, Absent, None] = ABSENT
    why: t.Union[str, Absent, None] = ABSENT
    unconfirmed: t.Union[JsonObject, Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class BootRelease:
    """When and by whom a boot was released.

    :arg by: C(control), C(token) or C(install).
    :arg would_start: of C(control): the guests that a boot without guard would have started.
    :arg token: of C(token): the ID of the token; C(grant) is its grant. Of C(control), that of the last token which the host has spent.
    """

    IS_LENIENT: t.ClassVar[bool] = True
    boot_id: str
    by: str
    at: t.Union[str, Absent, None] = ABSENT
    would_start: t.Union[t.Tuple[AutomaticStart, ...], Absent, None] = ABSENT
    token: t.Union[str, Absent, None] = ABSENT
    grant: t.Union[str, Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class BootStatus:
    """The actions of the guard in this boot.

    :arg ran: whether the guard has run.
    :arg held: null if the boot is not held.
    :arg released: null if the boot was not released.
    :arg marked: whether libvirt's mark keeps its daemons from starting guests.
    :arg grant: the ID under which the host may leave a clean-shutdown token; null if it may not.
    :arg token: the ID of a token on the host. There is one only between a shutdown and the next boot.
    :arg would_start: what a boot without guard would start now.
    """

    boot_id: str
    ran: bool
    held: t.Optional[BootHold]
    released: t.Optional[BootRelease]
    marked: bool
    grant: t.Optional[str]
    token: t.Optional[str]
    would_start: t.Tuple[AutomaticStart, ...]


@dataclass(frozen=True)
class TokenGrant:
    """The right of a host to leave clean-shutdown tokens.

    :arg grant: its ID.
    :arg folders: the folders on shared storage that confirm a token, each with the nonce of the host's token there.
    """

    grant: str
    host_id: str
    folders: t.Mapping[str, str]
    extra: JsonObject = dataclasses.field(default_factory=dict)


NOTED_BY_DRAIN = "drain"


@dataclass(frozen=True)
class StartNote:
    """A domain that a drain has shut down, or that a held boot has not started.

    :arg why: the reasons, sorted.
    :arg at: when the first reason was noted.
    :arg boot_id: the boot in which a drain has shut it down last.
    """

    uuid: str
    name: t.Optional[str]
    why: t.Tuple[str, ...]
    at: str
    boot_id: Maybe[str] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


def may_be_off_by_drain(why: t.Sequence[str], noted_in: Maybe[str], boot_id: t.Optional[str]) -> bool:
    """Whether a domain that somebody has stopped since the boot, according to libvirt, may be off because of the drain that has noted it.

    :arg why: the reasons of its note; C(noted_in): the boot in which a drain has shut it down last.
    :arg boot_id: the present boot; null if it is not known.
    """
    is_of_earlier_boot = bool(boot_id and noted_in) and noted_in != boot_id
    return NOTED_BY_DRAIN in why and not is_of_earlier_boot


@dataclass(frozen=True)
class GrantTombstone:
    """The revocation of a host's grant for clean-shutdown tokens. Its existence counts; its content is for people."""

    host_id: str
    grant: str
    extra: JsonObject = dataclasses.field(default_factory=dict)
