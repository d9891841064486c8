# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The calls about checkpoints, on which incremental backups build, and about jobs other than a migration."""

from __future__ import annotations

import contextlib
import typing as t

from .._model import domain_states
from .._model.errors import InvalidState, KvmfleetError, NotFound, NotSupported
from .._model.record_parts import Checkpoint
from .connection import libvirt_binding, libvirt_errors
from .reading import job_words, parse_domain_xml
from .reporting import LibvirtReporter

if t.TYPE_CHECKING:
    import libvirt

# virDomainCheckpointListFlags, virDomainCheckpointXMLFlags, virDomainCheckpointCreateFlags.
_PARENTS_FIRST = 2
_WITHOUT_DOMAIN = 2
_REDEFINE, _VALIDATE = 1, 4
_VALIDATE_SINCE = 6010000
# virDomainJobOperation, virDomainBlockJobType: what else than a migration occupies a domain.
_OPERATIONS = {
    2: "a save of its memory",
    3: "a restore of its memory",
    6: "a snapshot",
    7: "a return to a snapshot",
    8: "a dump of its memory",
    9: "a backup",
    10: "the deletion of a snapshot",
}
_BLOCK_JOBS = {1: "a pull", 2: "a copy", 3: "a commit", 4: "a commit", 5: "a backup"}


class LibvirtBackups(LibvirtReporter):
    """The calls of L(Host) about checkpoints and other jobs."""

    def find_other_job(self, uuid: str) -> str:
        try:
            with libvirt_errors(f"read the jobs of domain {uuid} on {self.uri}"):
                domain = self._connection.lookupByUUIDString(uuid)
                return self._find_domain_job(domain) if domain.isActive() else ""
        except NotFound:
            return ""

    def list_checkpoints(self, uuid: str) -> t.Tuple[Checkpoint, ...]:
        try:
            with libvirt_errors(f"list the checkpoints of domain {uuid} on {self.uri}"):
                found = self._connection.lookupByUUIDString(uuid).listAllCheckpoints(_PARENTS_FIRST)
                return tuple(Checkpoint(one.getName(), one.getXMLDesc(_WITHOUT_DOMAIN)) for one in found)
        except NotSupported:
            return ()

    def redefine_checkpoint(self, uuid: str, checkpoint: Checkpoint) -> None:
        with libvirt_errors(f"define checkpoint {checkpoint.name} of domain {uuid} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid)
            can_validate = domain.isActive() and self._connection.getLibVersion() >= _VALIDATE_SINCE
            domain.checkpointCreateXML(checkpoint.definition, _REDEFINE | (_VALIDATE if can_validate else 0))

    def _find_domain_job(self, domain: libvirt.virDomain) -> str:
        if self._job_of(domain) in (domain_states.JOB_OUTGOING, domain_states.JOB_INCOMING):
            return ""
        stats: t.Mapping[str, int] = {}
        with contextlib.suppress(InvalidState, NotSupported), libvirt_errors("read a job"):
            stats = domain.jobStats()
        if job_words(stats) != domain_states.JOB_NONE:
            return _OPERATIONS.get(stats.get("operation", 0), "another job")
        return _find_block_job(domain)


def _find_block_job(domain: libvirt.virDomain) -> str:
    """Return the first job of a disk: libvirt does not migrate a domain that has one."""
    for target in parse_domain_xml(domain.XMLDesc(0)).findall("devices/disk/target"):
        name = target.get("dev", "")
        # A drive without a medium has no such job.
        with contextlib.suppress(libvirt_binding().libvirtError, KvmfleetError):
            found = domain.blockJobInfo(name)
            if found:
                return f"{_BLOCK_JOBS.get(found.get('type', 0), 'another job')} of disk {name}"
    return ""
