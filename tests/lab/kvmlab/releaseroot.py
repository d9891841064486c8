# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The root folder of another Debian release: made once, kept for all labs, and never seen half made."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import tempfile
import typing as t

from . import machineapt, releases
from .commands import run
from .lock import locked
from .requirements import require_program

DEFAULT_CACHE = "/var/cache/kvmfleet-lab"
PACKAGES = (
    "bindfs",
    "iproute2",
    "libvirt-clients",
    "libvirt-daemon-driver-qemu",
    "libvirt-daemon-system",
    "openssh-client",
    "openssh-server",
    "python3-libvirt",
    "qemu-system-x86",
    "qemu-utils",
    "sudo",
)
# Services shall not be started in there, while packages are installed.
NO_SERVICES = "#!/bin/sh\nexit 101\n"
INSTALL = 'apt-get -q update && apt-get -q install -y --no-install-recommends "$@" && apt-get clean && rm -rf /var/lib/apt/lists/*'
# In mounts and processes of its own, which end with it however it ends.
ALONE = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc")
ENTER = 'root="$1"; shift; mount --rbind /dev "$root/dev" && mount -t proc proc "$root/proc" && exec chroot "$root" sh -ec "$@"'
SECONDS = 3600


def default_cache() -> str:
    return os.environ.get("KVMFLEET_LAB_CACHE") or DEFAULT_CACHE


def ensure(cache: pathlib.Path, release: str) -> pathlib.Path:
    """Return the root of a release, made where it is missing; that takes some minutes, and somebody who is making it is waited for.

    :raises LabError: debootstrap is missing, or it cannot be made.
    """
    root = cache.absolute() / releases.checked(release)
    with locked(root.parent):
        if not root.is_dir():
            make_root(root, release, INSTALL, *PACKAGES)
    return root


def make_root(root: pathlib.Path, release: str, script: str, *arguments: str) -> None:
    """Make the root of a release under another name, and rename it when it is whole.

    :arg script: what installs packages; a shell runs it in there, with the arguments.
    :raises LabError: debootstrap is missing, or it cannot be made; nothing of it is left then.
    """
    debootstrap = require_program("debootstrap", "a host of another release")
    uri = machineapt.mirror(releases.own())
    for left in root.parent.glob(f".{root.name}.*"):
        shutil.rmtree(left)
    print(f"lab: making {root} from {uri}; it takes some minutes, once.", file=sys.stderr, flush=True)
    new = pathlib.Path(tempfile.mkdtemp(prefix=f".{root.name}.", dir=root.parent))
    try:
        run(*ALONE, debootstrap, "--variant=minbase", release, str(new), uri, timeout=SECONDS)
        _install(new, release, uri, script, arguments)
        new.chmod(0o755)
        new.rename(root)
    except BaseException:
        shutil.rmtree(new)
        raise


def _install(new: pathlib.Path, release: str, uri: str, script: str, arguments: t.Sequence[str]) -> None:
    """Install what a host needs. With debootstrap's own list of packages the configuring of systemd would fail."""
    machineapt.teach(new, release, uri)
    policy = new / "usr/sbin/policy-rc.d"
    policy.write_text(NO_SERVICES)
    policy.chmod(0o755)
    run_inside(new, script, *arguments)
    machineapt.forget_secrets(new)


def run_inside(root: pathlib.Path, script: str, *arguments: str) -> None:
    """Run a shell script in a root, with mounts and processes of its own. Raises L(LabError) where a command of it fails."""
    environment = ("env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
    run(*ALONE, *environment, "sh", "-c", ENTER, "sh", str(root), script, "sh", *arguments, timeout=SECONDS)
