# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files with the memory of fake domains. They begin as those of libvirt do."""

from __future__ import annotations

import json
import pathlib
import struct
import typing as t
import uuid as uuid_module

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states

from .domain import FakeDomain

_HEADER = struct.Struct("=16s8xI")


def write_image(path: str, domain: FakeDomain, runs: bool = True) -> None:
    """Write the memory of a domain to a new file. Memory that was restored, and has not run since, is still the same."""
    is_same = domain.restored_from and domain.state == domain_states.PAUSED
    memory = {
        "uuid": domain.uuid,
        "name": domain.name,
        "definition": domain.live_definition or domain.xml(),
        "image": domain.restored_from if is_same else str(uuid_module.uuid4()),
    }
    with open(path, "xb") as stream:
        stream.write(_HEADER.pack(b"LibvirtQemudSave", int(runs)) + json.dumps(memory).encode())


def resumes_running(path: str) -> bool:
    """Return whether the guest runs after its memory was restored from the file."""
    return bool(_HEADER.unpack(pathlib.Path(path).read_bytes()[: _HEADER.size])[1])


def read_image(path: str) -> t.Dict[str, str]:
    """Return what is in the file. Raises C(OSError) and C(ValueError)."""
    return t.cast("t.Dict[str, str]", json.loads(pathlib.Path(path).read_bytes()[_HEADER.size :]))
