# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The hardware watchdog of a host, as the kernel shows it, and whether it resets the host when the host has lost its lease.

The watchdog daemon of the distribution pings the device, and asks a test of ours before it goes on: see C(watchdog_install).
"""

from __future__ import annotations

import json
import os
import typing as t

from .._model.clock import BootMoment, boot_moment, read_moment
from .._model.errors import Internal
from .._model.leases import LeaseWatchdog, ProtectedWatchdog
from .._systemd import PROGRAM_FOLDER
from .config import CONFIG_FILE as LEASE_CONFIG_FILE
from .config import read_config as read_lease_config

CLASS_FOLDER = "sys/class/watchdog"
CONFIG_FILE = "etc/kvmfleet/watchdog.conf"
MASKED_UNITS = ("etc/systemd/system/watchdog.service", "etc/systemd/system/wd_keepalive.service")
"""The distribution's own units. Either would ping the device without our test when our daemon has ended."""
TEST_FOLDER = f"{PROGRAM_FOLDER}/watchdog.d"
TEST_FILE = f"{TEST_FOLDER}/kvmfleet-lease"
TESTED_FILE = "run/kvmfleet/lease-tested"
"""When the daemon ran the test last, and which process the daemon is. The test writes it once the host has had a lease in this boot."""
SOFTDOG = "Software Watchdog"

ASK_SECONDS = 4
"""The limit for the program that asks the peers."""
TEST_SECONDS = ASK_SECONDS + 1
"""The limit for the whole test, after which the daemon kills it."""
_KILL_SECONDS = TEST_SECONDS + 2
"""The daemon counts whole seconds, so a test that it kills may have taken so long."""


def read_watchdog(root: str = "/", grace: t.Optional[int] = None) -> t.Optional[LeaseWatchdog]:
    """Return the watchdog to which the lease of this host is bound, or was to be; null if the host has none. Reads files only.

    :arg grace: of the lease, for a caller that knows its configuration; null to read it.
    """
    config, grace = read_config(root), _read_grace(root) if grace is None else grace
    device, interval = config.get("watchdog-device", ""), config.get("interval", "")
    identity, timeout = read_attribute(root, device, "identity"), read_attribute(root, device, "timeout")
    if not (device and identity and interval.isdecimal() and timeout.isdecimal()) or grace is None:
        return None
    has_test = os.access(os.path.join(root, TEST_FILE), os.X_OK)
    is_tested = has_test and is_armed(root, device) and _is_tested(root, device, int(interval))
    return LeaseWatchdog(
        device=device,
        identity=identity,
        timeout_seconds=int(timeout),
        nowayout=read_attribute(root, device, "nowayout") == "1",
        bound=is_tested and is_hardware(identity) and all(is_masked(root, unit) for unit in MASKED_UNITS),
        reset_seconds=compute_reset_seconds(int(timeout), int(interval), grace),
    )


def read_protected_watchdog(held_at_boot: bool, root: str = "/") -> t.Optional[ProtectedWatchdog]:
    """Return what C(protect) records of the watchdog in this boot; null if the host has none.

    :arg held_at_boot: whether the boot guard holds the next boot in any case.
    """
    found = read_watchdog(root)
    if found is None:
        return None
    return ProtectedWatchdog(
        boot_id=boot_moment().boot_id,
        held_at_boot=held_at_boot,
        armed=is_armed(root, found.device),
        device=found.device,
        identity=found.identity,
        timeout_seconds=found.timeout_seconds,
        nowayout=found.nowayout,
        bound=found.bound,
        reset_seconds=found.reset_seconds,
    )


def choose_interval(timeout_seconds: int) -> int:
    """Return the pause between two tests: a fifth of the time of the device, in seconds."""
    return max(timeout_seconds // 5, 1)


def compute_reset_seconds(timeout_seconds: int, interval_seconds: int, grace: int) -> int:
    """Return the longest time between the end of the lease and the reset.

    The host runs on for a grace. A test that began just before its end permits the host to run, and takes as long as the daemon lets it, which counts whole
    seconds: two more. The next one begins after a pause, takes until the limit for asking the peers, and its answer is read after another pause. Then the
    daemon, which may be busy with writing to a storage that does not answer, pings no more: the device resets the host. Once in this time, the host may stall
    for as long as the device tolerates it. One second is for a device that counts in steps.

    :arg timeout_seconds: of the device.
    :arg interval_seconds: the pause between two tests.
    :arg grace: see L(grace_seconds).
    """
    return grace + _KILL_SECONDS + interval_seconds + ASK_SECONDS + interval_seconds + 2 * timeout_seconds + 1


def list_devices(root: str = "/") -> t.Dict[str, str]:
    """Return what each watchdog of the host calls itself, by its device, e.g. C(/dev/watchdog0)."""
    try:
        names = sorted(os.listdir(os.path.join(root, CLASS_FOLDER)))
    except OSError:
        return {}
    return {f"/dev/{name}": read_attribute(root, f"/dev/{name}", "identity") for name in names}


def is_hardware(identity: str) -> bool:
    """Whether a device is no program in the kernel that it should reset."""
    return identity not in ("", SOFTDOG)


def is_armed(root: str, device: str) -> bool:
    """Whether a device counts."""
    return read_attribute(root, device, "state") == "active"


def is_masked(root: str, unit: str) -> bool:
    """Whether systemd never starts the unit of that path."""
    path = os.path.join(root, unit)
    return os.path.islink(path) and os.readlink(path) == "/dev/null"


def read_config(root: str = "/") -> t.Dict[str, str]:
    """Return the options of the daemon, of each the last one; empty without its file."""
    try:
        with open(os.path.join(root, CONFIG_FILE), encoding="utf-8") as stream:
            lines = stream.read().splitlines()
    except (OSError, ValueError):
        return {}
    pairs = (line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, _equals, value in pairs}


def _read_grace(root: str) -> t.Optional[int]:
    """Return the grace of a host whose lease has ended; null for a host without a lease."""
    try:
        return read_lease_config(os.path.join(root, LEASE_CONFIG_FILE.lstrip("/"))).grace_seconds
    except Internal:
        return None


def _is_tested(root: str, device: str, interval: int) -> bool:
    """Whether the process that pings the device has asked for the lease lately."""
    noted = _read_test(root)
    elapsed = boot_moment().seconds_since(noted) if noted else None
    if noted is None or elapsed is None or not 0 <= elapsed <= 2 * (_KILL_SECONDS + interval):
        return False
    return _has_open(root, noted.extra.get("daemon"), device)


def has_been_tested(root: str = "/") -> bool:
    """Whether the test has found in this boot that the host has had its lease. A note that cannot be read counts: a boot begins without one."""
    noted = _read_test(root)
    if noted is None:
        return os.path.exists(os.path.join(root, TESTED_FILE))
    return noted.boot_id == boot_moment().boot_id


def _read_test(root: str) -> t.Optional[BootMoment]:
    """Return when the test was run last, with the process that ran it in C(daemon) of its extra keys."""
    try:
        with open(os.path.join(root, TESTED_FILE), encoding="utf-8") as stream:
            return read_moment(json.load(stream))
    except (OSError, ValueError):
        return None


def list_holders(root: str, device: str) -> t.List[int]:
    """Return the processes that have the device open; there is at most one, but for the moment in which it is handed over."""
    try:
        processes = [int(name) for name in os.listdir(os.path.join(root, "proc")) if name.isdecimal()]
    except OSError:
        return []
    return [process for process in processes if _has_open(root, process, device)]


def _has_open(root: str, process: object, device: str) -> bool:
    """Whether a process has the device open. No two processes can at once."""
    if not isinstance(process, int):
        return False
    folder = os.path.join(root, f"proc/{process}/fd")
    # The kernel has a second, older name for the first device, which programs such as sbd use.
    names = (device, "/dev/watchdog") if device == "/dev/watchdog0" else (device,)
    try:
        return any(os.readlink(os.path.join(folder, name)) in names for name in os.listdir(folder))
    except OSError:  # it has ended
        return False


def read_attribute(root: str, device: str, name: str) -> str:
    """Return an attribute of a device as the kernel shows it; empty if there is none."""
    try:
        with open(os.path.join(root, CLASS_FOLDER, os.path.basename(device), name), encoding="ascii", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""
