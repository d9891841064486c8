# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import Finding, host, judged, request


def of(kind: str, source: str, **facts: t.Any) -> Finding:
    return judged("networks", request(networks=[{"type": kind, "source": source}]), host(**facts))


@pytest.mark.parametrize(
    ("kind", "source"), [("network", "default"), ("bridge", "br0"), ("bridge", "virbr0"), ("direct", "eth0"), ("user", ""), ("vhostuser", "/run/sock")]
)
def test_what_is_there_passes_silently(kind: str, source: str) -> None:
    finding = of(kind, source)
    assert (finding.reason, finding.warnings) == (None, ())


@pytest.mark.parametrize(
    ("kind", "reason"), [("network", "It has no network br9."), ("bridge", "It has no bridge br9."), ("direct", "It has no network interface br9.")]
)
def test_what_is_missing_is_named(kind: str, reason: str) -> None:
    assert of(kind, "br9").reason == reason


def test_a_network_has_to_be_active_and_so_has_the_one_whose_bridge_is_wanted() -> None:
    networks = [{"name": "default", "active": False, "bridge": "virbr0"}]
    assert of("network", "default", networks=networks).reason == "Its network default is not active."
    assert of("bridge", "virbr0", networks=networks).reason == "It has no bridge virbr0."


def test_what_the_host_could_not_tell_is_a_warning() -> None:
    assert of("network", "x", networks=None).warnings == ("Whether kvm2 has the network x is not known.",)
    assert of("bridge", "br9", bridges=None).warnings
    assert of("bridge", "virbr0", bridges=None).warnings == ()
    assert of("direct", "eth9", interfaces=None).warnings


def test_two_interfaces_on_one_missing_bridge_are_one_reason() -> None:
    asked = request(networks=[{"type": "bridge", "source": "br9"}] * 2 + [{"type": "bridge", "source": "br8"}])
    assert judged("networks", asked, host()).reason == "It has no bridge br9. It has no bridge br8."
