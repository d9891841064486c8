# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts, facts, records and documents for the tests of a recovery."""

from __future__ import annotations

import dataclasses
import typing as t
import uuid

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import read_facts

Body = dict[str, t.Any]


def uid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def end(name: str) -> HostRef:
    return HostRef(name, uid(f"id {name}"), uid(f"libvirt {name}"))


def host(name: str, state: str = "enabled", since: str = "2026-11-21T02:00:00.000Z") -> Body:
    return {"name": name, "host_id": uid(f"id {name}"), "host_uuid": uid(f"libvirt {name}"), "state": state, "since": since}


def facts(name: str, *domains: Body) -> HostFacts:
    return read_facts({"host_id": uid(f"id {name}"), "host_uuid": uid(f"libvirt {name}"), "domains": list(domains)})


def domain(name: str, active: bool = False) -> Body:
    return {"uuid": uid(name), "name": name, "active": active}


def document(name: str, *hosts: str, origin: t.Optional[str] = None, protected: bool = True) -> Body:
    body: Body = {"uuid": uid(name), "name": name, "possible_hosts": [encode(end(one)) for one in hosts]}
    return {**body, "protected": {"origin": origin}} if protected else body


def noted(name: str, *why: str) -> Body:
    return {"uuid": uid(name), "name": name, "why": list(why or ("autostart",)), "at": "2026-11-21T03:00:00.000Z"}


def record(
    name: str, source: str, destination: str, status: str = s.COMPLETED, at: str = "2026-11-21T03:00:00.000Z", kind: str = s.LIVE_MIGRATION
) -> MoveRecord:
    made = new_record(kind, DomainRef(uid(name), name), end(source), end(destination), {}, "test")
    return dataclasses.replace(made, status=status, created_at=at, updated_at=at)
