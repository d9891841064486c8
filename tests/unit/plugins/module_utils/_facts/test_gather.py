# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import gather as module
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._facts.hosts import OTHER, ListedHost, info


def facts_of(*infos: h.DomainInfo, uri: str = "qemu:///system") -> t.Tuple[t.Dict[str, t.Any], t.List[str]]:
    return module.gather(t.cast(t.Any, ListedHost(*infos, uri=uri)))


def test_every_domain_is_listed_by_name_with_what_it_needs() -> None:
    incoming = info("db1", OTHER, state=h.PAUSED, reason=h.MIGRATION, job=h.JOB_INCOMING)
    facts, _warnings = facts_of(info("web1"), incoming)
    assert [(domain["name"], domain["state"], domain["job"]) for domain in facts["domains"]] == [
        ("db1", "paused", "incoming migration"),
        ("web1", "running", "none"),
    ]
    assert facts["domains"][1]["request"] == {"memory_mib": 257, "vcpus": 2, "traits": [], "labels": [], "group": None}
    assert facts["domains"][1]["disks"][0]["target"] == "vda"
    assert json.loads(json.dumps(facts)) == facts


def test_a_remote_host_s_identity_files_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "read_host_id", lambda: pytest.fail("was read"))
    facts, warnings = facts_of(uri="qemu+tcp://kvm2/system")
    assert (facts["host_id"], facts["machine_id"], warnings) == (None, None, [])


def test_a_damaged_identity_is_a_warning_and_the_rest_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged() -> str:
        raise Internal("host-id holds nothing.")

    monkeypatch.setattr(module, "read_host_id", damaged)
    facts, warnings = facts_of(info())
    assert facts["host_id"] is None
    assert warnings == ["host-id holds nothing."]
    assert len(facts["domains"]) == 1
