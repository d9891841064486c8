# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image of a release: made once by debootstrap, booted once, kept in the cache, and never seen half made."""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import shutil
import sys
import tempfile
import typing as t

from ...lab.kvmlab import machineapt, releaseroot, releases
from ...lab.kvmlab.commands import run
from ...lab.kvmlab.errors import LabError
from ...lab.kvmlab.lock import locked
from . import acceleration, alone, qemu
from .requirements import require_room

RECIPE = pathlib.Path(__file__).resolve().parent.parent / "recipe"
VERSION = 1
"""Raised where this module makes another image of the same recipe."""
DISK_GIB = 8
NEEDED_GIB = 5
KEPT = "srv/packages"
INSTALL = f"""
apt-get -q update
apt-get -q install -y --no-install-recommends $1
mkdir -p /{KEPT}
apt-get -q install -y --reinstall --download-only -o Dir::Cache::archives=/{KEPT} $2
rm -rf /{KEPT}/lock /{KEPT}/partial
apt-get clean
rm -rf /var/lib/apt/lists/*
"""
# The first boot: what libvirt and AppArmor find out once is on the disk afterwards, and the keys of this machine are not.
SEASON = """
virsh -q domcapabilities >/dev/null
# Of every emulator: a module that asks for them would wait for each.
virsh -q capabilities >/dev/null
systemctl -q stop libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirtd.service
rm -f /etc/ssh/ssh_host_*_key* /var/lib/systemd/random-seed
journalctl -q --rotate --vacuum-time=1s
sync
"""


def ensure_image(cache: pathlib.Path, release: str) -> pathlib.Path:
    """Return the folder of a release's image (C(disk.qcow2), C(vmlinuz), C(initrd)), made where it is missing; that takes some minutes.

    :raises LabError: it cannot be made; what was begun is removed.
    """
    folder = cache / f"image-{releases.checked(release)}-{recipe_digest(release)}"
    with locked(cache / f"making-{release}"):
        if not folder.is_dir():
            require_room(cache, NEEDED_GIB)
            root = _ensure_root(cache, release)
            _say(f"making {folder}; it takes some minutes, once.")
            with _new_folder(folder) as new:
                _make_disk(root, new)
                _season(new, acceleration.choose(cache, new))
    return folder


def recipe_digest(release: str) -> str:
    """Return what changes with everything that an image is made of, but for the versions of Debian's packages."""
    digest = hashlib.sha256(f"{VERSION} {release} {DISK_GIB} {INSTALL} {SEASON}".encode())
    for path in sorted(path for path in RECIPE.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(RECIPE)} {path.stat().st_mode & 0o111:o}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _ensure_root(cache: pathlib.Path, release: str) -> pathlib.Path:
    packages, kept = _listed("packages.txt"), _listed("reinstalled.txt")
    digest = hashlib.sha256(f"{packages} {kept} {INSTALL}".encode()).hexdigest()[:12]
    root = cache / f"root-{release}-{digest}"
    if not root.is_dir():
        releaseroot.make_root(root, release, INSTALL, " ".join(packages), " ".join(kept))
    return root


def _listed(name: str) -> t.List[str]:
    return [line for line in (RECIPE / name).read_text().splitlines() if line and not line.startswith("#")]


@contextlib.contextmanager
def _new_folder(folder: pathlib.Path) -> t.Iterator[pathlib.Path]:
    """Give a folder that gets its name when it is whole, and is removed otherwise."""
    for left in folder.parent.glob(f".{folder.name}.*"):
        qemu.kill_in(left)
        shutil.rmtree(left)
    new = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield new
        new.chmod(0o755)
        new.rename(folder)
    except BaseException:
        shutil.rmtree(new)
        raise


def _make_disk(root: pathlib.Path, new: pathlib.Path) -> None:
    tree = new / "tree"
    run("cp", "-a", "--reflink=auto", str(root), str(tree), timeout=600)
    run("cp", "-r", f"{RECIPE / 'files'}/.", str(tree))
    releaseroot.run_inside(tree, (RECIPE / "configure.sh").read_text())
    machineapt.forget_secrets(tree)
    for name, pattern in (("vmlinuz", "vmlinuz-*"), ("initrd", "initrd.img-*")):
        shutil.copy(next((tree / "boot").glob(pattern)), new / name)
    raw = new / "disk.raw"
    features = "lazy_itable_init=0,lazy_journal_init=0"
    run("mkfs.ext4", "-q", "-F", "-d", str(tree), "-E", features, str(raw), f"{DISK_GIB}G", timeout=600)
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(new / "disk.qcow2"), timeout=600)
    raw.unlink()
    shutil.rmtree(tree)


def _season(new: pathlib.Path, accelerator: str) -> None:
    """Boot the disk once, without any network."""
    with alone.booted(new, new, accelerator, "season") as agent:
        done = agent.run("/bin/sh", "-ec", SEASON)
        if done.code:
            raise LabError(f"The first boot of the image failed: {done.err.strip()}")


def _say(text: str) -> None:
    print(f"machines: {text}", file=sys.stderr, flush=True)
