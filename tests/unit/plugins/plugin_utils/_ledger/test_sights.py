# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts see of each other's storage, beside their entries, in both stores."""

from __future__ import annotations

import os
import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import find_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.copying import copy_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import decode_document, encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.transaction import EtcdTransaction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileTransaction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import list_entries
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_parts import ProtectTime
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import Conditions, read_term
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.sights import (
    list_dated_sights_of,
    list_sights_of,
    read_own_sights,
    with_protect_times,
    write_sights,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.protect_steps import ProtectSteps
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store

DIED = 42
ONE, TWO, THREE = (f"{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "12a")
NAMES = {ONE: "kvm1", TWO: "kvm2", THREE: "kvm3"}
FOLDERS = {host_id: {f"/srv/{name}": f"nonce of {name}", "/shared": f"shared by {name}"} for host_id, name in NAMES.items()}
SEES = {TWO: FOLDERS[TWO], THREE: FOLDERS[THREE]}
Body = dict[str, t.Any]


def put_host(ledger: Ledger, host_id: str, **more: t.Any) -> None:
    body = {"name": NAMES[host_id], "host_id": host_id, "host_uuid": None, "state": "enabled", "reason": None, "folders": FOLDERS[host_id]}
    ledger.put_host(host_entry({**body, **more}), None)


def put_fleet(ledger: Ledger, **more: t.Any) -> None:
    """Write three hosts, the first one with these keys."""
    put_host(ledger, ONE, **more)
    put_host(ledger, TWO)
    put_host(ledger, THREE)


def own_sights(ledger: Ledger) -> t.Mapping[str, t.Any]:
    entry = next(entry for entry in list_entries(ledger) if entry.host_id == ONE)
    return read_own_sights(ledger, entry)


def protect_steps(ledger: Ledger, sees: Body, boot_id: str | None = None) -> ProtectSteps:
    """Return the steps for the first host, which sees this."""
    guard = {"installed": True, "systemd": True, "held_at_boot": True, "held": False, "note": ""}
    answers = {
        "identify": {"identity": {"host_id": ONE, "host_uuid": None, "machine_id": None}, "libvirt_error": None},
        "leave": {"changed": False, "host_id": ONE, "folders": FOLDERS[ONE], "unwritable": {}, "devices": {}},
        "see": {"sees": sees, "boot_id": boot_id},
        "save": {"domains": [], "arriving": [], "unreadable": [], "remembered": []},
        "guard": {"changed": False, "guard": guard},
    }
    return ProtectSteps("kvm1", ledger, lambda phase, _work: answers[phase], "somebody", False)


def protect(ledger: Ledger, sees: Body) -> None:
    steps = protect_steps(ledger, sees)
    steps.leave_tokens({})
    steps.read_tokens()
    steps.save_domains()
    steps.set_up_guard(install=True, with_token=True)


def test_sights_are_kept_beside_the_entries(ledger: Ledger, store: Store) -> None:
    put_fleet(ledger)
    write_sights(ledger, ONE, SEES)
    assert own_sights(store.open()) == SEES
    assert list_sights_of(ledger, list_entries(ledger), THREE) == {ONE: FOLDERS[THREE], TWO: {}}
    assert [name for name in store.names() if name.startswith("sights/")] == [f"sights/2/{ONE}.json", f"sights/a/{ONE}.json"]
    assert find_problems_of(ledger) == []


def find_problems_of(ledger: Ledger) -> list[str]:
    return ledger.examine_contents(lambda contents: find_problems(contents).all_problems)


def test_only_documents_with_another_content_are_written(ledger: Ledger, store: Store) -> None:
    put_fleet(ledger)
    write_sights(ledger, ONE, SEES)
    before = {name: store.read(name) for name in store.names("sights")}
    write_sights(ledger, ONE, SEES)
    assert {name: store.read(name) for name in store.names("sights")} == before
    write_sights(ledger, ONE, {THREE: FOLDERS[THREE]})
    assert own_sights(ledger) == {THREE: FOLDERS[THREE]}
    assert store.read(f"sights/a/{ONE}.json") == before[f"sights/a/{ONE}.json"]


def test_sights_have_the_boot_in_which_the_host_saw_them(ledger: Ledger, store: Store) -> None:
    put_fleet(ledger)
    write_sights(ledger, ONE, SEES)
    assert list_dated_sights_of(ledger, list_entries(ledger), THREE)[1] == {}
    for boot in ("b1", "b2"):
        write_sights(ledger, ONE, SEES, boot)
        assert own_sights(ledger) == SEES
        for seen in (TWO, THREE):
            assert list_dated_sights_of(ledger, list_entries(ledger), seen)[1] == {ONE: boot}
    before = {name: store.read(name) for name in store.names("sights")}
    write_sights(ledger, ONE, SEES, "b2")
    assert {name: store.read(name) for name in store.names("sights")} == before


def test_a_document_that_names_no_host_any_more_has_no_boot(ledger: Ledger) -> None:
    put_fleet(ledger)
    write_sights(ledger, ONE, SEES, "b1")
    write_sights(ledger, ONE, {THREE: FOLDERS[THREE]}, "b1")
    write_sights(ledger, ONE, {THREE: FOLDERS[THREE]}, "b2")
    assert ledger.read_dated_sights(ONE)[1] == {"b2"}


def test_the_boot_is_not_that_of_sights_inside_an_entry(ledger: Ledger) -> None:
    put_fleet(ledger, sees=SEES)
    write_sights(ledger, ONE, SEES, "b1")
    assert list_dated_sights_of(ledger, list_entries(ledger), THREE)[1] == {}


def test_protect_writes_the_boot_of_the_host_beside_what_it_sees(ledger: Ledger) -> None:
    put_fleet(ledger)
    for boot in ("b1", "b2"):
        protect_steps(ledger, SEES, boot).read_tokens()
        assert list_dated_sights_of(ledger, list_entries(ledger), THREE)[1] == {ONE: boot}


def test_sights_inside_an_entry_are_valid_until_the_entry_is_written_without_them(ledger: Ledger) -> None:
    old = {TWO: FOLDERS[TWO]}
    put_fleet(ledger, sees=old)
    write_sights(ledger, ONE, SEES)
    assert own_sights(ledger) == old
    assert list_sights_of(ledger, list_entries(ledger), THREE) == {ONE: {}, TWO: {}}
    protect_steps(ledger, SEES).read_tokens()
    assert own_sights(ledger) == SEES
    assert list_entries(ledger)[0].sees is ABSENT


@pytest.mark.parametrize("sees", [SEES, {TWO: FOLDERS[TWO]}], ids=["the same", "less"])
def test_a_protect_that_is_killed_between_two_writes_loses_no_sight(store: Store, in_child: t.Any, exit_of: t.Any, sees: Body) -> None:
    """A process ends after each of its writes in turn; a later one finds what was seen, and completes it."""
    put_fleet(store.open(), sees=SEES)
    for write in range(20):
        left = exit_of(in_child(lambda: protect_until(store, sees, write)))  # noqa: B023
        ledger = store.open()
        seen = list_sights_of(ledger, list_entries(ledger), TWO)[ONE]
        assert seen == FOLDERS[TWO]
        assert list_sights_of(ledger, list_entries(ledger), THREE)[ONE] in (FOLDERS[THREE], sees.get(THREE, {}))
        assert find_problems_of(ledger) == []
        if left == 0:
            break
        assert left == DIED
    assert write >= 2
    assert own_sights(ledger) == sees
    assert list_entries(ledger)[0].sees is ABSENT


def protect_until(store: Store, sees: Body, writes: int) -> None:
    """Protect the first host, and end without any clean-up after so many writes."""
    rest = iter([True] * writes)

    def dying(write: Callable[..., None]) -> Callable[..., None]:
        def act(*arguments: t.Any, **options: t.Any) -> None:
            if next(rest, None) is None:
                os._exit(DIED)
            write(*arguments, **options)

        return act

    for kind, name in ((FileTransaction, "write_document"), (FileTransaction, "commit_unit"), (EtcdTransaction, "commit_unit")):
        setattr(kind, name, dying(getattr(kind, name)))
    protect(store.open(), sees)


def test_a_protect_that_changes_nothing_writes_one_small_document(ledger: Ledger, store: Store) -> None:
    put_fleet(ledger)
    protect(ledger, SEES)
    before = {name: store.read(name) for name in store.names()}
    protect(store.open(), SEES)
    written = {name: store.read(name) for name in store.names() if store.read(name) != before.get(name) and not name.startswith("writers/")}
    assert list(written) == [f"protected/{ONE}.json"]
    assert len(written[f"protected/{ONE}.json"] or b"") <= 1024


def test_the_time_of_a_protect_is_shown_in_the_entry(ledger: Ledger) -> None:
    put_host(ledger, ONE, protected={"at": "2026-11-20T10:00:00.000Z", "by": "then"})
    put_host(ledger, TWO, protected={"at": "2026-11-22T10:00:00.000Z", "by": "then"})
    put_host(ledger, THREE)
    for host_id in (ONE, TWO, THREE):
        ledger.put_protect_time(ProtectTime(host_id, "2026-11-21T10:00:00.000Z", "now"))
    expected = [("2026-11-21T10:00:00.000Z", "now"), ("2026-11-22T10:00:00.000Z", "then"), ("2026-11-21T10:00:00.000Z", "now")]
    entries = with_protect_times(ledger, list_entries(ledger))
    assert [(entry.protected.at, entry.protected.by) for entry in entries if entry.protected] == expected
    shown = t.cast("list[Body]", read_term(ledger, "hosts", Conditions()))
    assert [(body["protected"]["at"], body["protected"]["by"]) for body in shown] == expected


def test_a_damaged_document_is_set_aside_and_written_again(ledger: Ledger, store: Store) -> None:
    put_fleet(ledger)
    write_sights(ledger, ONE, SEES)
    store.write(f"sights/a/{ONE}.json", b"torn")
    assert len(find_problems_of(ledger)) == 1
    assert own_sights(ledger) == {TWO: FOLDERS[TWO]}
    assert "set_aside" in "".join(store.names())
    write_sights(ledger, ONE, SEES)
    assert own_sights(ledger) == SEES
    assert find_problems_of(ledger) == []


def test_a_copied_ledger_has_the_sights_and_times(ledger: Ledger, other_store: Store) -> None:
    put_fleet(ledger)
    protect(ledger, SEES)
    assert copy_ledger(ledger, other_store.target(), "somebody").changed
    copied = other_store.open()
    assert own_sights(copied) == SEES
    assert copied.list_protect_times() == ledger.list_protect_times()
    assert find_problems_of(copied) == []


def test_a_host_without_a_uuid_as_its_id_has_no_sights(ledger: Ledger) -> None:
    with pytest.raises(InvalidArgument, match="not a UUID"):
        write_sights(ledger, ONE, {"../kvm2": FOLDERS[TWO]})


@pytest.mark.parametrize(
    ("written", "protect", "shown"),
    [
        ("2020-01-02T00:00:00.000Z", "2020-01-03T00:00:00.000Z", "2020-01-03T00:00:00.000Z"),
        ("2020-01-04T00:00:00.000Z", "2020-01-03T00:00:00.000Z", "2020-01-04T00:00:00.000Z"),
        ("2126-01-04T00:00:00.000Z", "2020-01-03T00:00:00.000Z", "2020-01-03T00:00:00.000Z"),
        ("2020-01-04T00:00:00.000Z", "2126-01-03T00:00:00.000Z", "2020-01-04T00:00:00.000Z"),
    ],
)
def test_the_later_time_of_a_protect_is_shown_unless_it_is_in_the_future(ledger: Ledger, written: str, protect: str, shown: str) -> None:
    put_host(ledger, ONE, protected={"at": written})
    ledger.put_protect_time(ProtectTime(ONE, protect, "somebody"))
    (entry,) = with_protect_times(ledger, list_entries(ledger))
    assert entry.protected
    assert entry.protected.at == shown


def test_a_host_is_parsed_again_only_if_it_has_changed(ledger: Ledger, store: Store) -> None:
    put_fleet(ledger)
    first, again = ledger.list_hosts(), ledger.list_hosts()
    assert [one is other for one, other in zip(first, again, strict=True)] == [True] * 3
    entry = first[1].host
    store.open().put_host(host_entry({**first[1].body, "state": "maintenance"}), first[1].version)
    after = ledger.list_hosts()
    assert [one is other for one, other in zip(first, after, strict=True)] == [True, False, True]
    assert (entry.state, after[1].host.state) == ("enabled", "maintenance")


def test_hosts_that_others_write_add_and_remove_are_seen(ledger: Ledger, store: Store) -> None:
    put_fleet(ledger)
    states = [entry.state for entry in list_entries(ledger)]
    other = store.open()
    second = other.list_hosts()[1]
    other.put_host(host_entry({**second.body, "state": "maintenance"}), second.version)
    store.remove(f"hosts/{THREE}.json")
    after = [(entry.name, entry.state) for entry in list_entries(ledger)]
    put_host(other, THREE, state="fenced")
    last = [(entry.name, entry.state) for entry in list_entries(ledger)]
    assert states == ["enabled"] * 3
    assert after == [("kvm1", "enabled"), ("kvm2", "maintenance")]
    assert last == [("kvm1", "enabled"), ("kvm2", "maintenance"), ("kvm3", "fenced")]


def test_a_host_that_could_not_be_read_is_read_again(ledger: Ledger, store: Store) -> None:
    put_fleet(ledger)
    path = f"hosts/{TWO}.json"
    document = decode_document(store.read(path) or b"")
    store.write(path, encode_document({**document.body, "schema": 9}, document.version))
    reader = store.open()
    assert [entry.name for entry in list_entries(reader)] == ["kvm1", "kvm3"]
    assert [entry.name for entry in list_entries(reader)] == ["kvm1", "kvm3"]
    assert len(reader.problems) == 1


def test_a_change_after_a_cached_read_is_refused_like_any_other(ledger: Ledger, store: Store) -> None:
    """Two processes cordon one host after both had read it twice."""
    put_fleet(ledger)
    other = store.open()
    for one in (ledger, other):
        one.list_hosts()
        one.list_hosts()
    known = ledger.list_hosts()[0]
    other.put_host(host_entry({**known.body, "state": "maintenance"}), known.version)
    with pytest.raises(Conflict):
        ledger.put_host(host_entry({**known.body, "state": "fenced"}), known.version)
