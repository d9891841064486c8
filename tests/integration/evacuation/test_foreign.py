# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger that was edited, truncated or copied: damaged documents are reported, and all other domains are evacuated."""

from __future__ import annotations

import collections.abc
import pathlib
import re
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import decode_document, encode_document
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import building
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site, evacuations

Body = dict[str, t.Any]
Edit = t.Callable[[Body], t.Any]

BOMB = """<?xml version="1.0"?>
<!DOCTYPE domain [<!ENTITY a "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;"><!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;">
<!ENTITY e "&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;"><!ENTITY f "&e;&e;&e;&e;&e;&e;&e;&e;&e;&e;"><!ENTITY g "&f;&f;&f;&f;&f;&f;&f;&f;&f;&f;">]>
"""
OUTSIDE = '<!DOCTYPE domain [<!ENTITY g SYSTEM "file:///etc/machine-id">]>\n'


@pytest.fixture(scope="module")
def lost(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> collections.abc.Iterator[Site]:
    """The first host is off. It had C(good), and a guest for each way to spoil a document."""
    with building(lab, tmp_path_factory.mktemp("lost")) as (site, make):
        for name in ("good", *EDITS):
            make(name, "--off")
        site.protect()
        site.lose(1)
        yield site


@pytest.fixture
def site(lost: Site, tmp_path: pathlib.Path) -> Site:
    return lost.twin(tmp_path)


def file_of(site: Site, guest: str) -> pathlib.Path:
    return site.path / "domains" / f"{site.document(guest)['uuid']}.json"


def edit(site: Site, guest: str, change: Edit) -> None:
    """Change a domain's document as a program does that knows how documents are kept: with a checksum that is right."""
    path = file_of(site, guest)
    document = decode_document(path.read_bytes())
    change(document.body)
    path.write_bytes(encode_document(document.body, document.version))


def definition(change: t.Callable[[str, Body], str]) -> Edit:
    """Return an edit of the saved definition."""

    def edit_it(body: Body) -> None:
        before = body["protected"]["definition"]
        body["protected"]["definition"] = change(before, body)
        assert body["protected"]["definition"] != before

    return edit_it


def with_entity(declaration: str) -> Edit:
    return definition(lambda text, body: declaration + text.replace("<name>", "<title>&g;</title><name>", 1))


def with_protected(**values: t.Any) -> Edit:
    return lambda body: body["protected"].update(values)


# The name of a guest says what is wrong with its document.
EDITS: dict[str, Edit] = {
    "bomb": with_entity(BOMB),
    "entity-from-outside": with_entity(OUTSIDE),
    "no-xml": with_protected(definition="a shopping list"),
    "no-definition": with_protected(definition=None),
    "no-domain": with_protected(definition="<network><name>no-domain</name></network>"),
    "other-uuid": definition(lambda text, body: text.replace(body["uuid"], str(uuid.uuid4()))),
    "other-name": definition(lambda text, body: text.replace("<name>other-name<", "<name>somebody<")),
    "others-disk": definition(lambda text, body: text.replace("others-disk.qcow2", "good.qcow2")),
    "climbing-path": definition(lambda text, body: text.replace("/climbing-path.qcow2", "/../../../../etc/shadow")),
    "other-program": definition(lambda text, body: re.sub("<emulator>.*</emulator>", "<emulator>/bin/sh</emulator>", text)),
    "unknown-disk": with_protected(disks=[]),
    "disk-elsewhere": lambda body: body["protected"]["disks"][0].update(path="/etc/shadow"),
    "no-state": with_protected(state="flying"),
    "no-disks": with_protected(disks="vda"),
    "no-request": with_protected(request=None),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda _text: "", id="empty"),
        pytest.param(lambda text: text[: len(text) // 2], id="torn"),
        pytest.param(lambda _text: "[]", id="foreign"),
        pytest.param(lambda text: text.replace("bomb.qcow2", "good.qcow2"), id="edited"),
    ],
)
def test_a_damaged_document_is_named_and_does_not_stop_other_domains(site: Site, spoil: t.Callable[[str], str]) -> None:
    path = file_of(site, "bomb")
    path.write_text(spoil(path.read_text()))
    done = site.evacuate(2, 1, "--check", domains=["good"])
    assert done.code == 0, done.text
    assert path.stem in done.warnings
    assert [one["domain"]["name"] for one in evacuations(done)] == ["good"]
    assert site.fleet() == {2: set(), 3: set()}


@pytest.mark.long
def test_evacuation_to_a_host_of_another_ledger_is_refused(site: Site, tmp_path: pathlib.Path) -> None:
    """The ledger is a copy that somebody has begun to use as a second one."""
    file = site.on_disk(2, "var-lib-kvmfleet/ledger-id")
    before = file.read_text()
    file.write_text(f"{uuid.uuid4()}\n")
    try:
        done = site.evacuate(2)
        assert done.refused() == "conflict"
        site.check_end_state({2: [], 3: []})
    finally:
        file.write_text(before)


def test_evacuation_with_an_empty_ledger_is_refused(site: Site, tmp_path: pathlib.Path) -> None:
    other = Site(site.lab, tmp_path / "empty")
    done = other.evacuate(2, force_down={"reason": "it is off"})
    assert done.code != 0
    assert not done.changed
    assert site.fleet() == {2: set(), 3: set()}


def test_a_torn_record_is_named_and_nothing_is_started(site: Site) -> None:
    """A record that cannot be read may be the one by which the guest was started on another host."""
    folder = site.path / "migrations" / "open"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{uuid.uuid4()}.json").write_text('{"status": "pre-mig')
    done = site.evacuate(2, 1, "--check")
    assert "migrations" in done.warnings, done.text
    assert site.fleet() == {2: set(), 3: set()}


@pytest.mark.long
def test_a_domain_with_invalid_possible_hosts_is_not_started(site: Site) -> None:
    edit(site, "good", lambda body: body.update(possible_hosts="everywhere"))
    done = site.evacuate(3, state="running", domains=["good"])
    assert done.refused()
    assert site.fleet() == {2: set(), 3: set()}


@pytest.mark.long
def test_domains_of_edited_documents_are_not_started_and_do_not_stop_others(site: Site) -> None:
    for name, change in EDITS.items():
        edit(site, name, change)
    done = site.evacuate(2, state="running", parallel=1)
    assert done.code != 0, done.text
    assert site.fleet() == {2: {"good"}, 3: set()}
    assert [name for name in EDITS if site.lab.places(name)] == []
    assert [name for name in EDITS if name not in done.warnings] == []
    told = {line[0]: line[1] for line in site.record_summaries()}
    assert told.pop("good") == "done"
    assert set(told.values()) <= {"conflict", "failed"}
