# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An act of others in the document of its domain: with a line of audit, in one unit, and once."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import MOVED, STOPPED, ForeignAct
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.audit import audit_foreign_act, make_audit_line, read_link
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.changes import MAX_FOREIGN_ACTS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DomainEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store

DOMAIN = "55555555-0000-4000-8000-000000000005"
KVM1, KVM2 = HostRef("kvm1", None, None), HostRef("kvm2", None, None)
ACT = ForeignAct(MOVED, "2026-11-21T03:00:00.000Z", "me", KVM2, KVM1, "running", "running", "migrated", 0)


def domain() -> DomainEntry:
    return domain_entry({"uuid": DOMAIN, "name": "web1", "possible_hosts": [encode(KVM1)]})


def audit_lines(ledger: Ledger) -> int:
    with ledger.open_contents() as contents:
        return sum(len(list(lines)) for _chain, lines in contents.read_chains())


def test_an_act_is_in_the_document_and_in_the_audit(ledger: Ledger) -> None:
    ledger.put_domain(domain(), None)
    before = audit_lines(ledger)
    written = ledger.put_domain(domain(), 1, ACT)
    assert written.domain.foreign_acts == (ACT,)
    assert ledger.read_domain(DOMAIN) == written
    assert audit_lines(ledger) == before + 1
    assert ledger.verify_audit() == []


def test_the_line_of_an_act_says_who_saw_what_and_where() -> None:
    line, own = make_audit_line(audit_foreign_act(domain(), ACT), "0" * 64)
    link = read_link(line)
    assert link is not None
    assert (link.intact, link.own, link.previous) == (True, own, "0" * 64)
    for text in ('"act":"moved"', '"id":null', '"by":"me"', '"from":"running"', '"name":"web1"', '"host":"kvm2"', '"at":"2026-11-21T03:00:00.000Z"'):
        assert text in line


def test_a_document_without_acts_has_no_key_for_them(ledger: Ledger) -> None:
    assert "foreign_acts" not in ledger.put_domain(domain(), None).body


def test_two_control_nodes_that_look_at_once_write_an_act_once(store: Store) -> None:
    one, other = store.open(), store.open()
    one.put_domain(domain(), None)
    lines = audit_lines(one)
    one.put_domain(domain(), 1, ACT)
    with pytest.raises(Conflict):
        other.put_domain(domain(), 1, dataclasses.replace(ACT, by="somebody else"))
    after = other.read_domain(DOMAIN)
    assert after is not None
    assert after.domain.foreign_acts == (ACT,)
    assert audit_lines(other) == lines + 1


def test_the_document_keeps_the_last_acts_and_the_audit_all(ledger: Ledger) -> None:
    document = ledger.put_domain(domain(), None)
    lines = audit_lines(ledger)
    for number in range(MAX_FOREIGN_ACTS + 2):
        document = ledger.put_domain(document.domain, document.version, dataclasses.replace(ACT, act=STOPPED, at=f"2026-11-21T03:00:{number:02d}.000Z"))
    acts = document.domain.foreign_acts or ()
    assert [act.at[17:19] for act in acts] == [f"{number:02d}" for number in range(2, MAX_FOREIGN_ACTS + 2)]
    assert audit_lines(ledger) == lines + MAX_FOREIGN_ACTS + 2
    assert ledger.verify_audit() == []
