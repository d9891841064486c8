# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two builds of QEMU from the archive of this machine's release, on the shared storage of the fleet, which cannot reach that archive.

The newest one is a repository of its own there, from which the machines can upgrade.
"""

from __future__ import annotations

import hashlib
import lzma
import pathlib
import re
import subprocess
import tarfile

from .machines import Machines
from .site import Site

# They depend on each other in the same version.
PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "qemu-utils")
# No host has it installed, and the tasks of an operator may name it.
ONLY_OFFERED = ("qemu-block-extra",)
# It is for every architecture, so that it has no mark of a rebuild.
COMMON_PACKAGE = "qemu-system-data"
REBUILD = re.compile(r"\+b\d+$")
SHARED = "/srv/images/builds"
OLD, NEW = "old", "new"
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends --allow-downgrades"
# Nothing else: the archive of the release cannot be reached from the machines.
USE_REPOSITORY = f"rm -rf /etc/apt/sources.list.d/*; echo 'deb [trusted=yes] file:{SHARED}/{NEW} ./' >/etc/apt/sources.list"


def list_versions() -> list[str]:
    """Return the versions of QEMU in the archive, the newest first. Fails unless there are two."""
    done = subprocess.run(["apt-cache", "madison", PACKAGES[0]], capture_output=True, text=True, check=True)
    versions = list(dict.fromkeys(line.split("|")[1].strip() for line in done.stdout.splitlines()))
    assert len(versions) > 1, f"The archive of this machine has one build of {PACKAGES[0]} only: {versions}. Run apt-get update."
    return versions


def share_builds(site: Site, folder: pathlib.Path) -> None:
    """Download the oldest and the newest build, and put them on the shared storage."""
    versions = list_versions()
    _download(folder / "builds" / OLD, versions[-1], PACKAGES)
    _download(folder / "builds" / NEW, versions[0], (*PACKAGES, *ONLY_OFFERED))
    write_index(folder / "builds" / NEW)
    # Under emulation, each file that Ansible copies takes half a minute.
    archive = folder / "builds.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(folder / "builds", ".")
    process = site.popen(["ansible", "-i", site.inventory, site.name(1), "-m", "ansible.builtin.copy", "-a", f"src={archive} dest={SHARED}.tar mode=0644"])
    text = site.finish(process)
    assert process.returncode == 0, text
    site.machines.on(1, f"mkdir {SHARED}; tar -xf {SHARED}.tar -C {SHARED}; rm {SHARED}.tar")


def _download(folder: pathlib.Path, version: str, packages: tuple[str, ...]) -> None:
    folder.mkdir(parents=True)
    wanted = [f"{package}={REBUILD.sub('', version) if package == COMMON_PACKAGE else version}" for package in packages]
    # The user of apt cannot write to a folder of root.
    subprocess.run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *wanted], cwd=folder, check=True, capture_output=True)
    for package in folder.iterdir():
        # In an index, a percent sign would stand for another character.
        package.rename(folder / package.name.replace("%3a", "_"))


def write_index(folder: pathlib.Path) -> None:
    """Make a repository of a folder of packages."""
    entries = []
    for package in sorted(folder.glob("*.deb")):
        fields = subprocess.run(["dpkg-deb", "--field", str(package)], capture_output=True, text=True, check=True).stdout
        content = package.read_bytes()
        entries.append(f"{fields}Filename: ./{package.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n")
    # The form that apt tries first.
    (folder / "Packages.xz").write_bytes(lzma.compress("\n".join(entries).encode()))


def install_old_build(machines: Machines, number: int) -> None:
    """Install the old build on a host, whose apt knows the repository of the newest one afterwards."""
    machines.on(number, f"{USE_REPOSITORY}; {INSTALL} {SHARED}/{OLD}/*.deb", seconds=1800)


def installed_version(machines: Machines, number: int) -> str:
    """Return the version of the installed QEMU as Debian writes it."""
    return machines.on(number, f"dpkg-query -W -f '${{Version}}' {PACKAGES[0]}").strip()
