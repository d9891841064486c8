# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, ShapeError, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DomainRequest
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f


def test_facts_are_encoded_unchanged_including_unknown_keys() -> None:
    domain = {**f.domain("web1", hugepages=[{"size_kib": None, "mib": 1024}]), "later": [1]}
    facts = {**f.host("kvm1", domains=[domain], pools=None), "received": "2026-11-21T03:00:00.000Z"}
    assert json.dumps(encode(decode(HostFacts, facts)), sort_keys=True) == json.dumps(facts, sort_keys=True)


def test_a_fact_of_another_form_counts_as_absent() -> None:
    facts = {**f.host("kvm1"), "pools": [{"path": "/srv"}]}
    read = decode(HostFacts, facts)
    assert read.pools is ABSENT
    assert read.mounts
    assert encode(read) == facts


def test_a_domain_is_found_with_what_it_needs() -> None:
    read = decode(HostFacts, f.host("kvm1", domains=[f.domain("web1", 2048)]))
    domain = read.find_domain(f.uuid_of("web1"))
    assert domain
    assert domain.needs
    assert (domain.name, domain.needs.memory_mib, read.find_domain(f.uuid_of("web2"))) == ("web1", 2048, None)


@pytest.mark.parametrize("key", ["memory_mib", "vcpus"])
def test_a_request_without_memory_or_vcpus_is_refused_by_name(key: str) -> None:
    with pytest.raises(ShapeError) as caught:
        decode(DomainRequest, {**f.request(), key: 0}, "request")
    assert (caught.value.path, caught.value.found) == (f"request.{key}", 0)


def test_a_priority_may_be_negative() -> None:
    assert decode(DomainRequest, f.request(priority=-5)).priority == -5


def test_the_load_is_read_and_a_signal_of_another_form_counts_as_absent() -> None:
    load = {"cpu_pressure": 0.25, "memory_pressure": None, "cpu_used_share": "much", "memory_used_mib": 4096, "interval_seconds": 300}
    domain = {**f.domain("web1"), "load": {"cpu_cores_used": 1.5, "disk_bytes_per_second": 0, "later": 1}}
    facts = {**f.host("kvm1", domains=[domain]), "load": load}
    read = decode(HostFacts, facts)
    assert read.load
    assert (read.load.cpu_pressure, read.load.memory_pressure, read.load.cpu_used_share, read.load.io_pressure) == (0.25, None, ABSENT, ABSENT)
    guest = read.find_domain(f.uuid_of("web1"))
    assert guest
    assert guest.load
    assert (guest.load.cpu_cores_used, guest.load.available_in_guest_mib) == (1.5, ABSENT)
    assert encode(read) == facts
