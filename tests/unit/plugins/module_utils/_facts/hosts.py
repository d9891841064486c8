# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host with domains and jobs as a test wants them."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
OTHER = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a12"


def info(name: str = "web1", uuid: str = UUID, **view: t.Any) -> h.DomainInfo:
    """A domain that runs, or as C(view) says."""
    seen = h.GuestView(**{"present": True, "active": True, "persistent": True, "state": h.RUNNING, "reason": "booted", **view})
    return h.DomainInfo(uuid=uuid, name=name, view=seen, autostart=True, memory_bytes=256 * 1024**2 + 1, vcpus=2, disks=(h.Disk("vda", "file", "/x"),))


class ListedHost:
    """What the facts ask of a host."""

    def __init__(self, *infos: h.DomainInfo, uri: str = "qemu:///system", jobs: t.Optional[t.Dict[str, h.JobStats]] = None) -> None:
        self.uri = uri
        self._infos = list(infos)
        self._jobs = jobs or {}

    def host_id(self) -> t.Optional[str]:
        return None

    def host_uuid(self) -> str:
        return "8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01"

    def hostname(self) -> str:
        return "kvm1"

    def domains(self) -> t.List[h.DomainInfo]:
        return self._infos

    def job(self, uuid: str) -> t.Optional[h.JobStats]:
        return self._jobs.get(uuid)
