# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host's half of the module C(host): saying who it is, and making its identity where it has none."""

from __future__ import annotations

import socket
import typing as t

from .._errors import KvmfleetError
from .._hypervisor.host import open_host
from .._module import require_local
from .identity import create_host_id, read_host_id, read_machine_id

Identity = t.Dict[str, t.Any]
Work = t.Mapping[str, t.Any]


def read(uri: str, _work: Work) -> Identity:
    """Return C(identity) of this host. A libvirt that does not answer leaves C(host_uuid) null and says why in C(libvirt_error)."""
    require_local(uri)
    host_uuid, problem = _host_uuid(uri)
    identity = {"host_id": read_host_id(), "machine_id": read_machine_id(), "hostname": socket.gethostname(), "host_uuid": host_uuid}
    return {"changed": False, "identity": identity, "libvirt_error": problem}


def create(uri: str, _work: Work) -> Identity:
    """Make the host's ID where it has none; C(host_id), and whether it was made now, in C(changed)."""
    require_local(uri)
    host_id, made = create_host_id()
    return {"changed": made, "host_id": host_id}


def _host_uuid(uri: str) -> t.Tuple[t.Optional[str], t.Optional[str]]:
    try:
        host = open_host(uri)
    except KvmfleetError as error:
        return None, str(error)
    try:
        return host.host_uuid(), None
    except KvmfleetError as error:
        return None, str(error)
    finally:
        host.close()


PHASES: t.Dict[str, t.Callable[[str, Work], Identity]] = {"read": read, "create": create}
