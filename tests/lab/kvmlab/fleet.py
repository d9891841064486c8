# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A whole lab: up and down."""

from __future__ import annotations

import concurrent.futures
import json
import pathlib
import shutil
import time
import typing as t

from . import host as hosts
from . import hostdisk, inventory, mountpoints, namespaces, network, ssh
from .errors import UsageError
from .layout import DEFAULT_ROOT, MAX_HOSTS, Lab
from .lock import locked

GLOBAL_LOCK = pathlib.Path(DEFAULT_ROOT)


def up(lab: Lab, count: int, roots: t.Optional[t.Mapping[str, t.Optional[pathlib.Path]]] = None) -> Lab:
    """Bring up a lab of that many hosts, or what is missing of it, and return it. Hosts that are there already stay as they are.

    :arg roots: of hosts, the root of the release that each shall run; None is the machine's, as for hosts that are not in it.
    :raises UsageError: a host that is there runs another release.
    """
    if not 1 <= count <= MAX_HOSTS:
        raise UsageError(f"A lab has 1 to {MAX_HOSTS} hosts, not {count}.")
    with locked(GLOBAL_LOCK):
        mountpoints.require_sole(lab)
        lab = _lay_out(lab, count, roots or {})
        mountpoints.ensure(lab, hostdisk.FOLDERS, hostdisk.FILES)
        mountpoints.expect(str(namespaces.NETNS))
        network.create_switch(lab)
        for host in lab.hosts:
            network.plug_in(lab, host)
            hostdisk.create(lab, host)
            hosts.begin_power_on(lab, host)
        ssh.write_known_hosts(lab)
        inventory.write_all(lab)
    hosts.wait_until_up(lab, lab.hosts)
    return lab


def down(lab: Lab) -> None:
    """End all that runs in the lab and remove all of it. It works on what is left of a lab that came up half, too."""
    with locked(GLOBAL_LOCK):
        mountpoints.require_sole(lab)
        ssh.close_connections(lab)
        names = network.remaining_namespaces(lab)
        with concurrent.futures.ThreadPoolExecutor(len(names) or 1) as pool:
            list(pool.map(namespaces.kill_all, names))
        # The switch's namespace would take the uplink with it, but some time later.
        network.delete_uplink(lab)
        for name in names:
            network.delete(name)
        _remove_folder(lab.state)
        mountpoints.release(lab)
    if lab.root.is_dir() and not any(lab.root.iterdir()) and lab.root != GLOBAL_LOCK:
        lab.root.rmdir()


def power_on(lab: Lab, host: str) -> None:
    """Switch a host on and wait for its services."""
    hosts.begin_power_on(lab, host)
    hosts.wait_until_up(lab, [host])


def set_release(lab: Lab, host: str, root: t.Optional[pathlib.Path]) -> Lab:
    """Let a host that is off run another release from its next start on; what is its own, its identity, domains and images, stays.

    :arg root: of the release; None for the machine's own.
    :raises LabError: the host is on.
    """
    with locked(GLOBAL_LOCK):
        hosts.require_off(lab, host)
        known = _known_settings(lab)
        known["releases"].pop(host, None)
        known["releases"].update({host: str(root)} if root else {})
        _write_settings(lab, known)
        fresh = Lab(lab.prefix, lab.root)
        hostdisk.create(fresh, host)
    return fresh


def _lay_out(lab: Lab, count: int, roots: t.Mapping[str, t.Optional[pathlib.Path]]) -> Lab:
    known = _known_settings(lab)
    known["releases"].update(new_roots(lab, known, roots))
    for folder in (lab.state, lab.shared, lab.gluster, lab.gluster_store, lab.exports, lab.boot, lab.guests):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    known["hosts"] = max(count, known["hosts"])
    _write_settings(lab, known)
    fresh = Lab(lab.prefix, lab.root)
    ssh.create_keys(fresh)
    return fresh


def _write_settings(lab: Lab, settings: t.Mapping[str, t.Any]) -> None:
    """Write what other commands may be reading at this moment."""
    new = lab.settings_file.with_suffix(".new")
    new.write_text(json.dumps(settings))
    new.replace(lab.settings_file)


def _known_settings(lab: Lab) -> t.Dict[str, t.Any]:
    if lab.settings_file.exists():
        settings: t.Dict[str, t.Any] = json.loads(lab.settings_file.read_text())
        return settings
    return {"subnet": network.choose_subnet(lab.prefix), "hosts": 0, "releases": {}}


def new_roots(lab: Lab, known: t.Mapping[str, t.Any], roots: t.Mapping[str, t.Optional[pathlib.Path]]) -> t.Dict[str, str]:
    """Return the roots to remember. Raises L(UsageError) where a host that is there, by what is known of the lab, has another one."""
    there = [lab.host_name(number) for number in range(1, known["hosts"] + 1)]
    for host in there:
        if host in roots and known["releases"].get(host) != (str(roots[host]) if roots[host] else None):
            raise UsageError(f"The host {host} is there with another release. Change it with: lab --prefix {lab.prefix} release {host} NAME, while it is off.")
    return {host: str(root) for host, root in roots.items() if root}


def _remove_folder(folder: pathlib.Path) -> None:
    """Remove a folder. Its mounts vanish a moment after the last process that saw them."""
    for attempt in range(50):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError:
            if attempt == 49:
                raise
            time.sleep(0.1)
