# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The memory of domains in files: saved for a move, or as managed-save images. A part of L(LibvirtHost)."""

from __future__ import annotations

import contextlib
import os
import typing as t

from .._model import domain_states
from .._model.errors import KvmfleetError, MigrationFailed, Unreachable
from .._time_limits import timed_question
from .backups import LibvirtBackups
from .connection import libvirt_binding, libvirt_errors, translate_error
from .reading import parse_domain_xml

# The folder of saved memory images; libvirt would resume from one instead of starting.
SAVED_FOLDER = "/var/lib/libvirt/qemu/save"
# The format of saved memory that every version can write and read.
RAW = "raw"
_SYSTEM_ERROR = 38
_RPC_DOMAIN = 7


class LibvirtSavedMemory(LibvirtBackups):
    """Saves and restores memory; see L(Host) for what each call does and raises."""

    def saved_memory(self, name: str) -> t.Optional[str]:
        """Return the file of a saved memory image from which a start of that name would resume, or null."""
        path = os.path.join(SAVED_FOLDER, f"{name}.save")
        return path if os.path.exists(path) else None

    def save_domain(self, uuid: str, path: str, image_format: str) -> None:
        with _local_errors(f"save the memory of domain {uuid} to {path}"):
            domain = self._look_up_domain(uuid, "save")
            if image_format == RAW:
                domain.save(path)
            else:
                domain.saveParams({"file": path, "image_format": image_format})

    def save_managed(self, uuid: str, resumes_as: str) -> None:
        known = libvirt_binding()
        state = known.VIR_DOMAIN_SAVE_PAUSED if resumes_as == domain_states.PAUSED else known.VIR_DOMAIN_SAVE_RUNNING
        with _local_errors(f"save the memory of domain {uuid} on {self.uri}"):
            self._look_up_domain(uuid, "save").managedSave(state)

    def restore_paused(self, path: str, definition: t.Optional[str] = None) -> None:
        with _local_errors(f"restore a domain from {path} on {self.uri}"):
            self._connection.restoreFlags(path, definition, libvirt_binding().VIR_DOMAIN_SAVE_PAUSED)

    def read_saved_definition(self, path: str) -> str:
        with _local_errors(f"read the definition in {path} on {self.uri}"):
            return str(self._connection.saveImageGetXMLDesc(path, libvirt_binding().VIR_DOMAIN_SAVE_IMAGE_XML_SECURE))

    def read_saved_uuid(self, path: str) -> t.Optional[str]:
        try:
            with _local_errors(f"read {path} on {self.uri}"):
                return parse_domain_xml(self._connection.saveImageGetXMLDesc(path)).findtext("uuid")
        except Unreachable:
            raise
        except KvmfleetError:
            return None

    def has_managed_save(self, uuid: str) -> bool:
        """Whether the next start would restore a saved memory image."""
        with libvirt_errors(f"look for a managed-save image of domain {uuid} on {self.uri}"):
            return bool(self._connection.lookupByUUIDString(uuid).hasManagedSaveImage())


@contextlib.contextmanager
def _local_errors(attempt: str) -> t.Iterator[None]:
    """Turn an error of libvirt into an error of the collection. An error of the host's system, as for a file, is no lost connection."""
    try:
        with timed_question(attempt):
            yield
    except libvirt_binding().libvirtError as error:
        ours = translate_error(error, attempt)
        is_lost = isinstance(ours, Unreachable) and (error.get_error_code() != _SYSTEM_ERROR or error.get_error_domain() == _RPC_DOMAIN)
        raise (ours if is_lost else MigrationFailed(ours.message)) from error
