# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A domain on a fake host: what libvirt would know of it."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.values import DomainUse
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Checkpoint

GIB = 1024**3
MIB = 1024**2
DEFAULT_DOWNTIME_MS = 300
# What libvirt has for no limit.
NO_CAP_MIB = 8796093022207
_ACTIVE = (domain_states.RUNNING, domain_states.PAUSED)


@dataclasses.dataclass
class FakeDomain:
    """One host's copy of a domain. C(dirty_bytes) is what the guest writes over and over, at C(dirty_rate_bytes) a second.

    C(unsafe): it has a disk that libvirt does not count as shared. C(definition): what it was defined by, if that is kept.
    C(restored_from): the content of the file from which its memory was restored, until it stops.
    """

    uuid: str
    name: str
    state: str = domain_states.RUNNING
    reason: str = "booted"
    persistent: bool = True
    autostart: bool = False
    memory_bytes: int = GIB
    vcpus: int = 2
    disks: t.Tuple[domain_states.Disk, ...] = ()
    dirty_bytes: int = 64 * MIB
    dirty_rate_bytes: int = 0
    unsafe: bool = False
    job: str = domain_states.JOB_NONE
    machine: str = "pc-q35-7.2"
    cpu_features: t.Tuple[str, ...] = ()
    max_downtime_ms: int = DEFAULT_DOWNTIME_MS
    bandwidth_mib: int = NO_CAP_MIB
    completed: t.Optional[domain_states.JobStats] = None
    # A job other than a migration, as find_other_job names it.
    other_job: str = ""
    checkpoints: t.Tuple[Checkpoint, ...] = ()
    definition: str = ""
    # That of the running guest, if it has another one than its next start.
    live_definition: str = ""
    restored_from: str = ""
    use: t.Optional[DomainUse] = None
    has_tpm: bool = False

    @property
    def active(self) -> bool:
        return self.state in _ACTIVE

    def enter(self, state: str, reason: str) -> None:
        """Give the domain that state, as an event at its host would."""
        self.state, self.reason = state, reason
        if not self.active:
            self.restored_from = self.live_definition = ""

    def view(self) -> domain_states.DomainView:
        return domain_states.DomainView(True, True, self.active, self.persistent, self.state, self.reason, self.job if self.active else domain_states.JOB_NONE)

    def info(self) -> domain_states.DomainInfo:
        autostart = self.autostart and self.persistent
        return domain_states.DomainInfo(self.uuid, self.name, self.view(), autostart, self.memory_bytes, self.vcpus, self.disks, has_tpm=self.has_tpm)

    def xml(self) -> str:
        """Return the definition, as far as the fake has one."""
        if self.definition:
            return self.definition
        disks = "".join(_disk(disk) for disk in self.disks)
        features = "".join(f"<feature policy='require' name='{feature}'/>" for feature in self.cpu_features)
        return (
            f"<domain type='kvm'><name>{self.name}</name><uuid>{self.uuid}</uuid><memory unit='b'>{self.memory_bytes}</memory><vcpu>{self.vcpus}</vcpu>"
            f"<os><type arch='x86_64' machine='{self.machine}'>hvm</type></os><cpu mode='custom'><model>qemu64</model>{features}</cpu>"
            f"<devices>{disks}</devices></domain>"
        )


_ATTRIBUTES = {"file": "file", "block": "dev", "dir": "dir", "network": "name"}


def _disk(disk: domain_states.Disk) -> str:
    source = f"<source {_ATTRIBUTES[disk.kind]}='{disk.source}' protocol='rbd'/>" if disk.source else ""
    marks = ("<readonly/>" if disk.readonly else "") + ("<shareable/>" if disk.shareable else "")
    return f"<disk type='{disk.kind}' device='disk'>{source}<target dev='{disk.target}'/>{marks}</disk>"
