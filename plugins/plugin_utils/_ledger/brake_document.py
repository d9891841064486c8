# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The document of the brake on reactions to events: slots, incidents, and whether a person has disarmed the reactions."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, JsonObject, Maybe

# Kinds of incidents: more hosts were silent at once than a reaction may act on; a host does not answer, but is not dead; it is not known which domains are on
# a host that is gone, because their documents cannot be read.
SILENT_TOGETHER, ISOLATED, UNREADABLE = "silent_together", "isolated", "unreadable"


@dataclass(frozen=True)
class BrakeSlot:
    """An action of a reaction on a host.

    :arg reaction: the kind of reaction, e.g. C(evacuate).
    :arg host: its inventory name.
    :arg at: when the slot was taken.
    """

    reaction: str
    host: str
    at: str
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class BrakeIncident:
    """Something that people were notified about once, instead of a reaction.

    :arg kind: C(silent_together), C(isolated) or C(unreadable).
    :arg reaction: the kind of reaction that did nothing.
    :arg hosts: the inventory names of the hosts.
    :arg since: when the first reaction reported it, and the notice was sent.
    :arg at: when a reaction reported it last.
    :arg by: who reported it first: user, control node and process.
    :arg detail: a text, for people.
    :arg host_id: of the isolated host.
    """

    kind: str
    reaction: str
    hosts: tuple[str, ...]
    since: str
    at: str
    by: str
    detail: str
    host_id: Maybe[str] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class BrakeDisarming:
    """A person's decision that no reaction acts.

    :arg at: when the reactions were disarmed.
    :arg by: who has disarmed them: user, control node and process.
    """

    at: str
    by: str
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class BrakeDocument:
    """The state of the brake, one for each ledger.

    :arg ledger_id: the key of the document.
    :arg slots: the actions of reactions, for at most 31 days.
    :arg incidents: what people were notified about, for at most 31 days; one ends earlier when a reaction acts on one of its hosts.
    :arg schema: version of the form.
    :arg disarmed: absent while the reactions are armed.
    """

    ledger_id: str
    slots: tuple[BrakeSlot, ...]
    incidents: tuple[BrakeIncident, ...]
    schema: t.Union[int, Absent] = ABSENT
    disarmed: t.Union[BrakeDisarming, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


def new_brake(ledger_id: str) -> BrakeDocument:
    """Return the brake of a ledger in which no reaction has ever acted."""
    return BrakeDocument(ledger_id, (), ())
