# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.survey import prove_folder, read_traits
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import RUNNING, SHUTOFF
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import NOT_SURVEYED, SurveyedDomain, SurveyQuestion
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.folder import DirectoryFolder

THERE = "qemu+tcp://kvm2/system"


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet("kvm1", "kvm2")


def surveyed(fleet: FakeFleet) -> SurveyedDomain:
    return dataclasses.replace(NOT_SURVEYED, found=True, info=fleet.open(LOCAL_URI).find_domain(uuid=UUID))


def guest(fleet: FakeFleet, os: str = "", devices: str = "") -> SurveyedDomain:
    fleet.guest(definition=f"<domain><name>web1</name><uuid>{UUID}</uuid><os>{os}</os><devices>{devices}</devices></domain>")
    return surveyed(fleet)


def test_the_files_of_a_domain_are_listed_with_their_size(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    variables = tmp_path / "web1_VARS.fd"
    variables.write_bytes(b"12345")
    traits = read_traits(fleet.open(LOCAL_URI), guest(fleet, f"<nvram>{variables}</nvram>"), SurveyQuestion(None, UUID, (THERE,)), fleet.open)
    assert traits is not None
    assert ([file.path for file in traits.files], traits.file_bytes, traits.problem, traits.folders) == ([str(variables)], 5, "", {})


@pytest.mark.parametrize(
    ("os", "devices", "problem"),
    [
        ("<nvram type='block'><source dev='/dev/vg/vars'/></nvram>", "", "its firmware variables are on the device /dev/vg/vars."),
        ("", "<tpm><backend type='passthrough'><device path='/dev/tpm0'/></backend></tpm>", "its TPM is the device /dev/tpm0 of this host."),
    ],
)
def test_what_cannot_be_copied_is_named(fleet: FakeFleet, os: str, devices: str, problem: str) -> None:
    traits = read_traits(fleet.open(LOCAL_URI), guest(fleet, os, devices), SurveyQuestion(None, UUID, (THERE,)), fleet.open)
    assert traits is not None
    assert traits.problem == problem


def test_a_link_in_place_of_the_variables_is_named(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    variables, elsewhere = tmp_path / "web1_VARS.fd", tmp_path / "shared_VARS.fd"
    elsewhere.write_bytes(b"12345")
    variables.symlink_to(elsewhere)
    traits = read_traits(fleet.open(LOCAL_URI), guest(fleet, f"<nvram>{variables}</nvram>"), SurveyQuestion(None, UUID, (THERE,)), fleet.open)
    assert traits is not None
    assert f"its file {variables} (firmware variables) is a symbolic link to {elsewhere}." in traits.problem
    assert "in its definition" in traits.problem


@pytest.mark.parametrize(("attribute", "is_deleted"), [("", True), ("persistent_state='yes'", False)])
def test_a_libvirt_that_deletes_the_state_of_a_tpm_is_named(fleet: FakeFleet, attribute: str, is_deleted: bool) -> None:
    fleet.source.versions["libvirt"] = 8008000
    domain = guest(fleet, devices=f"<tpm><backend type='emulator' {attribute}/></tpm>")
    traits = read_traits(fleet.open(LOCAL_URI), domain, SurveyQuestion(None, UUID, (THERE,)), fleet.open)
    assert traits is not None
    assert ("would delete the state of its TPM" in traits.problem) is is_deleted


@pytest.mark.parametrize(("save_folder", "state", "is_named"), [(ABSENT, RUNNING, True), ("/srv/saved", RUNNING, False), (ABSENT, SHUTOFF, False)])
def test_a_guest_that_would_start_from_a_stale_image_is_named(fleet: FakeFleet, save_folder: t.Any, state: str, is_named: bool) -> None:
    """It was defined anew while it ran on a snapshot. A guest that keeps its memory keeps its images too."""
    guest(fleet, devices="<disk type='file'><source file='/srv/web1.qcow2'/><target dev='vda'/></disk>")
    domain = fleet.source.domain(UUID)
    domain.live_definition, domain.state = domain.definition.replace("web1.qcow2", "web1.snap"), state
    traits = read_traits(fleet.open(LOCAL_URI), surveyed(fleet), SurveyQuestion(None, UUID, (), is_cold=True, save_folder=save_folder), fleet.open)
    assert traits is not None
    assert ("disk vda: the running domain has /srv/web1.snap as this disk" in traits.problem) is is_named


def test_a_domain_that_the_source_does_not_have_has_no_traits(fleet: FakeFleet) -> None:
    assert read_traits(fleet.open(LOCAL_URI), NOT_SURVEYED, SurveyQuestion(None, UUID, (THERE,)), fleet.open) is None


def test_a_folder_is_proved_from_both_sides(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    assert prove_folder(str(here), THERE, fleet.open).verdict == "unproved"
    for place, verdict in ((here, "shared"), (there, "separate")):
        fleet.destination.folders[str(here)] = DirectoryFolder(place)
        assert prove_folder(str(here), THERE, fleet.open).verdict == verdict
    fleet.destination.go_dark()
    assert "did not answer" in prove_folder(str(here), THERE, fleet.open).why
    assert list(here.iterdir()) == list(there.iterdir()) == []
