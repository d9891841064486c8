# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Event source for ansible-rulebook: what libvirt tells on many hosts at once."""

from __future__ import annotations

import pathlib
import sys
import typing as t

DOCUMENTATION = r"""
short_description: Follow the libvirt events of many hosts
description:
  - Follows what happens to domains on all hosts that are given, and which hosts are gone and back.
  - Read-only connections are enough. The Python that runs ansible-rulebook needs libvirt's binding (Debian: python3-libvirt; PyPI: libvirt-python).
  - Each event is a flat dictionary with C(host) (the name given here, which should be that of the inventory), C(uri), C(domain), C(uuid), C(event),
    C(detail) and C(time). Events of a host have an empty C(domain) and C(uuid).
  - A domain's life has the C(event) C(defined), C(undefined), C(started), C(suspended), C(resumed), C(stopped), C(shutdown), C(pmsuspended) or
    C(crashed), and why in C(detail), such as C(migrated).
  - C(job_completed) is a job that succeeded; C(detail) is what it was, such as C(migration_out), with C(elapsed_ms), C(downtime_ms) and more where libvirt
    has them. C(migration_iteration) has C(iteration).
  - C(post_copy_failed) is a domain whose post-copy has broken; C(detail) says whether this host is the C(source) or the C(destination). It is told again
    after each new connection for as long as it is broken.
  - C(host_gone) is told once for a host of which nothing was heard for O(gone_after_seconds), C(host_back) once when it is heard from again; both have
    C(seconds), for how long. C(detail) says why.
  - C(events_lost) says by C(count) how many events a rulebook has missed that was too slow.
options:
  hosts:
    description: URIs by name of the host in the inventory.
    type: dict
    required: true
  gone_after_seconds:
    description: For how long nothing is heard from a host until it is gone. That one has stopped answering is noticed after 20 seconds.
    type: float
    default: 30
  queue_size:
    description: How many events wait at most for a rulebook that is busy. Beyond that iterations go first; hosts and broken post-copies go last.
    type: int
    default: 1000
  events:
    description: Names of the events that are wanted. By default all.
    type: list
    elements: str
"""

EXAMPLES = r"""
- kvmfleet.migration.libvirt:
    hosts:
      kvm1: qemu+ssh://root@10.0.0.11/system?no_tty=1
      kvm2: qemu+ssh://root@10.0.0.12/system?no_tty=1
"""


def _make_importable() -> None:
    """Let Python find the collection that this file lies in: ansible-rulebook runs the file alone, without Ansible's loader."""
    folder = pathlib.Path(__file__).resolve().parents[6]
    if str(folder.parent) not in sys.path:
        sys.path.append(str(folder.parent))
    import ansible_collections

    # Where an installed package has that name, too, it hides what else lies under it.
    if str(folder) not in ansible_collections.__path__:
        ansible_collections.__path__.append(str(folder))


_make_importable()

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotSupported  # noqa: E402
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.library import libvirt  # noqa: E402
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._events.following import Following, Queue  # noqa: E402
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._events.options import options_of  # noqa: E402


async def main(queue: Queue, args: dict[str, t.Any]) -> None:
    """Follow the hosts until ansible-rulebook cancels it. Raises the errors of the collection for options that cannot be, and without libvirt's binding."""
    options = options_of(args)
    try:
        libvirt()
    except NotSupported as error:
        raise NotSupported(
            f"The Python that runs ansible-rulebook ({sys.executable}) has no libvirt binding.",
            "Install python3-libvirt and make the virtual environment with --system-site-packages, or install libvirt-python into it.",
        ) from error
    await Following(options).run(queue)
