# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests' disks: where the images are, and who serves them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import typing as t

from . import domainxml, hostfiles, namespaces
from .commands import run
from .errors import LabError
from .layout import Lab
from .requirements import require_program

KINDS = ("none", "shared", "nbd", "local", "bindfs")
FIRST_PORT, LAST_PORT = 10809, 10999
DISK_MIB = 16


class Disk(t.NamedTuple):
    """A guest's disk: its piece of the definition, its image on this machine, the port of its server."""

    xml: str
    image: t.Optional[pathlib.Path]
    port: t.Optional[int] = None


def create(lab: Lab, kind: str, name: str, host: str, sector: bytes, taken_ports: t.Container[int]) -> Disk:
    """Make a guest's bootable disk.

    :arg kind: of L(KINDS). C(shared): one image in a folder of all hosts, under QEMU's locks. C(bindfs): the same through a mount that libvirt counts
        as shared. C(nbd): served over the network. C(local): on this host alone.
    """
    if kind == "none":
        return Disk("", None)
    if kind == "shared":
        image = _create_image(lab.shared / f"{name}.qcow2", sector)
        return Disk(domainxml.file_disk(str(image)), image)
    if kind == "local":
        image = _create_image(lab.host_folder(host) / "var-lib-libvirt/images" / f"{name}.qcow2", sector)
        return Disk(domainxml.file_disk(f"{hostfiles.IMAGES}/{name}.qcow2"), image)
    if kind == "bindfs":
        require_program("bindfs", "storage of the kind bindfs")
        image = _create_image(lab.gluster_store / f"{name}.qcow2", sector)
        return Disk(domainxml.file_disk(str(lab.gluster / image.name)), image)
    return _serve(lab, name, sector, taken_ports)


def remove(lab: Lab, name: str, port: t.Optional[int]) -> None:
    """Remove a guest's images on all hosts, and end its server."""
    if port:
        _stop_server(lab, name)
    folders = [lab.shared, lab.gluster_store, lab.exports, *(lab.host_folder(host) / "var-lib-libvirt/images" for host in lab.hosts)]
    for folder in folders:
        (folder / f"{name}.qcow2").unlink(missing_ok=True)


def _create_image(path: pathlib.Path, sector: bytes) -> pathlib.Path:
    raw = path.with_suffix(".raw")
    with raw.open("wb") as file:
        file.write(sector)
        file.truncate(DISK_MIB * 1024 * 1024)
    run("qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", str(raw), str(path))
    raw.unlink()
    return path


def _serve(lab: Lab, name: str, sector: bytes, taken_ports: t.Container[int]) -> Disk:
    require_program("qemu-nbd", "storage of the kind nbd")
    port = next((port for port in range(FIRST_PORT, LAST_PORT + 1) if port not in taken_ports), None)
    if port is None:
        raise LabError(f"All ports from {FIRST_PORT} to {LAST_PORT} serve guests already. Remove one with rmguest.")
    image = _create_image(lab.exports / f"{name}.qcow2", sector)
    server = ["qemu-nbd", "--fork", "--persistent", "--shared=8", "--format=qcow2", f"--bind={lab.storage_address}", f"--port={port}"]
    run(*namespaces.in_network(lab.switch, *server, f"--export-name={name}", f"--pid-file={_pid_file(lab, name)}", str(image)))
    return Disk(domainxml.nbd_disk(lab.storage_address, port, name), image, port)


def _stop_server(lab: Lab, name: str) -> None:
    path = _pid_file(lab, name)
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        pid = int(path.read_text())
        if pid in namespaces.pids(lab.switch):
            os.kill(pid, signal.SIGKILL)
    path.unlink(missing_ok=True)


def _pid_file(lab: Lab, name: str) -> pathlib.Path:
    return lab.exports / f"{name}.pid"
