# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import Evidence
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.evidence import PowerOffEvidence
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import AgentOption, FenceDevice, FencingConfig
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fencing import EVIDENCE_KEYS, check_evidence, is_fresh, person_evidence
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.source import Source
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

NOW = datetime.datetime(2026, 11, 21, 3, 0, 0, tzinfo=datetime.UTC)
BY = "root@control pid 4711"
GIVEN: dict[str, t.Any] = {"host": "kvm1", "action": "off", "status": "off", "at": "2026-11-21T02:59:00Z"}


def check(**changes: t.Any) -> Evidence:
    device = FenceDevice("kvm1", "fence_x", "fence_x", "/sbin/fence_x", 60, 20, (AgentOption("password", "hunter2", True),))
    return check_evidence({**GIVEN, **changes}, "kvm1", "id-1", BY, NOW, FencingConfig("kvm1", ((device,),), 300))


def test_the_required_keys_of_evidence_are_sufficient() -> None:
    assert encode(check()) == {
        "kind": "tasks",
        "host": "kvm1",
        "host_id": "id-1",
        "agent": None,
        "action": "off",
        "status": "off",
        "output": "",
        "at": "2026-11-21T02:59:00.000Z",
        "by": BY,
        "ttl_seconds": 300,
        "reason": None,
    }
    assert tuple(encode(check())) == EVIDENCE_KEYS


def test_further_keys_of_evidence_are_kept_as_plain_text_without_secrets() -> None:
    checked = check(
        output="\x1b[31mChassis Power is off\x00 with hunter2", by="Ann", agent="pdu-7", ttl_seconds=900, host_id="id-1", action="STATUS", status=" Off "
    )
    assert checked.output == "Chassis Power is off with ***"
    assert (checked.by, checked.agent, checked.ttl_seconds, checked.action, checked.status) == ("Ann", "pdu-7", 900, "status", "off")
    assert len(check(output="x" * 100_000).output) == 4096


RESET: dict[str, t.Any] = {"kind": "watchdog", "action": "reset", "lease_revision": 7}


def test_evidence_of_a_watchdog_names_the_lease_that_it_is_about() -> None:
    checked = check(**RESET, output="kvm1 did not renew its lease")
    assert (checked.origin, checked.action, checked.status, checked.lease_revision) == ("watchdog", "reset", "off", 7)
    assert check_evidence(encode(checked), "kvm1", "id-1", BY, NOW) == checked


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({**RESET, "lease_revision": None}, "is of a watchdog without a lease_revision"),
        ({**RESET, "lease_revision": "7"}, "is not valid: lease_revision"),
        ({**RESET, "action": "off"}, "its action is not reset or its status not off"),
        ({**RESET, "status": "on"}, "its action is not reset or its status not off"),
        ({"lease_revision": 7}, "has a lease_revision, and is not of a watchdog"),
        ({"action": "reset"}, "came from the action reset"),
    ],
)
def test_evidence_of_a_watchdog_that_is_incomplete_is_unsafe(changes: dict[str, t.Any], sentence: str) -> None:
    with pytest.raises(Unsafe, match=sentence):
        check(**changes)


@pytest.mark.parametrize("at", ["2026-11-21T03:59:00+01:00", "2026-11-21 02:59:00.000000+00:00", datetime.datetime(2026, 11, 21, 2, 59, tzinfo=datetime.UTC)])
def test_a_time_has_a_zone_and_is_written_in_utc(at: t.Any) -> None:
    assert check(at=at).at == "2026-11-21T02:59:00.000Z"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"host": "kvm2"}, "is about another host, kvm2"),
        ({"host": None}, "no text as its host"),
        ({"host": ["kvm1"]}, "no text as its host"),
        ({"host_id": "id-2"}, "another id, id-2; the ledger has id-1 for kvm1"),
        ({"host_id": 5}, "no text as its host_id"),
        ({"action": "reboot"}, "came from the action reboot: .*a reboot is not off"),
        ({"action": "cycle"}, "came from the action cycle"),
        ({"action": None}, "came from the action None"),
        ({"action": False}, "came from the action False: .*with quotes"),
        ({"status": "on"}, "its status is on, not off"),
        ({"status": "unknown"}, "its status is unknown, not off"),
        ({"status": False}, "its status is False, not off .*with quotes"),
        ({"status": True}, "its status is True, not off"),
        ({"status": None}, "its status is None, not off"),
        ({"status": {"off": "off"}}, "not off"),
        ({"at": None}, "does not say at what time"),
        ({"at": "yesterday"}, "does not say at what time"),
        ({"at": "2026-11-21T02:59:00"}, "with a time zone"),
        ({"at": "2026-11-21"}, "with a time zone"),
        ({"at": 1_795_000_000}, "does not say at what time"),
        ({"at": "0001-01-01T00:00:00+23:59"}, "does not say at what time"),
        ({"at": "2026-11-21T02:54:59Z"}, "is 301 seconds old and was valid for 300"),
        ({"at": "2026-11-21T03:00:06Z"}, "dated 6 seconds in the future"),
        ({"at": "9999-12-31T23:59:59Z"}, "in the future"),
        ({"ttl_seconds": 0}, "not a number from 1 to 3600"),
        ({"ttl_seconds": 86400}, "not a number from 1 to 3600"),
        ({"ttl_seconds": "300"}, "not a number from 1 to 3600"),
        ({"ttl_seconds": float("inf")}, "not a number from 1 to 3600"),
        ({"ttl_seconds": True}, "not a number from 1 to 3600"),
        ({"kind": "rumour"}, "is not of an accepted kind"),
        ({"kind": ["tasks"]}, "is not of an accepted kind"),
        ({"kind": "person"}, "the confirmation of a person, and has no reason"),
        ({"kind": "person", "reason": "  "}, "the confirmation of a person, and has no reason"),
        ({"output": b"off"}, "no text as its output"),
        ({"by": {}}, "no text as its by"),
        ({"changed": True}, "is not a dictionary of kind, host"),
        ({5: "x"}, "is not a dictionary of kind, host"),
    ],
)
def test_evidence_that_does_not_prove_this_host_off_now_is_unsafe(changes: dict[t.Any, t.Any], sentence: str) -> None:
    with pytest.raises(Unsafe, match=rf"^The fencing evidence for kvm1 .*{sentence}.*Nothing was started"):
        check_evidence({**GIVEN, **changes}, "kvm1", "id-1", BY, NOW)


@pytest.mark.parametrize("given", [None, True, "off", [GIVEN], 0])
def test_evidence_that_is_not_a_dictionary_is_unsafe(given: t.Any) -> None:
    with pytest.raises(Unsafe, match="is not a dictionary of kind, host"):
        check_evidence(given, "kvm1", "id-1", BY, NOW)


def test_a_value_of_evidence_in_a_message_is_short_and_printable() -> None:
    with pytest.raises(Unsafe) as refused:
        check(host="kvm2\n\x1b[2J" + "x" * 10_000)
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_evidence_is_fresh_from_its_time_for_its_ttl() -> None:
    evidence = check()
    second = datetime.timedelta(seconds=1)
    assert [is_fresh(evidence, NOW + n * second) for n in (-70, -60, 0, 240, 241)] == [False, True, True, True, False]


def test_evidence_of_a_person_has_a_reason_and_a_name() -> None:
    evidence = person_evidence({"by": "Ann\n", "reason": "pulled both\x1b[0m cords"}, "kvm1", "id-1", BY)
    assert (evidence.origin, evidence.by, evidence.reason, evidence.agent) == ("person", "Ann", "pulled both cords", None)
    assert person_evidence({"reason": "pulled both cords"}, "kvm1", None, BY).by == BY
    now = datetime.datetime.now(datetime.UTC)
    assert check_evidence(encode(evidence), "kvm1", "id-1", BY, now) == evidence


@pytest.mark.parametrize(
    "given",
    [
        None,
        True,
        "yes",
        {},
        {"by": "Ann"},
        {"reason": ""},
        {"reason": " \x00\n"},
        {"reason": 5},
        {"reason": "x", "by": ""},
        {"reason": "x", "by": 5},
        {"reason": "x", "host": "y"},
    ],
)
def test_force_down_without_a_valid_reason_is_refused(given: t.Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^force_down of kvm1.*Nothing was started"):
        person_evidence(given, "kvm1", "id-1", BY)


def test_invalid_unicode_in_force_down_is_replaced() -> None:
    evidence = person_evidence({"by": "Ann\udcff", "reason": "pulled \ud800 both cords"}, "kvm1", "id-1", BY)
    assert (evidence.by, evidence.reason) == ("Ann?", "pulled ? both cords")


@pytest.mark.parametrize(
    ("where", "is_off"),
    [
        (HostRef("kvm1", "id-1", "uuid-1"), True),
        (HostRef("kvm1", None, None), True),
        (HostRef("renamed since", None, "uuid-1"), True),
        (HostRef("kvm2", None, "uuid-2"), False),
        (HostRef("kvm2", "id-2", "uuid-1"), False),
    ],
)
def test_evidence_is_about_one_host_also_in_a_record_that_is_older_than_the_id_of_its_host(where: HostRef, is_off: bool) -> None:
    entries = [host_entry({"name": f"kvm{number}", "host_id": f"id-{number}", "host_uuid": f"uuid-{number}"}) for number in (2, 1)]
    proofs = PowerOffEvidence(t.cast("t.Any", None), Source(entries[1]), entries, BY, given=[check()])
    assert (proofs.has_proof_of(where), len(proofs.list_proofs_of(where))) == (is_off, int(is_off))
