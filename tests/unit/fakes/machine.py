# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fake host itself: its domains, and whether it answers. Connections to it are in C(host.py)."""

from __future__ import annotations

import typing as t
import uuid as uuid_module

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotFound

from .domain import GIB, FakeDomain
from .folder import DirectoryFolder


class FakeMachine:
    """A hypervisor host. C(calls) is the list of acts that were asked of it, in order.

    C(paths): the files of which it can tell whether it has them. C(saved_memory): files with the memory of domains, by their names;
    new ones are made in C(save_folder).
    C(folders): the folders of this machine behind its paths.
    C(lacking): features that its CPU does not have. C(is_read_only): whether its libvirt gives this user only a connection that reads.
    """

    def __init__(self, name: str, libvirt_version: int = 9000000, hypervisor_version: int = 7002022) -> None:
        self.name = name
        self.host_id: t.Optional[str] = None
        self.host_uuid = str(uuid_module.uuid5(uuid_module.NAMESPACE_DNS, name))
        self.versions = {"libvirt": libvirt_version, "hypervisor": hypervisor_version}
        self.total_bytes = 64 * GIB
        self.cpus = 16
        self.domains: t.Dict[str, FakeDomain] = {}
        self.calls: t.List[str] = []
        self.carried: t.List[int] = []
        self.refuse: t.Dict[str, Exception] = {}
        self.paths: t.Dict[str, bool] = {}
        self.lacking: t.Set[str] = set()
        self.is_read_only = False
        # Checkpoints whose bitmaps the images lack, or that are damaged.
        self.broken_bitmaps: t.Set[str] = set()
        self.saved_memory: t.Dict[str, str] = {}
        self.save_folder = ""
        self.folders: t.Dict[str, DirectoryFolder] = {}
        self.answers = True
        self.outages = 0
        self.listeners: t.List[t.Callable[[str, domain_states.JobStats], None]] = []
        self.arrival_listeners: t.List[t.Callable[[str], None]] = []

    def put(self, domain: FakeDomain) -> FakeDomain:
        self.domains[domain.uuid] = domain
        return domain

    def remove(self, uuid: str) -> None:
        self.domains.pop(uuid, None)

    def domain(self, uuid: str) -> FakeDomain:
        """Return the domain. Raises L(NotFound)."""
        if uuid not in self.domains:
            raise NotFound(f"There is no domain {uuid} on {self.name}.")
        return self.domains[uuid]

    def tell_completed(self, uuid: str, stats: domain_states.JobStats) -> None:
        """Send the event of a job that ended well, to whoever is connected."""
        for listener in self.listeners:
            listener(uuid, stats)

    def tell_arrived(self, uuid: str) -> None:
        """Send the event of a guest that begins to run here."""
        for listener in self.arrival_listeners:
            listener(uuid)

    def go_dark(self) -> None:
        """Stop answering; every connection is lost for good."""
        self.answers = False
        self.outages += 1

    def come_back(self) -> None:
        """Answer again, to whoever connects anew."""
        self.answers = True
