# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host's libvirtd believes of its QEMU and processor: it reads that from a cache, which can be made to tell of an older one."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import time
import typing as t

from . import host as hosts
from .commands import run
from .errors import LabError, UsageError
from .layout import Lab

RESTART_SECONDS = 300
ATTEMPTS = 8


@dataclasses.dataclass(frozen=True)
class Less:
    """What shall be missing: C(version) of the QEMU that libvirtd believes to have, e.g. C(6.2.0); names of machine types and of processor features."""

    version: t.Optional[str] = None
    machines: t.Tuple[str, ...] = ()
    features: t.Tuple[str, ...] = ()


def believe(lab: Lab, host: str, less: Less) -> None:
    """Let the host's libvirtd believe in that QEMU from now on, or, where nothing shall be missing, in the one there is. Its guests run on.

    :raises UsageError: what shall be missing is not there anyway.
    """
    hosts.virsh(lab, host, "capabilities")
    folder = lab.host_folder(host) / "var-cache-libvirt/qemu/capabilities"
    for _attempt in range(ATTEMPTS):
        for path in folder.glob("*.xml"):
            path.unlink()
        _restart(lab, host)
        if less == Less() or _is_believed(lab, host, folder, less):
            return
    raise LabError(f"The libvirtd of {host} does not believe what its cache says.")


def _is_believed(lab: Lab, host: str, folder: pathlib.Path, less: Less) -> bool:
    """Edit the cache, and return whether the next libvirtd uses it. Now and then it does not, and asks QEMU again."""
    hosts.virsh(lab, host, "capabilities")
    path = next(path for path in folder.glob("*.xml") if "<arch>x86_64</arch>" in path.read_text())
    text = edited(path.read_text(), less)
    path.write_text(text)
    _restart(lab, host)
    hosts.virsh(lab, host, "domcapabilities")
    return path.exists() and path.read_text() == text


def edited(cache: str, less: Less) -> str:
    """Return the text of a cache without what shall be missing.

    :raises UsageError: it is not in there anyway.
    """
    if less.version:
        cache = _replaced(cache, r"(?<=<version>)\d+(?=</version>)", str(_number(less.version)), "a version")
    for name in less.machines:
        cache = _replaced(cache, rf"  <machine [^>]*\bname='{re.escape(name)}'[^>]*/>\n", "", f"the machine type {name}")
    for name in less.features:
        pattern = rf"(?<=<property name='{re.escape(name)}' type='boolean' value=')true'[^/]*"
        cache = _replaced(cache, pattern, "false'", f"the processor feature {name}")
    return cache


def _number(version: str) -> int:
    parts = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version)
    if not parts:
        raise UsageError(f"{version!r} is no version of QEMU: give one as 6.2.0.")
    major, minor, micro = map(int, parts.groups())
    return major * 1_000_000 + minor * 1000 + micro


def _replaced(text: str, pattern: str, by: str, what: str) -> str:
    new, count = re.subn(pattern, by, text)
    if not count:
        raise UsageError(f"The host does not have {what} anyway.")
    return new


def _restart(lab: Lab, host: str) -> None:
    """Restart libvirtd and wait for the new one."""
    before = _daemon(lab, host)
    hosts.signal_libvirtd(lab, host, "restart")
    limit = time.monotonic() + RESTART_SECONDS
    while _daemon(lab, host) in ("", before) or not hosts.libvirtd_answers(lab, host):
        if time.monotonic() > limit:
            raise LabError(f"libvirtd of {host} does not come back within {RESTART_SECONDS} s.")
        time.sleep(0.1)


def _daemon(lab: Lab, host: str) -> str:
    return run(*hosts.command_on(lab, host, "cat", "/run/libvirtd.pid"), check=False).strip()
