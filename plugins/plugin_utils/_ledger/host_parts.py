# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What C(protect) keeps of a host outside of its entry: what the host sees of other hosts, which is large, and when it was protected, which changes always."""

from __future__ import annotations

import typing as t
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, JsonObject, Maybe


@dataclass(frozen=True)
class HostSights:
    """What a host sees of all hosts whose ID begins with the same digit.

    :arg host_id: of the host that sees. It is the key of the document; the digit is its folder.
    :arg sees: by ID of the other host, the paths of its tokens and devices that the host sees, with the nonce or the WWN.
    :arg boot_id: the boot of the host in which it saw them.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    host_id: str
    sees: JsonObject
    boot_id: Maybe[str] = ABSENT
    schema: t.Union[int, Absent] = ABSENT
    extra: JsonObject = field(default_factory=dict)

    def seen_of(self, host_id: str) -> JsonObject:
        """Return the tokens and devices of another host that this one sees, by path."""
        found = self.sees.get(host_id)
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class ProtectTime:
    """When a host was protected last, and by whom.

    :arg host_key: the key of the document, which is that of the host's entry.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    host_key: str
    at: str
    by: Maybe[str] = ABSENT
    schema: t.Union[int, Absent] = ABSENT
    extra: JsonObject = field(default_factory=dict)
