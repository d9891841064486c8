# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the document of a domain says about where it is."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import read_domain
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry

ONE, TWO = ({"host": name, "host_id": digit * 8 + "-0000-4000-8000-000000000000", "host_uuid": None} for name, digit in (("kvm1", "1"), ("kvm2", "2")))
HERE, THERE = (HostRef(str(one["host"]), one["host_id"], None) for one in (ONE, TWO))
AT = "2026-11-21T03:00:00.000Z"


def document(*hosts: t.Any, missing: t.Any = None, protected: t.Any = None) -> t.Any:
    note = {"missing": {"at": AT, "by": "me", "host": missing}} if missing else {}
    return domain_entry({"uuid": "u1", "name": "web1", "possible_hosts": list(hosts), "last_record": None, "protected": protected, **note})


@pytest.mark.parametrize(
    ("hosts", "missing", "found"),
    [
        # Only on kvm1, missing, since when, expected on kvm1 and on kvm2.
        ([ONE], None, (True, False, ABSENT, True, False)),
        ([ONE], ONE, (True, True, AT, False, False)),
        # It has arrived elsewhere since, or may have.
        ([TWO], ONE, (False, False, ABSENT, False, True)),
        ([ONE, TWO], ONE, (False, False, ABSENT, True, True)),
        ([], None, (False, False, ABSENT, False, False)),
        ([], ONE, (False, False, ABSENT, False, False)),
    ],
)
def test_a_domain_is_expected_where_it_may_be_and_is_not_missing(hosts: list[t.Any], missing: t.Any, found: tuple[t.Any, ...]) -> None:
    entry = document(*hosts, missing=missing)
    assert (entry.is_only_on(HERE), entry.is_missing, entry.missing_since, entry.is_expected_on(HERE), entry.is_expected_on(THERE)) == found


@pytest.mark.parametrize(("saved", "missing", "is_protected"), [({"at": AT}, None, True), ({"at": AT}, ONE, False), (None, None, False), (None, ONE, False)])
def test_a_domain_is_protected_while_the_host_of_its_copy_has_it(saved: t.Any, missing: t.Any, is_protected: bool) -> None:
    assert document(ONE, missing=missing, protected=saved).is_protected is is_protected


def test_a_key_that_a_possible_host_lacks_is_unknown() -> None:
    entry = read_domain({"uuid": "u1", "name": "web1", "possible_hosts": [ONE, {"host": "kvm3"}], "last_record": None})
    assert entry.possible_hosts == (HERE, HostRef("kvm3", None, None))
