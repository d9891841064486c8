# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host with domains and jobs as a test wants them."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
OTHER = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a12"


def info(name: str = "web1", uuid: str = UUID, **view: t.Any) -> domain_states.DomainInfo:
    """A domain that runs, or as C(view) says."""
    seen = domain_states.DomainView(**{"present": True, "active": True, "persistent": True, "state": domain_states.RUNNING, "reason": "booted", **view})
    return domain_states.DomainInfo(
        uuid=uuid, name=name, view=seen, autostart=True, memory_bytes=256 * 1024**2 + 1, vcpus=2, disks=(domain_states.Disk("vda", "file", "/x"),)
    )


class ListedHost:
    """What the facts ask of a host."""

    def __init__(self, *infos: domain_states.DomainInfo, uri: str = "qemu:///system", jobs: t.Optional[t.Dict[str, domain_states.JobStats]] = None) -> None:
        self.uri = uri
        self._infos = list(infos)
        self._jobs = jobs or {}

    def host_id(self) -> t.Optional[str]:
        return None

    def host_uuid(self) -> str:
        return "8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01"

    def read_hostname(self) -> str:
        return "kvm1"

    def list_domains(self) -> t.List[domain_states.DomainInfo]:
        return self._infos

    def read_job(self, uuid: str) -> t.Optional[domain_states.JobStats]:
        return self._jobs.get(uuid)
