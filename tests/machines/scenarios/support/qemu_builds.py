# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two builds of QEMU from the archive of this machine's release, on the shared storage of the fleet, which has no archive of its own."""

from __future__ import annotations

import pathlib
import re
import subprocess

from .machines import Machines
from .site import Site

# They depend on each other in the same version.
PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "qemu-utils")
# It is for every architecture, so that it has no mark of a rebuild.
COMMON_PACKAGE = "qemu-system-data"
REBUILD = re.compile(r"\+b\d+$")
SHARED = "/srv/images/builds"
OLD, NEW = "old", "new"
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install -q -y --allow-downgrades"


def list_versions() -> list[str]:
    """Return the versions of QEMU in the archive, the newest first. Fails unless there are two."""
    done = subprocess.run(["apt-cache", "madison", PACKAGES[0]], capture_output=True, text=True, check=True)
    versions = list(dict.fromkeys(line.split("|")[1].strip() for line in done.stdout.splitlines()))
    assert len(versions) > 1, f"The archive of this machine has one build of {PACKAGES[0]} only: {versions}. Run apt-get update."
    return versions


def share_builds(site: Site, folder: pathlib.Path) -> None:
    """Download the oldest and the newest build, and put them on the shared storage."""
    versions = list_versions()
    for name, version in ((OLD, versions[-1]), (NEW, versions[0])):
        there = folder / "builds" / name
        there.mkdir(parents=True)
        wanted = [f"{package}={REBUILD.sub('', version) if package == COMMON_PACKAGE else version}" for package in PACKAGES]
        # The user of apt cannot write to a folder of root.
        options = ("-o", "APT::Sandbox::User=root")
        subprocess.run(["apt-get", "-q", *options, "download", *wanted], cwd=there, check=True, capture_output=True)
    arguments = f"src={folder / 'builds'}/ dest={SHARED}/ mode=0644 directory_mode=0755"
    process = site.popen(["ansible", "-i", site.inventory, site.name(1), "-m", "ansible.builtin.copy", "-a", arguments])
    text = site.finish(process)
    assert process.returncode == 0, text


def install_build(machines: Machines, number: int, name: str) -> None:
    """Install a build on a host."""
    machines.on(number, f"{INSTALL} {SHARED}/{name}/*.deb", seconds=900)


def installed_version(machines: Machines, number: int) -> str:
    """Return the version of the installed QEMU as Debian writes it."""
    return machines.on(number, f"dpkg-query -W -f '${{Version}}' {PACKAGES[0]}").strip()
