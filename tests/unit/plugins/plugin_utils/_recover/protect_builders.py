# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host tells of a domain, and what a ledger may know of it."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef

Body = dict[str, t.Any]

DOMAIN = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
OTHER = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a12"
ID1, ID2, ID3 = (f"1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a0{number}" for number in (1, 2, 3))
UUID1, UUID2, UUID3 = (f"2b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a0{number}" for number in (1, 2, 3))
KVM1, KVM2, KVM3 = HostRef("kvm1", ID1, UUID1), HostRef("kvm2", ID2, UUID2), HostRef("kvm3", ID3, UUID3)
SECRET = "hunter2"
FOLDER, NONCE = "/srv/images", "3b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01"


def disk(**differing: t.Any) -> Body:
    given = {"target": "vda", "kind": "file", "path": f"{FOLDER}/web1.qcow2", "readonly": False, "optional": False, "backing": [], "folders": [FOLDER]}
    return {**given, "mount": {"path": "/srv", "kind": "ext4", "store": None}, "shared": False, "wwn": None, **differing}


def reported_domain(uuid: str = DOMAIN, name: str = "web1", allocated: int = 100, **differing: t.Any) -> Body:
    """Return a running domain as its host reports it."""
    request = {"memory_mib": 256, "vcpus": 1, "disks": [{"target": "vda", "shared": False, "bytes": allocated}], "uuid": uuid, "name": name}
    definition = f"<domain><name>{name}</name><graphics passwd='{SECRET}'/></domain>"
    told = {"uuid": uuid, "name": name, "definition": definition, "active": True, "persistent": True, "autostart": False, "state": "running"}
    return {**told, "request": request, "policy": {}, "nvram": None, "tpm": None, "disks": [disk()], **differing}


def record(record_type: str, source: HostRef, destination: HostRef, *statuses: str, uuid: str = DOMAIN) -> MoveRecord:
    """Return a record that went through these statuses."""
    made = new_record(record_type, DomainRef(uuid, "web1"), source, destination, {}, "somebody")
    for status in statuses:
        made = made.advance(status, "somebody")
    return made


def evacuation(source: HostRef, destination: HostRef, *statuses: str) -> MoveRecord:
    return record(s.EVACUATION, source, destination, *statuses)


def move(source: HostRef, destination: HostRef, *statuses: str) -> MoveRecord:
    return record(s.LIVE_MIGRATION, source, destination, *statuses)
