# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A task that moves guests between hosts with other names: what the record says, and what is refused before anything is reserved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import Disk
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DiskNeed, DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import SurveyedDomain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.follow import make_result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import read_renamings
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.storage import check_storage
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control, one_request
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.situations import run_one_move

PATH, THERE = "/srv/fast/web.qcow2", "/data/web.qcow2"
CHANGE = {"path": "devices[1]/disk[1]/source[1]/@file", "before": PATH, "after": THERE, "definitions": ["live", "persistent"]}


@pytest.fixture
def named(control: Control) -> Control:
    """A guest with an image in a folder that has another name on the second host."""
    control.fleet.guest(disks=(Disk("vda", "file", PATH, False, False),))
    control.variables("kvm1")["kvmfleet_image_map"] = {"fast": "/srv/fast"}
    control.variables("kvm2")["kvmfleet_image_map"] = {"fast": "/data"}
    control.variables("kvm3")["kvmfleet_image_map"] = {"fast": "/srv/fast"}
    return control


def test_check_mode_and_the_record_have_the_changes_and_the_request_of_the_destination(named: Control) -> None:
    foreseen = run_one_move(named, check=True)
    assert named.records() == []
    assert encode(foreseen.record)["rewritten"] == [CHANGE]
    diff = make_result([foreseen], [], [], True)["diff"]
    assert f"web1: {CHANGE['path']}: {PATH}\n" in diff["before"]
    assert f"web1: {CHANGE['path']}: {THERE}\n" in diff["after"]
    job = run_one_move(named)
    assert job.error is None, job.error
    (record,) = named.records()
    assert (record.status, encode(record)["rewritten"]) == (s.COMPLETED, [CHANGE])
    assert record.request["disks"][0]["source"] == THERE
    assert THERE in named.fleet.given_parameters[0]["destination_xml"]


def test_a_host_with_the_same_names_gets_the_definition_as_it_is(named: Control) -> None:
    assert run_one_move(named, destination="kvm3").error is None
    (record,) = named.records()
    assert not record.rewritten
    assert named.fleet.given_parameters == [{}]


@pytest.mark.parametrize("check", [False, True])
def test_a_name_that_only_the_source_knows_is_refused_and_nothing_is_reserved(named: Control, check: bool) -> None:
    del named.variables("kvm2")["kvmfleet_image_map"]
    job = run_one_move(named, check=check)
    assert isinstance(job.error, e.NotSupported)
    assert "Domain web1 cannot get the names of kvm2: kvm2 has no folder 'fast' in kvmfleet_image_map, and /srv/fast is 'fast' on kvm1." in str(job.error)
    assert named.source.phases == ["prepare"]
    assert [[line.status for line in record.history] for record in named.records()] == ([] if check else [[s.ACCEPTED, s.CONFLICT]])


def test_of_several_hosts_the_one_with_the_names_is_chosen(named: Control) -> None:
    del named.variables("kvm2")["kvmfleet_image_map"]
    assert run_one_move(named, destination=None).error is None
    assert named.records()[0].destination.host == "kvm3"


@pytest.mark.parametrize("host", ["kvm1", "kvm2"])
def test_an_invalid_map_is_refused_before_any_host_is_asked(named: Control, host: str) -> None:
    named.variables(host)["kvmfleet_image_map"] = {"fast": "relative"}
    with pytest.raises(e.InvalidArgument, match=f"kvmfleet_image_map of {host} has 'relative' for 'fast'"):
        run_one_move(named)
    assert named.source.phases == []
    assert named.records() == []


def test_the_image_is_looked_for_under_its_name_there(named: Control) -> None:
    named.fleet.machines["kvm2"].paths = {PATH: True, THERE: False}
    with pytest.raises(e.Conflict, match=f"The image {THERE} of disk vda is not there."):
        named.check(name="web1", destination="kvm2")
    named.fleet.machines["kvm2"].paths = {PATH: False, THERE: True}
    assert [verdict["passed"] for verdict in named.check(name="web1", destination="kvm2")["verdicts"]] == [True]


def test_a_disk_that_would_be_copied_to_another_path_is_refused(named: Control) -> None:
    disk = {"verdict": "separate", "why": "", "existing": None, "used_by": [], "available_bytes": 10**12, "same_file": ""}
    image = {"target": "vda", "kind": "file", "path": PATH, "format": "qcow2", "capacity_bytes": 1, "allocation_bytes": 1, "shareable": False}
    renaming = read_renamings(named.settings, "kvm1", {"kvm2": "uri"})
    asked = replace(one_request(name="web1", destination="kvm2", copy_storage="auto"), uris={"kvm2": "uri"}, renamings=renaming)
    needs = DomainRequest(1, 1, disks=(DiskNeed("vda", kind="file", source=PATH),))
    domain = SurveyedDomain(True, {}, request=needs, storage={"uri": [{**disk, "image": {**image, "has_backing": False}}]})
    with pytest.raises(e.NotSupported) as refused:
        check_storage(asked, domain, "kvm1", "kvm2")
    assert f"Disk vda of domain web1 would be copied to kvm2, where kvmfleet_image_map gives it another path ({THERE})." in str(refused.value)
    check_storage(replace(asked, renamings={}), domain, "kvm1", "kvm2")
