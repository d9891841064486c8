# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a host's QEMU can do for a move (spec 4), by probes: versions as libvirt tells them, and userfaultfd as QEMU's user may use it."""

from __future__ import annotations

import os
import re
import typing as t

from .._hypervisor.uri import is_local
from .._migration.policy import TRAITS

AUTO_CONVERGE = TRAITS["auto_converge"]
POST_COPY = TRAITS["post_copy"]

_FEATURES_SINCE = 2005000
# QEMU that opens /dev/userfaultfd, and libvirt that hands it to QEMU whatever its user is.
_DEVICE_SINCE = {"hypervisor": 8000000, "libvirt": 10001000}
# The sysctl that this kernel was the first to have; before it everybody may.
_SYSCTL_SINCE = (5, 2)

Traits = t.Dict[str, t.Any]
_Answer = t.Tuple[t.Optional[bool], str]


class ProbedHost(t.Protocol):
    """A host that can say what its QEMU is."""

    uri: str

    def versions(self) -> t.Dict[str, int]:
        """C(libvirt) and C(hypervisor) as libvirt's numbers."""

    def emulator_uid(self) -> t.Optional[int]:
        """The user ID that QEMU runs as, null where libvirt does not tell it."""


def host_traits(host: ProbedHost, root: str = "/") -> Traits:
    """Return C(traits), C(unverified) (what only the host itself could tell, and it was asked from afar) and C(missing_traits) with reasons.

    :arg root: where the host's own files are.
    """
    versions = host.versions()
    answers = {AUTO_CONVERGE: _by_version(versions), POST_COPY: _by_version(versions)}
    if answers[POST_COPY][0]:
        answers[POST_COPY] = _userfaultfd(host.emulator_uid(), versions, root if is_local(host.uri) else None)
    return {
        "traits": [trait for trait, (able, _why) in answers.items() if able],
        "unverified": [trait for trait, (able, _why) in answers.items() if able is None],
        "missing_traits": {trait: why for trait, (able, why) in answers.items() if able is False},
    }


def _by_version(versions: t.Mapping[str, int]) -> _Answer:
    found = versions.get("hypervisor", 0)
    able = found >= _FEATURES_SINCE
    return able, "" if able else f"It needs QEMU 2.5.0, and libvirt reports version number {found}."


def _userfaultfd(uid: t.Optional[int], versions: t.Mapping[str, int], root: t.Optional[str]) -> _Answer:
    if uid == 0:
        return True, ""
    if root is None:
        return None, ""
    if _everybody_may(root):
        return True, ""
    if uid is None:
        return None, ""
    handed_over = _is_handed_over(versions, root)
    why = f"QEMU runs as user {uid}, who may not use userfaultfd: set vm.unprivileged_userfaultfd=1 (sysctl) on the host."
    return handed_over, "" if handed_over else why


def _everybody_may(root: str) -> bool:
    setting = _read(os.path.join(root, "proc/sys/vm/unprivileged_userfaultfd"))
    if setting is not None:
        return setting.strip() == "1"
    return _kernel_of(_read(os.path.join(root, "proc/sys/kernel/osrelease")) or "") < _SYSCTL_SINCE


def _kernel_of(release: str) -> t.Tuple[int, int]:
    """Return major and minor number; the highest where they cannot be told, for then nothing is known to be allowed."""
    match = re.match(r"([0-9]{1,5})\.([0-9]{1,5})(?![0-9])", release)
    return (int(match.group(1)), int(match.group(2))) if match else (999, 0)


def _is_handed_over(versions: t.Mapping[str, int], root: str) -> t.Optional[bool]:
    """Whether libvirt gives QEMU /dev/userfaultfd; null where its configuration may not be read."""
    if any(versions.get(part, 0) < since for part, since in _DEVICE_SINCE.items()) or not os.path.exists(os.path.join(root, "dev/userfaultfd")):
        return False
    path = os.path.join(root, "etc/libvirt/qemu.conf")
    configuration = _read(path)
    if configuration is None:
        return None if os.path.exists(path) else True
    namespaces, devices = _list_of(configuration, "namespaces"), _list_of(configuration, "cgroup_device_acl")
    return (namespaces is None or "mount" in namespaces) and (devices is None or "/dev/userfaultfd" in devices)


def _list_of(configuration: str, name: str) -> t.Optional[t.List[str]]:
    """Return a list of qemu.conf, which may go over several lines; null where it is not set."""
    uncommented = "\n".join(line for line in configuration.splitlines() if not line.lstrip().startswith("#"))
    found = re.search(rf"^\s*{name}\s*=\s*\[([^\]]*)\]", uncommented, re.MULTILINE)
    return None if found is None else re.findall(r"[\"']([^\"']*)[\"']", found.group(1))


def _read(path: str) -> t.Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None
