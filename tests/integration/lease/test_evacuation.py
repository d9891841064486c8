# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host without a BMC dies, and its guests are started by the role because its watchdog must have reset it.

The leases are real. The lab has no watchdog: the files of its kernel are laid over those of the host, and a shell runs the real test in the place of the
daemon. It has no systemd either, so that no boot guard is active; the scenario writes into the ledger that C(protect) saw one. On whole machines, all of this
is real.
"""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.watchdog import CLASS_FOLDER, CONFIG_FILE, MASKED_UNITS, TEST_FILE
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.watchdog_install import write_test
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import LeaseWatchdog, ProtectedWatchdog
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import eventually
from ansible_collections.kvmfleet.migration.tests.integration.support.leased import LeasedSite
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS

DEVICE, ATTRIBUTES = "/run/watchdog0", {"identity": "Lab watchdog", "state": "active", "timeout": "1", "nowayout": "1"}
PROGRAM = "usr/local/lib/kvmfleet/kvmfleet-lease.pyz"


def watch_host(site: LeasedSite, number: int) -> None:
    """Give a host the files of a watchdog, and what pings it."""
    folder = f"/run/class/{DEVICE.rpartition('/')[2]}"
    site.lab.on(number, "mkdir", "-p", folder, f"/{TEST_FILE.rpartition('/')[0]}")
    contents = {f"{folder}/{name}": value for name, value in ATTRIBUTES.items()}
    contents |= {DEVICE: "", f"/{CONFIG_FILE}": f"watchdog-device = {DEVICE}\ninterval = 1\n", f"/{TEST_FILE}": write_test("/usr/bin/python3", PROGRAM)}
    for path, content in contents.items():
        site.lab("exec", site.lab.host(number), "--", "tee", path, stdin=content)
    site.lab.on(number, "chmod", "755", f"/{TEST_FILE}")
    for unit in MASKED_UNITS:
        site.lab.on(number, "ln", "-sf", "/dev/null", f"/{unit}")
    site.lab.on(number, "mount", "--bind", "/run/class", f"/{CLASS_FOLDER}")
    daemon = f"exec 3>{DEVICE}; while /{TEST_FILE} test; do sleep 1; done"
    site.lab.on(number, "sh", "-c", f"setsid sh -c '{daemon}' >/dev/null 2>&1 </dev/null &")


def forget_watchdog(site: LeasedSite, number: int) -> None:
    site.lab.on(number, "rm", "-f", f"/{CONFIG_FILE}", f"/{TEST_FILE}", *(f"/{unit}" for unit in MASKED_UNITS))


def watchdog_of(site: LeasedSite, number: int) -> LeaseWatchdog | None:
    found = site.leases()[number].watchdog
    return found if isinstance(found, LeaseWatchdog) else None


def is_bound(site: LeasedSite, number: int) -> bool:
    watchdog = watchdog_of(site, number)
    return watchdog is not None and watchdog.bound


def note_boot_guard(site: LeasedSite, number: int) -> ProtectedWatchdog:
    """Write that the boot guard was active when the host was protected; return what was written."""
    found = site.ledger.read_host(site.identity(number))
    assert found is not None
    protected = found.host.protected
    assert protected
    seen = t.cast("ProtectedWatchdog", protected.watchdog)
    assert (seen.armed, seen.bound, seen.held_at_boot) == (True, True, False)
    written = replace(seen, held_at_boot=True)
    site.ledger.put_host(replace(found.host, protected=replace(protected, watchdog=written)), found.version)
    return written


@pytest.fixture
def watched(site: LeasedSite) -> t.Iterator[LeasedSite]:
    """Host 1 with a watchdog and a guest; afterwards it is on again, without both."""
    watch_host(site, 1)
    site.lab("guest", "web", "--host", site.lab.host(1), "--mib", "32", "--storage", "shared")
    yield site
    site.lab("up", "--hosts", str(len(HOSTS)))
    site.lab("rmguest", "web")
    forget_watchdog(site, 1)
    site.fencing(1, None)


@pytest.mark.long
def test_the_guests_of_a_dead_host_are_started_on_the_evidence_of_its_watchdog(watched: LeasedSite) -> None:
    site, name = watched, watched.name(1)
    eventually(lambda: is_bound(site, 1), "the lease names a watchdog that is bound to it")
    watchdog = watchdog_of(site, 1)
    assert watchdog is not None

    # A time that is too short is refused when the host is protected.
    site.fencing(1, {"watchdog_seconds": watchdog.reset_seconds - 1})
    code, text = site.playbook("protect", target="kvmfleet_hosts", protect_host_guard=False)
    assert code != 0, text
    assert "a watchdog shorter than its reset is no evidence" in " ".join(text.split())
    site.fencing(1, {"watchdog_seconds": watchdog.reset_seconds})
    site.protect()

    # A host that would start its guests again after the reset is not evacuated.
    site.lab("poweroff", site.lab.host(1))
    code, text = site.playbook("evacuate", source=name)
    assert code != 0, text
    assert f"{name} had no active boot guard when it was protected" in " ".join(text.split())
    assert "fencing_impossible" in text
    assert site.fleet()[2] | site.fleet()[3] == set()

    note_boot_guard(site, 1)
    begun = time.monotonic()
    code, text = site.playbook("evacuate", source=name)
    seconds = time.monotonic() - begun
    assert code == 0, text
    assert f"Waiting until the watchdog of {name} must have reset it" in " ".join(text.split())
    assert site.fleet()[2] | site.fleet()[3] == {"web"}
    (record,) = site.records()
    (evidence,) = [one for one in record["evidence"] if one["kind"] == "watchdog"]
    assert evidence["action"] == "reset"
    assert "(2 of the 2 needed in a fleet of 3)" in evidence["output"]
    print(f"evacuated in {seconds:.1f} s: {evidence['output']}")
