# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The installed units as systemd reads them, together with those of libvirt, monolithic and modular."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import install, status
from ansible_collections.kvmfleet.migration.plugins.module_utils._systemd import UNIT_FOLDER

SYSTEMD = pathlib.Path("/lib/systemd")
GUARD = pathlib.Path(UNIT_FOLDER) / status.UNIT
MODULAR_SERVICE = """\
[Unit]
BindsTo=virtqemud.socket
Wants=virtqemud-ro.socket
Wants=virtqemud-admin.socket
After=virtqemud.socket
After=virtqemud-ro.socket
After=virtqemud-admin.socket
Conflicts=libvirtd.service
After=libvirtd.service
After=network.target

[Service]
Type=notify
ExecStart=/usr/sbin/libvirtd
"""
MODULAR_SOCKET = """\
[Unit]
Conflicts=libvirtd.socket
After=libvirtd.socket

[Socket]
ListenStream=/run/libvirt/virtqemud{kind}-sock
Service=virtqemud.service
"""


@pytest.fixture(params=["libvirtd", "virtqemud"])
def root(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
    """Return the root of a host with systemd's and libvirt's units, the guard, and that daemon started by its sockets."""
    shutil.copytree(SYSTEMD, tmp_path / "usr/lib/systemd", symlinks=True)
    for link, target in (("lib", "usr/lib"), ("bin", "usr/bin"), ("sbin", "usr/sbin")):
        (tmp_path / link).symlink_to(target)
    for program in ("/usr/bin/python3", "/usr/sbin/libvirtd", "/usr/lib/libvirt/libvirt-guests.sh", "/usr/bin/kill", "/usr/bin/sh"):
        (tmp_path / program[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(program, tmp_path / program[1:])
    _boot_files(tmp_path)
    folder = tmp_path / UNIT_FOLDER
    _modular(folder)
    install.install_guard(str(tmp_path))
    _want(folder, "multi-user.target", f"{request.param}.service", "libvirt-guests.service")
    _want(folder, "sockets.target", *(f"{request.param}{kind}.socket" for kind in ("", "-ro", "-admin")))
    return tmp_path


def test_systemd_accepts_the_units_without_an_ordering_cycle(root: pathlib.Path) -> None:
    assert verify(root) == ""


def test_systemd_reports_a_cycle_for_a_guard_with_default_dependencies(root: pathlib.Path) -> None:
    """Proves that the test above can fail: by default a service starts after its sockets, before which the guard has to start."""
    text = (root / GUARD).read_text()
    assert text.count("DefaultDependencies=no") == 1
    (root / GUARD).write_text(text.replace("DefaultDependencies=no", "DefaultDependencies=yes"))
    assert "ordering cycle" in verify(root)


def test_systemd_reports_an_unknown_line_in_a_unit(root: pathlib.Path) -> None:
    with (root / GUARD).open("a") as unit:
        unit.write("[Service]\nExecStarting=/bin/true\n")
    assert "ExecStarting" in verify(root)


def verify(root: pathlib.Path) -> str:
    """Return what systemd-analyze has to say of a boot with the guard."""
    command = ["systemd-analyze", "verify", f"--root={root}", "--man=no", "multi-user.target", status.UNIT, status.LIBVIRT_GUESTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if "guard" in line.lower() or "cycle" in line or "libvirt" in line)


def _boot_files(root: pathlib.Path) -> None:
    boot_id = pathlib.Path("proc/sys/kernel/random/boot_id")
    (root / boot_id).parent.mkdir(parents=True)
    (root / boot_id).write_text(pathlib.Path("/", boot_id).read_text())


def _modular(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True)
    (folder / "virtqemud.service").write_text(MODULAR_SERVICE)
    for kind in ("", "-ro", "-admin"):
        (folder / f"virtqemud{kind}.socket").write_text(MODULAR_SOCKET.format(kind=kind))


def _want(folder: pathlib.Path, target: str, *names: str) -> None:
    for name in names:
        link = folder / f"{target}.wants" / name
        link.parent.mkdir(exist_ok=True)
        own = folder / name
        link.symlink_to(f"/{UNIT_FOLDER}/{name}" if own.exists() else f"/lib/systemd/system/{name}")
