# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host's own part of the file system: what it keeps over a power cut."""

from __future__ import annotations

import os
import pathlib
import shutil
import uuid

from . import hostfiles, hostroot, ssh
from .layout import Lab

FOLDERS = {
    "/etc/kvmfleet": "etc-kvmfleet",
    "/etc/libvirt": "etc-libvirt",
    "/etc/ssh": "etc-ssh",
    "/etc/sudoers.d": "etc-sudoers.d",
    "/etc/systemd/system": "etc-systemd-system",
    "/usr/local/lib/kvmfleet": "usr-local-lib-kvmfleet",
    "/var/cache/libvirt": "var-cache-libvirt",
    "/var/lib/kvmfleet": "var-lib-kvmfleet",
    "/var/lib/libvirt": "var-lib-libvirt",
    "/var/log/libvirt": "var-log-libvirt",
}
"""Folder on the host: where the lab keeps it, below the host's folder."""
FILES = {f"/etc/{name}": f"etc-{name}" for name in ("group", "hostname", "hosts", "machine-id", "passwd", "shadow")}


def create(lab: Lab, host: str) -> None:
    """Write what the host finds on its disk; what libvirt and others wrote there since stays."""
    folder = lab.host_folder(host)
    for name in FOLDERS.values():
        (folder / name).mkdir(mode=0o755, parents=True, exist_ok=True)
    identity = _identity(folder)
    _write_users(folder, hostroot.at(lab.release_root(host) or hostroot.MACHINES, "/etc"))
    _write_names(lab, host, folder, identity)
    _write_libvirt(folder / "etc-libvirt", identity)
    (folder / "var-lib-libvirt/images").mkdir(exist_ok=True)
    _write_ssh(lab, folder / "etc-ssh")


def _identity(folder: pathlib.Path) -> uuid.UUID:
    path = folder / "host-uuid"
    if not path.exists():
        path.write_text(str(uuid.uuid4()))
    return uuid.UUID(path.read_text())


def _write_users(folder: pathlib.Path, etc: pathlib.Path) -> None:
    root_home, operator_home = folder / "home-root", folder / f"home-{hostfiles.OPERATOR}"
    root_home.mkdir(mode=0o700, exist_ok=True)
    operator_home.mkdir(mode=0o700, exist_ok=True)
    os.chown(operator_home, hostfiles.OPERATOR_ID, hostfiles.OPERATOR_ID)
    _write(folder / "etc-passwd", hostfiles.passwd(etc, root_home, operator_home))
    _write(folder / "etc-group", hostfiles.group(etc))
    _write(folder / "etc-shadow", hostfiles.shadow(etc), mode=0o600)
    _write(folder / "etc-sudoers.d/lab", hostfiles.sudoers(), mode=0o440)


def _write_names(lab: Lab, host: str, folder: pathlib.Path, identity: uuid.UUID) -> None:
    _write(folder / "etc-hostname", f"{host}\n")
    _write(folder / "etc-hosts", hostfiles.hosts(lab))
    _write(folder / "etc-machine-id", f"{identity.hex}\n")


def _write_libvirt(folder: pathlib.Path, identity: uuid.UUID) -> None:
    if (folder / "libvirtd.conf").exists():
        return
    _write(folder / "libvirtd.conf", hostfiles.libvirtd_conf(identity))
    _write(folder / "qemu.conf", hostfiles.QEMU_CONF)
    (folder / "storage/autostart").mkdir(parents=True)
    _write(folder / "storage/default.xml", hostfiles.POOL, mode=0o600)
    (folder / "storage/autostart/default.xml").symlink_to("/etc/libvirt/storage/default.xml")


def _write_ssh(lab: Lab, folder: pathlib.Path) -> None:
    ssh.create_key(folder / "ssh_host_key")
    _write(folder / "sshd_config", hostfiles.SSHD_CONFIG)
    _write(folder / "ssh_config", hostfiles.ssh_config(pathlib.Path("/etc/ssh/id"), ssh.known_hosts_file(lab)))
    shutil.copyfile(f"{ssh.user_key(lab)}.pub", folder / "authorized_keys")
    _write(folder / "id", ssh.user_key(lab).read_text(), mode=0o600)


def _write(path: pathlib.Path, text: str, mode: int = 0o644) -> None:
    path.write_text(text)
    path.chmod(mode)
