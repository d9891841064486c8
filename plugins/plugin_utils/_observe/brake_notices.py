# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The notices of the brake: one for each incident, when it begins; and whether a notice is true by the brake's document."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject

from .._ledger.brake_document import ISOLATED, BrakeDocument, BrakeIncident
from .cloud_events import MAX_DETAIL_CHARACTERS, CloudEvent, encode_event
from .host_notices import HostNotice, HostNoticeData

BRAKE_KIND = "brake.held"
ISOLATED_KIND = f"host.{ISOLATED}"
BRAKE_KINDS = (BRAKE_KIND, ISOLATED_KIND)


@dataclass(frozen=True)
class BrakeNoticeData:
    """Why a reaction did nothing.

    :arg reaction: the kind of reaction, e.g. C(evacuate).
    :arg hosts: the inventory names of the hosts that were silent at once.
    :arg by: who found it out: user, control node and process.
    :arg detail: a text, for people.
    """

    reaction: str
    hosts: t.Tuple[str, ...]
    by: str
    detail: str


@dataclass(frozen=True)
class BrakeNotice(CloudEvent):
    """A notice of the brake: an event of CloudEvents 1.0.

    :arg data: why nothing was done.
    """

    data: BrakeNoticeData


def make_brake_events(before: t.Optional[BrakeDocument], after: BrakeDocument, ledger_id: str) -> list[JsonObject]:
    """Return an event for each incident that C(before) (None: the document is new) does not have. An incident that continues has none."""
    known = {_key_of(incident) for incident in before.incidents} if before else set()
    return [_make_event(incident, ledger_id) for incident in after.incidents if _key_of(incident) not in known]


def _key_of(incident: BrakeIncident) -> tuple[str, str, str]:
    return incident.kind, incident.reaction, incident.since


def _make_event(incident: BrakeIncident, ledger_id: str) -> JsonObject:
    detail = incident.detail[:MAX_DETAIL_CHARACTERS]
    if incident.kind == ISOLATED and incident.host_id:
        host = HostNoticeData(incident.hosts[0], incident.host_id, ISOLATED, incident.by, detail)
        return encode_event(HostNotice, host, ISOLATED_KIND, incident.host_id, incident.since, ledger_id)
    data = BrakeNoticeData(incident.reaction, incident.hosts, incident.by, detail)
    return encode_event(BrakeNotice, data, BRAKE_KIND, ledger_id, incident.since, ledger_id, name=f"{BRAKE_KIND} {incident.reaction} {incident.since}")


def is_in_brake(kind: str, at: str, brake: BrakeDocument) -> bool:
    """Whether the document has the incident of a notice of that kind and time."""
    return any(incident.since == at and (incident.kind == ISOLATED) == (kind == ISOLATED_KIND) for incident in brake.incidents)
