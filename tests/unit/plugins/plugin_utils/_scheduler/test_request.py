# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import re
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import check_host
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import Request, f, fleet, host, request, uuid_of

SMALL = {"memory_mib": 256, "vcpus": 1}


def test_a_request_is_read_and_written_back() -> None:
    needs = f.request(priority=3, drain="shutdown", labels=["ssd"])
    asked = Request.from_needs(json.loads(json.dumps(needs)), "u", "web1", "kvm1", "h")
    assert (asked.uuid, asked.name, asked.source, asked.source_uuid, asked.memory_mib, asked.vcpus) == ("u", "web1", "kvm1", "h", 1024, 1)
    assert (asked.priority, asked.needs.drain, asked.labels) == (3, "shutdown", {"ssd"})
    assert asked.as_json() == needs


def test_a_saved_request_has_its_own_uuid_and_name() -> None:
    asked = Request.from_needs({**SMALL, "uuid": "u", "name": "web1"})
    assert (asked.uuid, asked.name, asked.source) == ("u", "web1", "")
    assert Request.from_needs(SMALL).name == "The domain"


def test_copied_disks_are_kept_in_the_request_of_a_record() -> None:
    assert Request.from_needs(SMALL, copied={"vda": 5}).as_json() == {**SMALL, "copied_disk_bytes": {"vda": 5}}


def test_missing_keys_of_a_request_require_nothing() -> None:
    asked = Request.from_needs(SMALL, "u", "web1", "kvm1", uuid_of("kvm1"))
    assert check_host(asked, host(), fleet(host())).warnings == ()
    assert check_host(asked, host(), fleet(host())).passed


def test_pinned_cpus_and_numa_bindings_are_read() -> None:
    asked = request(
        memory_mib=3000,
        pinning={"vcpus": {"0": [2], "1": [3, 4], "2": []}, "emulator": [0], "iothreads": {"1": [7, 8]}},
        numa={"mode": "strict", "nodeset": [0, 1], "cells": [{"id": 0, "memory_mib": 1000, "nodeset": None}, {"id": 1, "memory_mib": 2000, "nodeset": [1]}]},
    )
    assert asked.pinned_cpus == {0, 2, 3, 4, 7, 8}
    assert asked.dedicated_cpus == {2}
    assert asked.bindings == (({0, 1}, 1000), ({1}, 2000))


@pytest.mark.parametrize("mode", [None, "preferred"])
def test_a_cell_is_bound_by_its_own_mode(mode: str | None) -> None:
    cells = [{"id": 0, "memory_mib": 1000, "nodeset": None}, {"id": 1, "memory_mib": 2000, "nodeset": [1], "mode": "strict"}]
    assert request(memory_mib=3000, numa={"mode": mode, "nodeset": [0, 1] if mode else [], "cells": cells}).bindings == (({1}, 2000),)
    loose = [{"id": 0, "memory_mib": 3000, "nodeset": [1], "mode": "preferred"}]
    assert request(memory_mib=3000, numa={"mode": "strict", "nodeset": [0, 1], "cells": loose}).bindings == ()


WRONG: list[tuple[t.Any, str]] = [
    (None, "request is None."),
    ([], "request is []."),
    ("web1", "request is 'web1'."),
    ({}, "The request has no memory_mib."),
    ({"memory_mib": 1}, "The request has no vcpus."),
    ({**SMALL, "memory_mib": -1}, "request.memory_mib is -1."),
    ({**SMALL, "memory_mib": 0}, "request.memory_mib is 0."),
    ({**SMALL, "memory_mib": True}, "request.memory_mib is True."),
    ({**SMALL, "memory_mib": 1.5}, "request.memory_mib is 1.5."),
    ({**SMALL, "memory_mib": 10**30}, "request.memory_mib is"),
    ({**SMALL, "vcpus": "2"}, "request.vcpus is '2'."),
    ({**SMALL, "group": {"name": "web", "policy": "together"}}, "In the request: The group's policy is 'together'."),
    ({**SMALL, "group": {"policy": "affinity"}}, "request.group has no name."),
    ({**SMALL, "group": "web"}, "request.group is 'web'."),
    ({**SMALL, "group": {"name": "web", "policy": "affinity", "max_per_host": 0}}, "request.group.max_per_host is 0."),
    ({**SMALL, "labels": "ssd"}, "request.labels is 'ssd'."),
    ({**SMALL, "priority": "high"}, "request.priority is 'high'."),
    ({**SMALL, "drain": "kill"}, "In the request: drain is 'kill'."),
    ({**SMALL, "disks": [{"source": "/a"}]}, "request.disks[0] has no target."),
    ({**SMALL, "disks": [{"target": "vda", "bytes": -1}]}, "request.disks[0].bytes is -1."),
    ({**SMALL, "disks": {"vda": 1}}, "request.disks is {'vda': 1}."),
    ({**SMALL, "networks": [{"type": 3}]}, "request.networks[0].type is 3."),
    ({**SMALL, "pinning": {"vcpus": {"0": ["2"]}}}, "request.pinning.vcpus.0[0] is '2'."),
    ({**SMALL, "numa": {"cells": [{"id": 0}]}}, "request.numa.cells[0] has no memory_mib."),
    ({**SMALL, "hugepages": [{"size_kib": 0, "mib": 2}]}, "request.hugepages[0].size_kib is 0."),
    ({**SMALL, "cpu": {"features": ["aes"]}}, "request.cpu.features is ['aes']."),
    ({**SMALL, "devices": [{"address": "x"}]}, "request.devices[0] has no kind."),
    ({**SMALL, "hypervisor": "7.2"}, "request.hypervisor is '7.2'."),
]


@pytest.mark.parametrize(("needs", "words"), WRONG)
def test_an_invalid_request_is_refused_with_a_message(needs: t.Any, words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Request.from_needs(needs)
    assert str(caught.value).startswith(words)
    assert re.search(r" (Give|Use) ", str(caught.value))


@pytest.mark.parametrize("copied", [[1], {"vda": -1}, {"vda": None}, {"vda": True}])
def test_invalid_sizes_of_copied_disks_are_refused(copied: t.Any) -> None:
    with pytest.raises(InvalidArgument, match="The disks to copy are"):
        Request.from_needs(SMALL, copied=copied)


def test_a_very_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidArgument) as caught:
        Request.from_needs({**SMALL, "machine": ["x" * 100000]})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"blockers": ["x" * 65537]}, "request.blockers is"),
        ({"traits": ["x"] * 10001}, "request.traits has 10001 entries."),
        ({"pinning": {"vcpus": {"0": list(range(10001))}}}, "request.pinning has 10001 entries."),
    ],
)
def test_a_request_with_oversized_values_is_refused(changes: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Request.from_needs({**SMALL, **changes})
    assert str(caught.value).startswith(words)
    assert len(str(caught.value)) < 200


def test_unknown_keys_of_a_request_are_kept() -> None:
    needs = {**SMALL, "later": ["x"] * 10001}
    assert Request.from_needs(needs).as_json() == needs


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TRUE_PARTS = f.request(
    pinning={"vcpus": {"0": [1]}, "emulator": [0]},
    numa={"mode": "strict", "nodeset": [0], "cells": [{"id": 0, "memory_mib": 5, "vcpus": [0], "nodeset": [0]}]},
    hugepages=[{"size_kib": None, "mib": 2}],
    devices=[{"kind": "pci", "address": "0000:00:01.0", "vendor": None, "product": None}],
    group={"name": "web", "policy": "anti-affinity", "max_per_host": 2},
)


@st.composite
def damaged_requests(draw: st.DrawFn) -> t.Any:
    """A true request in which one part, however deep, is replaced by anything."""
    needs = json.loads(json.dumps(TRUE_PARTS))
    key = draw(st.sampled_from(sorted(needs)))
    node, at = needs, key
    while isinstance(node[at], (dict, list)) and node[at] and draw(st.booleans()):
        node = node[at]
        at = draw(st.sampled_from(sorted(node))) if isinstance(node, dict) else draw(st.integers(0, len(node) - 1))
    node[at] = draw(ANYTHING)
    return needs


@settings(max_examples=400, deadline=None)
@given(ANYTHING | damaged_requests())
def test_any_json_is_refused_or_can_be_checked(needs: t.Any) -> None:
    try:
        asked = Request.from_needs(needs, "u", "web1", "kvm1", "h")
    except InvalidArgument:
        return
    cells = [{"id": 0, "total_mib": 4096, "free_mib": 1, "cpus": [0], "pages": [{"size_kib": 2048, "total": 9, "free": 9}]}]
    there = host(numa_cells=cells).with_domain(asked)
    verdict = check_host(asked, there, fleet(there, host("kvm1")))
    assert verdict.passed == (not verdict.failures)
