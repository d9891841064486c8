# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a host's hardware watchdog counts, in a tree that has the files of the kernel and of the daemon."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import watchdog as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.config import LeaseConfig, LeasePeer
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import LeaseWatchdog, ProtectedWatchdog

PEER = LeasePeer("one", "kvm1", ("10.0.0.11",), 16516, False)
BOUND = LeaseWatchdog("/dev/watchdog0", "i6300ESB timer", 10, nowayout=True, bound=True, reset_seconds=44)
CONFIG = LeaseConfig("one", "kvm1", "1", ("10.0.0.1:2379",), "/fleet/", False, "lease-kvm1", "secret", 15, 3, 16516, False, (PEER,))
CLASS = "sys/class/watchdog/watchdog0"
DAEMON = 4711


class Root:
    """The tree of a host whose watchdog is bound; a test then changes one thing."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        for name, value in {"identity": "i6300ESB timer", "timeout": "10", "nowayout": "1", "state": "active"}.items():
            self.write(f"{CLASS}/{name}", value)
        self.write(m.CONFIG_FILE, "# a comment = nothing\nwatchdog-device = /dev/watchdog0\n\ninterval=2\n")
        self.write("etc/kvmfleet/lease.json", json.dumps(encode(CONFIG)))
        self.write(m.TEST_FILE, "#!/bin/sh")
        (path / m.TEST_FILE).chmod(0o755)
        for unit in m.MASKED_UNITS:
            self.link(unit, "/dev/null")
        self.link(f"proc/{DAEMON}/fd/3", "/dev/watchdog0")
        self.ask()

    def write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text + "\n")

    def link(self, name: str, target: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).symlink_to(target)

    def remove(self, name: str) -> None:
        (self.path / name).unlink()

    def ask(self, seconds_ago: float = 0.0, **more: t.Any) -> None:
        now = boot_moment()
        self.write(m.TESTED_FILE, json.dumps({"boot_id": now.boot_id, "seconds": now.seconds - seconds_ago, "daemon": DAEMON, **more}))

    def read(self) -> t.Optional[LeaseWatchdog]:
        return m.read_watchdog(str(self.path))


@pytest.fixture
def root(tmp_path: pathlib.Path) -> Root:
    return Root(tmp_path)


def test_a_bound_watchdog(root: Root) -> None:
    assert root.read() == BOUND


def test_what_protect_records_is_of_this_boot(root: Root) -> None:
    seen = m.read_protected_watchdog(held_at_boot=True, root=str(root.path))
    assert seen == ProtectedWatchdog(boot_moment().boot_id, True, True, "/dev/watchdog0", "i6300ESB timer", 10, True, True, 44)
    root.write(f"{CLASS}/state", "inactive")
    seen = m.read_protected_watchdog(held_at_boot=False, root=str(root.path))
    assert seen
    assert (seen.held_at_boot, seen.armed, seen.bound) == (False, False, False)


@pytest.mark.parametrize("file", [m.CONFIG_FILE, "etc/kvmfleet/lease.json", f"{CLASS}/identity", f"{CLASS}/timeout"])
def test_a_host_without_a_binding_or_without_its_device_has_no_watchdog(root: Root, file: str) -> None:
    root.remove(file)
    assert root.read() is None
    assert m.read_protected_watchdog(held_at_boot=True, root=str(root.path)) is None


def test_a_test_may_take_its_time(root: Root) -> None:
    root.ask(seconds_ago=17)
    assert root.read() == BOUND


@pytest.mark.parametrize(("file", "text"), [(f"{CLASS}/timeout", "soon"), (m.CONFIG_FILE, "watchdog-device = /dev/watchdog0\ninterval = soon")])
def test_a_time_that_is_no_number_is_no_watchdog(root: Root, file: str, text: str) -> None:
    root.write(file, text)
    assert root.read() is None


def _unbind(root: Root, why: str) -> None:
    if why == "a program in the kernel":
        root.write(f"{CLASS}/identity", "Software Watchdog")
    elif why == "not armed":
        root.write(f"{CLASS}/state", "inactive")
    elif why == "no test yet":
        root.remove(m.TESTED_FILE)
    elif why == "the test was not asked lately":
        root.ask(seconds_ago=19)
    elif why == "a test of another boot":
        root.ask(boot_id="2b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a02")
    elif why == "a test from the future":
        root.ask(seconds_ago=-60)
    elif why == "a test that a person ran":
        root.ask(daemon=1)
    elif why == "a test that does not say who ran it":
        root.ask(daemon=None)
    elif why == "the daemon could not open the device":
        root.remove(f"proc/{DAEMON}/fd/3")
    elif why == "garbage":
        root.write(m.TESTED_FILE, "[")
    else:
        root.remove(why)


@pytest.mark.parametrize(
    "why",
    [
        "a program in the kernel",
        "not armed",
        "no test yet",
        "the test was not asked lately",
        "a test of another boot",
        "a test from the future",
        "a test that a person ran",
        "a test that does not say who ran it",
        "the daemon could not open the device",
        "garbage",
        m.TEST_FILE,
        *m.MASKED_UNITS,
    ],
)
def test_anything_that_leaves_a_doubt_unbinds(root: Root, why: str) -> None:
    _unbind(root, why)
    found = root.read()
    assert found
    assert not found.bound


@pytest.mark.parametrize(
    ("device", "opened", "holds"),
    [
        ("/dev/watchdog0", "/dev/watchdog0", True),
        # The older name that the first device has too.
        ("/dev/watchdog0", "/dev/watchdog", True),
        ("/dev/watchdog1", "/dev/watchdog", False),
        ("/dev/watchdog1", "/dev/watchdog1", True),
        ("/dev/watchdog0", "/dev/null", False),
    ],
)
def test_a_process_holds_the_device_that_it_has_open(root: Root, device: str, opened: str, holds: bool) -> None:
    root.link("proc/815/fd/4", opened)
    root.write("proc/uptime", "1 1")
    ours = [DAEMON] if device == "/dev/watchdog0" else []
    assert sorted(m.list_holders(str(root.path), device)) == sorted([*ours, *([815] if holds else [])])


def test_a_host_has_been_tested_in_this_boot(root: Root) -> None:
    assert m.has_been_tested(str(root.path))
    root.write(m.TESTED_FILE, "[")
    assert m.has_been_tested(str(root.path))
    root.ask(boot_id="2b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a02")
    assert not m.has_been_tested(str(root.path))
    root.remove(m.TESTED_FILE)
    assert not m.has_been_tested(str(root.path))


def test_a_unit_that_is_linked_elsewhere_is_not_masked(root: Root) -> None:
    root.remove(m.MASKED_UNITS[1])
    root.link(m.MASKED_UNITS[1], "/lib/systemd/system/wd_keepalive.service")
    found = root.read()
    assert found
    assert not found.bound


def test_nowayout_is_told_as_it_is(root: Root) -> None:
    root.write(f"{CLASS}/nowayout", "0")
    found = root.read()
    assert found
    assert (found.bound, found.nowayout) == (True, False)


def test_the_time_until_the_reset_grows_with_the_device() -> None:
    """A grace of 8 s, tests of at most 7 and 4 s, a pause after each, twice the device, and 1 s of rounding."""
    assert [m.choose_interval(seconds) for seconds in (3, 5, 10, 60)] == [1, 1, 2, 12]
    assert [m.compute_reset_seconds(seconds, m.choose_interval(seconds), 8) for seconds in (5, 10, 60)] == [32, 44, 164]


def test_the_devices_of_a_host(root: Root) -> None:
    root.write("sys/class/watchdog/watchdog1/identity", "Software Watchdog")
    found = m.list_devices(str(root.path))
    assert found == {"/dev/watchdog0": "i6300ESB timer", "/dev/watchdog1": "Software Watchdog"}
    assert [device for device, identity in found.items() if m.is_hardware(identity)] == ["/dev/watchdog0"]
    assert m.list_devices(str(root.path / "nowhere")) == {}
