# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The identity of this host, according to its own files and its libvirt, and the migration traits of its QEMU."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import typing as t

from .._host_identity import create_host_id, find_ledger_id, read_host_id, read_machine_id
from .._libvirt.host import open_reader
from .._libvirt.interface import Host
from .._model.codec import JsonObject
from .._model.errors import KvmfleetError
from .._model.facts import FROM_AFAR, NOT_READABLE, NOT_REPORTED, TraitFacts
from .._model.libvirt_formats import is_local
from .._model.policies import TRAITS
from .._module import Phase, Result, require_local


def read_identity(uri: str, _work: JsonObject) -> Result:
    """Return C(identity) of this host. If its libvirt does not answer, C(host_uuid) is null, and C(libvirt_error) states why and what to do."""
    require_local(uri)
    host_uuid, problem = _read_host_uuid(uri)
    identity = {"host_id": read_host_id(), "machine_id": read_machine_id(), "hostname": socket.gethostname(), "host_uuid": host_uuid}
    return {"changed": False, "identity": {**identity, "ledger_id": find_ledger_id()}, "libvirt_error": problem}


def create_identity(uri: str, _work: JsonObject) -> Result:
    """Create the host's ID if it has none. Return C(host_id), and in C(changed) whether it was created now."""
    require_local(uri)
    host_id, made = create_host_id()
    return {"changed": made, "host_id": host_id}


def _read_host_uuid(uri: str) -> t.Tuple[t.Optional[str], t.Optional[str]]:
    try:
        with contextlib.closing(open_reader(uri)) as host:
            return host.host_uuid(), None
    except KvmfleetError as error:
        return None, f"{error.message} {error.next_step or 'Start libvirt there.'}"


IDENTITY_PHASES: t.Dict[str, Phase] = {"read": read_identity, "create": create_identity}

AUTO_CONVERGE = TRAITS["auto_converge"]
POST_COPY = TRAITS["post_copy"]

_FEATURES_SINCE = 2005000
# The first QEMU that opens /dev/userfaultfd, and the first libvirt that passes it to QEMU, whatever user QEMU runs as.
_DEVICE_SINCE = {"hypervisor": 8000000, "libvirt": 10001000}
# The first kernel with this sysctl; before it, every user may use userfaultfd.
_SYSCTL_SINCE = (5, 2)

_Answer = t.Tuple[t.Optional[bool], str]


def probe_traits(host: Host, root: str = "/") -> TraitFacts:
    """Return which traits the host has. Traits that only the host itself can check are unverified if it is queried remotely.

    :arg root: where the host's own files are.
    """
    versions = host.read_versions()
    answers = {AUTO_CONVERGE: _judge_version(versions), POST_COPY: _judge_version(versions)}
    if answers[POST_COPY][0]:
        answers[POST_COPY] = _probe_userfaultfd(host.emulator_uid(), versions, root if is_local(host.uri) else None)
    return TraitFacts(
        traits=tuple(trait for trait, (able, _why) in answers.items() if able),
        unverified={trait: why for trait, (able, why) in answers.items() if able is None},
        missing_traits={trait: why for trait, (able, why) in answers.items() if able is False},
    )


def _judge_version(versions: t.Mapping[str, int]) -> _Answer:
    found = versions.get("hypervisor", 0)
    able = found >= _FEATURES_SINCE
    return able, "" if able else f"It needs QEMU 2.5.0, and libvirt reports version number {found}."


def _probe_userfaultfd(uid: t.Optional[int], versions: t.Mapping[str, int], root: t.Optional[str]) -> _Answer:
    if uid == 0:
        return True, ""
    if root is None:
        return None, FROM_AFAR
    if _is_open_to_all(root):
        return True, ""
    if uid is None:
        return None, NOT_REPORTED
    handed_over = _is_handed_over(versions, root)
    if handed_over is None:
        return None, f"{NOT_READABLE} (/etc/libvirt/qemu.conf)"
    why = f"QEMU runs as user {uid}, which may not use userfaultfd: set vm.unprivileged_userfaultfd=1 (sysctl) on the host."
    return handed_over, "" if handed_over else why


def _is_open_to_all(root: str) -> bool:
    setting = _read_text(os.path.join(root, "proc/sys/vm/unprivileged_userfaultfd"))
    if setting is not None:
        return setting.strip() == "1"
    return _parse_kernel(_read_text(os.path.join(root, "proc/sys/kernel/osrelease")) or "") < _SYSCTL_SINCE


def _parse_kernel(release: str) -> t.Tuple[int, int]:
    """Return major and minor number; the highest if they are unknown, because then nothing is assumed to be allowed."""
    match = re.match(r"([0-9]{1,5})\.([0-9]{1,5})(?![0-9])", release)
    return (int(match.group(1)), int(match.group(2))) if match else (999, 0)


def _is_handed_over(versions: t.Mapping[str, int], root: str) -> t.Optional[bool]:
    """Whether libvirt gives QEMU /dev/userfaultfd; null if its configuration may not be read."""
    if any(versions.get(part, 0) < since for part, since in _DEVICE_SINCE.items()) or not os.path.exists(os.path.join(root, "dev/userfaultfd")):
        return False
    path = os.path.join(root, "etc/libvirt/qemu.conf")
    configuration = _read_text(path)
    if configuration is None:
        return None if _may_exist(path) else True
    namespaces, devices = _read_setting(configuration, "namespaces"), _read_setting(configuration, "cgroup_device_acl")
    return (namespaces is None or "mount" in namespaces) and (devices is None or "/dev/userfaultfd" in devices)


def _may_exist(path: str) -> bool:
    """Whether the file exists, or is in a folder that this user cannot search."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _read_setting(configuration: str, name: str) -> t.Optional[t.List[str]]:
    """Return a list of qemu.conf, which may go over several lines; null if it is not set."""
    uncommented = "\n".join(line for line in configuration.splitlines() if not line.lstrip().startswith("#"))
    found = re.search(rf"^\s*{name}\s*=\s*\[([^\]]*)\]", uncommented, re.MULTILINE)
    return None if found is None else re.findall(r"[\"']([^\"']*)[\"']", found.group(1))


def _read_text(path: str) -> t.Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None
