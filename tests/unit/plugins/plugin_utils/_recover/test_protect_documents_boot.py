# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boot in which a state was seen, and what ran before it."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import SavedDomain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover import protect_documents
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_documents import Judgement, ProtectInputs
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._recover.protect_builders import (
    DOMAIN,
    KVM1,
    KVM2,
    Body,
    disk,
    evacuation,
    reported_domain,
)

A, B, C = "boot A", "boot B", "boot C"
OFF: Body = {"active": False, "state": "shut off", "reason": ""}


def judge(inputs: ProtectInputs, host: HostRef = KVM1, **told: t.Any) -> Judgement:
    """Return the decision about a domain that is running in the boot A, but for what is given."""
    body = {**reported_domain(), "disks": [disk(seen_by=[])], "reason": "booted", "boot_id": A, **told}
    return protect_documents.judge_domain(decode(SavedDomain, body), inputs, host, "somebody")


def body_of(judgement: Judgement) -> Body:
    assert judgement.entry
    return t.cast("Body", encode(judgement.entry))


def after(*reports: Body, at: HostRef = KVM1) -> Body:
    """Return what the ledger has saved after these reports of a host, one after the other."""
    judgement = judge(ProtectInputs())
    for told in reports:
        judgement = judge(ProtectInputs({DOMAIN: Document(body_of(judgement), 1)}), at, **told)
    return t.cast("Body", body_of(judgement)["protected"])


def kept(saved: Body) -> tuple[str, str, str | None]:
    return saved["state"], saved["boot_id"], (saved["ran_before"] or {}).get("state")


@pytest.mark.parametrize(
    ("reports", "wanted"),
    [
        ([], ("running", A, None)),
        ([{"boot_id": B}], ("running", B, None)),
        # It went down with its host, and stays off until the next boot.
        ([{**OFF, "boot_id": B}], ("shut off", B, "running")),
        ([{**OFF, "boot_id": B}] * 3, ("shut off", B, "running")),
        ([{"state": "paused"}, {**OFF, "boot_id": B}], ("shut off", B, "paused")),
        ([{**OFF, "boot_id": B}, {**OFF, "boot_id": C}], ("shut off", C, None)),
        ([{**OFF, "boot_id": B}, {"boot_id": B}], ("running", B, None)),
        ([{**OFF, "boot_id": B}, {"boot_id": B}, {**OFF, "boot_id": B}], ("shut off", B, None)),
        # A start and a stop between two reports leave libvirt's reason.
        ([{**OFF, "boot_id": B}, {**OFF, "boot_id": B, "reason": "shutdown"}], ("shut off", B, None)),
        # Somebody has stopped it while its host was up.
        ([OFF], ("shut off", A, None)),
        ([{**OFF, "reason": "destroyed"}], ("shut off", A, None)),
        ([OFF, {**OFF, "boot_id": B}], ("shut off", B, None)),
        # The boot guard holds the host, or a job occupies the domain: neither is an intended state.
        ([{**OFF, "boot_id": B, "state": None}], ("running", A, None)),
        ([{**OFF, "boot_id": B, "state": None}, {**OFF, "boot_id": B}], ("shut off", B, "running")),
        ([{"boot_id": B, "state": None}], ("running", B, None)),
    ],
)
def test_what_ran_before_the_boot_of_its_host_is_known_until_the_next_one(reports: list[Body], wanted: tuple[str, str, str | None]) -> None:
    assert kept(after(*reports)) == wanted


def test_the_earlier_state_has_the_time_at_which_it_was_saved() -> None:
    saved = after()
    assert after({**OFF, "boot_id": B})["ran_before"].keys() == {"state", "at"}
    assert saved["at"] is not None


def test_a_report_of_the_same_boot_is_not_written_again() -> None:
    for told in ({}, {**OFF, "boot_id": B}):
        first = judge(ProtectInputs({DOMAIN: Document(body_of(judge(ProtectInputs())), 1)}), **told)
        again = judge(ProtectInputs({DOMAIN: Document(body_of(first), 1)}), **told)
        assert again.kind == protect_documents.UNCHANGED


def test_a_document_of_version_0_1_0_counts_as_seen_before_the_boot() -> None:
    body = body_of(judge(ProtectInputs()))
    body["protected"] = {key: value for key, value in body["protected"].items() if key not in ("boot_id", "ran_before")}
    inputs = ProtectInputs({DOMAIN: Document(body, 1)})
    assert kept(body_of(judge(inputs, **OFF))["protected"]) == ("shut off", A, "running")
    assert kept(body_of(judge(inputs, **{**OFF, "reason": "shutdown"}))["protected"]) == ("shut off", A, None)
    assert judge(inputs).changed == ("boot_id", "ran_before")


def test_a_host_that_reports_no_boot_gives_no_earlier_state() -> None:
    saved = after({**OFF, "boot_id": None})
    assert (saved["boot_id"], saved["ran_before"]) == (None, None)


@pytest.mark.parametrize(("wanted_state", "earlier"), [("running", "running"), ("shut off", None)])
def test_a_guest_that_was_evacuated_to_stay_off_did_not_run(wanted_state: str, earlier: str | None) -> None:
    tombstone = dataclasses.replace(evacuation(KVM1, KVM2, s.PRE_MIGRATING, s.DONE), wanted_state=wanted_state)
    body = {**body_of(judge(ProtectInputs())), "possible_hosts": [encode(KVM2)]}
    inputs = ProtectInputs({DOMAIN: Document(body, 1)}, {}, {DOMAIN: [tombstone]})
    assert kept(body_of(judge(inputs, KVM2, **{**OFF, "boot_id": C}))["protected"]) == ("shut off", C, earlier)
