# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The event source for ansible-rulebook: libvirt's events from many hosts."""

from __future__ import annotations

import pathlib
import sys
import typing as t

DOCUMENTATION = r"""
short_description: Follow the libvirt events of many hosts
description:
  - Follows the events of domains on all given hosts, and reports hosts that no longer answer and hosts that answer again.
  - Uses read-only connections. The Python that runs ansible-rulebook needs libvirt's binding (Debian: python3-libvirt; PyPI: libvirt-python).
  - Each event is a flat dictionary with C(host) (the name in O(hosts), which should be the inventory name), C(uri), C(domain), C(uuid), C(event),
    C(detail) and C(time). Events of a host have an empty C(domain) and C(uuid).
  - For the life cycle of a domain, C(event) is C(defined), C(undefined), C(started), C(suspended), C(resumed), C(stopped), C(shutdown), C(pmsuspended) or
    C(crashed), and C(detail) is the reason, such as C(migrated).
  - C(job_completed) is a job that succeeded. C(detail) is the kind of job, such as C(migration_out); C(elapsed_ms), C(downtime_ms) and other figures are
    included if libvirt has them. C(migration_iteration) has C(iteration).
  - C(post_copy_failed) is a domain whose post-copy migration has failed. C(detail) states whether this host is the C(source) or the C(destination). The
    event is repeated after each new connection until the migration is recovered.
  - C(host_suspect), C(host_isolated), C(host_gone) and C(host_back) are sent once for each change of a host. A host is C(suspect) when its libvirt does not
    answer or its lease in etcd was not renewed in time; C(isolated) when its libvirt has been silent for O(gone_after_seconds), but its lease is renewed or one
    of its ports answers; C(gone) when it has been silent on every path for O(gone_after_seconds). C(host_back) is sent when libvirt answers again.
  - These four have the duration in C(seconds), the cause in C(detail), the state before in C(was), the hosts that are silent at this moment in C(silent), the
    beginning of the silence in C(silent_since), what is known about each path in C(signals), and in C(by) who sends the event.
  - In C(host_back), C(was) is C(gone) if the host was C(gone) at any time since it was up last. Time in which the source itself did not run is not silence.
  - C(source_started) is the first event of a source. It has in C(hosts) the names of the hosts that it follows, and in C(by) the source.
  - C(events_lost) has in C(count) how many events were dropped because the rulebook was too slow.
options:
  hosts:
    description: URIs by name of the host in the inventory.
    type: dict
    required: true
  gone_after_seconds:
    description:
      - How long a host must be silent before it is reported as gone. A host that stops answering is noticed after 20 seconds.
      - A host with a lease is not gone before the time of its lease and of one renewal.
    type: float
    default: 30
  ledger:
    description: The ledger, as in C(kvmfleet_ledger). If it is in etcd, the leases of the hosts there are read; a ledger in a folder has no leases.
    type: str
  etcd:
    description: The connection to etcd, as in C(kvmfleet_etcd).
    type: dict
  election:
    description:
      - With a ledger in etcd, sources that have the same name elect one of them, which alone reports changes of hosts. Another one takes over when it ends, and
        reports hosts that are gone again. By default there is no election.
    type: str
  ssh_ports:
    description:
      - Addresses of SSH by name of the host, such as V(10.0.0.11) or V(10.0.0.11:2222). They are probed only while libvirt is silent. A refused connection
        is an answer.
    type: dict
  second_addresses:
    description:
      - Addresses on a second network by name of the host, such as V(10.0.1.11) or V(10.0.1.11:22). They are probed as O(ssh_ports). The default port is that
        of the lease service, 16516.
    type: dict
  queue_size:
    description: Maximum number of events that wait for a busy rulebook. Beyond that, iterations are dropped first, events of hosts and failed post-copies last.
    type: int
    default: 1000
  events:
    description: Names of the events to send. By default all.
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
    """Make the collection that contains this file importable: ansible-rulebook runs the file alone, without Ansible's loader."""
    folder = pathlib.Path(__file__).resolve().parents[6]
    if str(folder.parent) not in sys.path:
        sys.path.append(str(folder.parent))
    import ansible_collections

    # An installed package of that name would hide the other folder.
    if str(folder) not in ansible_collections.__path__:
        ansible_collections.__path__.append(str(folder))


_make_importable()

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.connection import libvirt_binding  # noqa: E402
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotSupported  # noqa: E402
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.event_options import parse_options  # noqa: E402
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.event_source import EventQueue, HostFollower  # noqa: E402


async def main(queue: EventQueue, args: dict[str, t.Any]) -> None:
    """Follow the hosts until ansible-rulebook cancels it. Raises L(InvalidArgument) for invalid options, L(NotSupported) without libvirt's binding."""
    options = parse_options(args)
    try:
        libvirt_binding()
    except NotSupported as error:
        raise NotSupported(
            f"The Python that runs ansible-rulebook ({sys.executable}) has no libvirt binding.",
            "Install python3-libvirt and create the virtual environment with --system-site-packages, or install libvirt-python into it.",
        ) from error
    await HostFollower(options).run(queue)
