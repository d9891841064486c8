# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evacuations to survivors that call a bridge, a folder of images or a device by other names than the dead host."""

from __future__ import annotations

import pathlib
import tempfile
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import KINDS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.action import build_result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.evacuation import Evacuation
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.plan import Shares, plan_evacuation
from ansible_collections.kvmfleet.migration.tests.simulator.facts import uuid_of
from ansible_collections.kvmfleet.migration.tests.unit.fakes.starting import definition
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import WORD, Site

BRIDGE = "devices[1]/interface[1]/source[1]/@bridge"
IMAGE = "devices[1]/disk[1]/source[1]/@file"


def name_resources(site: Site, host: str, **maps: t.Mapping[str, t.Any]) -> None:
    site.variables[host] = {KINDS[kind].variable: names for kind, names in maps.items()}


@pytest.fixture
def site() -> t.Iterator[Site]:
    # The folder of temporary files may be below /dev, which no folder of a map is.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Site(pathlib.Path(folder))


@pytest.fixture
def other_names(site: Site) -> pathlib.Path:
    """Give the bridge and the folder of images another name on each survivor; return the folder of kvm2. kvm3 has the names of the dead host."""
    there = site.folder / "nvme"
    there.symlink_to(site.images)
    for host in ("kvm1", "kvm3"):
        name_resources(site, host, bridges={"prod": "br0"}, images={"fast": str(site.images)})
    name_resources(site, "kvm2", bridges={"prod": "br-prod"}, images={"fast": str(there)})
    site.own_facts["kvm2"] = {"bridges": ["br-prod"]}
    return there


def save_named(site: Site, name: str, inside: str = "", **changes: t.Any) -> str:
    """Save a domain whose definition has the names of the dead host."""
    uuid = site.save(name, **changes)
    interface = f"<interface type='bridge'><source bridge='br0'/></interface>{inside}</devices>"
    text = definition(uuid, name, str(site.images / f"{name}.qcow2")).replace("</devices>", interface)

    def complete(body: dict[str, t.Any]) -> None:
        body["protected"] |= {"definition": text}
        body["protected"]["request"]["networks"] = [{"type": "bridge", "source": "br0"}]

    site.change(name, complete)
    return uuid


def errors(run: Evacuation) -> dict[str, str]:
    return {job.name: str(job.error) for job in run.jobs if job.error}


def plan(site: Site, **given: t.Any) -> tuple[Evacuation, Shares]:
    run = site.evacuation(force_down=WORD, **given)
    probed = run.probe_fleet()
    run.reuse_evidence(probed)
    return run, plan_evacuation(run, probed, ("kvm2", "kvm3"))


def test_a_domain_starts_with_the_names_of_its_new_host(site: Site, other_names: pathlib.Path) -> None:
    save_named(site, "web")
    foreseen = build_result(predicted(site), diff=True)
    image = str(other_names / "web.qcow2")
    assert foreseen["diff"] == {
        "before": f"web: kvm1\nweb: {IMAGE}: {site.images}/web.qcow2\nweb: {BRIDGE}: br0\n",
        "after": f"web: kvm2\nweb: {IMAGE}: {image}\nweb: {BRIDGE}: br-prod\n",
    }
    assert site.running() == {}
    run = site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    started = site.hosts["kvm2"].definitions["web"]
    assert f"file='{image}'" in started
    assert "bridge='br-prod'" in started
    (record,) = site.ledger.list_records()
    assert {(one.path, one.before, one.after) for one in record.rewritten or ()} == {
        (IMAGE, str(site.images / "web.qcow2"), image),
        (BRIDGE, "br0", "br-prod"),
    }
    assert record.request["networks"] == [{"type": "bridge", "source": "br-prod"}]
    assert encode(record)["rewritten"] == build_result(run, diff=False)["evacuations"][0]["rewritten"] == foreseen["evacuations"][0]["rewritten"]
    # What was saved keeps the names of the host that it was saved on; its images are found on the way home by them.
    assert encode(record.before)["disks"][0]["path"] == str(site.images / "web.qcow2")
    (document,) = site.ledger.list_domains()
    assert "bridge='br0'" in document.body["protected"]["definition"]


def predicted(site: Site) -> Evacuation:
    run = site.evacuation(check=True, force_down=WORD)
    run.evacuate_domains()
    return run


def test_a_survivor_with_the_same_names_gets_the_definition_that_was_saved(site: Site, other_names: pathlib.Path) -> None:
    save_named(site, "web")
    site.evacuate("kvm3")
    assert "bridge='br0'" in site.hosts["kvm3"].definitions["web"]
    (record,) = site.ledger.list_records()
    assert not record.rewritten


def test_each_survivor_is_judged_by_its_own_names(site: Site, other_names: pathlib.Path) -> None:
    """The plan is made on kvm2, which has no name for the bridge; kvm3 has."""
    name_resources(site, "kvm2", images={"fast": str(other_names)})
    uuid = save_named(site, "web")
    dummy, shares = plan(site)
    assert shares.by_host == {"kvm2": [], "kvm3": [uuid]}
    site.own_facts["kvm3"] = {"bridges": ["br7"]}
    dummy, shares = plan(site)
    (uncovered,) = shares.uncovered
    assert "kvm2 has no bridge 'prod' in kvmfleet_bridge_map, and br0 is 'prod' on kvm1." in uncovered.reasons["kvm2"]
    assert "It has no bridge br0." in uncovered.reasons["kvm3"]
    name_resources(site, "kvm3", bridges={"prod": "br7"}, images={"fast": str(site.images)})
    assert plan(site)[1].by_host == {"kvm2": [], "kvm3": [uuid]}


def test_the_plan_refuses_what_only_the_definition_shows(site: Site, other_names: pathlib.Path) -> None:
    """The address of a console is no requirement of a domain."""
    inside = "<graphics type='vnc' listen='10.0.0.1'/>"
    uuid = save_named(site, "web", inside)
    for host in ("kvm1", "kvm3"):
        site.variables[host]["kvmfleet_graphics_map"] = {"console": "10.0.0.1"}
    assert plan(site)[1].by_host == {"kvm2": [], "kvm3": [uuid]}


def test_a_definition_that_cannot_be_rewritten_is_not_started_and_others_are(site: Site, other_names: pathlib.Path) -> None:
    device = "<hostdev mode='subsystem' type='pci'><source><address domain='0x0000' bus='0x41' slot='0x00' function='0x0'/></source></hostdev>"
    for host, address in (("kvm1", "0000:41:00.0"), ("kvm2", "1:4")):
        site.variables[host]["kvmfleet_device_map"] = {"gpu": address}
    save_named(site, "gpu", device)
    save_named(site, "web")
    run = site.evacuate()
    assert site.running() == {"kvm2": ["web"]}
    assert list(errors(run)) == ["gpu"]
    assert "Domain gpu cannot be started on kvm2: 0000:41:00.0 on kvm1 and 1:4 on kvm2 are devices of different kinds" in errors(run)["gpu"]
    assert build_result(run, diff=False)["error_code"] == "not_supported"
    assert sorted(line[:2] for line in site.record_summaries()) == [("gpu", "conflict"), ("web", "done")]
    assert "gpu" not in site.hosts["kvm2"].definitions


def test_a_map_to_a_bridge_that_the_survivor_does_not_have_is_refused(site: Site, other_names: pathlib.Path) -> None:
    site.variables["kvm2"]["kvmfleet_bridge_map"] = {"prod": "br-nowhere"}
    save_named(site, "web")
    run = site.evacuate()
    assert "It has no bridge br-nowhere." in errors(run)["web"]
    assert (site.running(), site.possible("web")) == ({}, ["kvm1"])


def test_an_invalid_map_starts_nothing(site: Site, other_names: pathlib.Path) -> None:
    site.variables["kvm2"]["kvmfleet_bridge_map"] = {"prod": "br-prod", "test": "br-prod"}
    save_named(site, "web")
    run = site.evacuate()
    assert "kvmfleet_bridge_map of kvm2 gives 'br-prod' two names" in errors(run)["web"]
    assert site.running() == {}


def test_a_map_to_a_folder_with_other_images_is_refused(site: Site, other_names: pathlib.Path) -> None:
    other_names.unlink()
    other_names.mkdir()
    (other_names / "web.qcow2").touch()
    save_named(site, "web")
    run = site.evacuate()
    assert f"the token that its host left in {other_names} is not visible on this host" in errors(run)["web"]
    assert site.running() == {}


def test_locks_are_looked_for_where_the_survivor_has_the_image(site: Site, other_names: pathlib.Path) -> None:
    save_named(site, "web")
    site.locked = {"web"}
    site.agent()
    run = site.evacuate()
    image = site.images / "web.qcow2"
    assert f"{other_names / 'web.qcow2'} ({image} on kvm1) is still open for writing" in errors(run)["web"]
    assert {path for paths, _wait in site.waits for path in paths} == {str(other_names / "web.qcow2")}
    # The decision names the image as the definition names it.
    run = site.evacuate(accept_locked={"reason": "The lock is of NFS 3.", "images": [str(image)]})
    assert (errors(run), site.running()) == ({}, {"kvm2": ["web"]})
    record = site.ledger.list_records(domain="web")
    evidence = [one for one in encode(max(record, key=lambda one: one.generation))["evidence"] if one["kind"] == "accepted_locks"]
    assert [one["images"] for one in evidence] == [[str(other_names / "web.qcow2")]]


def test_the_definition_has_the_names_of_the_host_that_it_was_saved_on(site: Site, other_names: pathlib.Path) -> None:
    """The domain was saved on kvm1, moved to kvm3, and kvm3 died before it protected the domain."""
    name_resources(site, "kvm3", bridges={"prod": "br7"}, images={"fast": "/srv/elsewhere"})
    save_named(site, "web", on="kvm3")
    site.silent = {"kvm1", "kvm3"}
    run = site.evacuate(source="kvm3", accept_silent=["kvm1"])
    assert (errors(run), site.running()) == ({}, {"kvm2": ["web"]})
    assert "bridge='br-prod'" in site.hosts["kvm2"].definitions["web"]


def test_a_start_that_an_earlier_run_began_by_other_maps_is_settled_only(site: Site, other_names: pathlib.Path) -> None:
    """The first run dies right before the start; then the bridge loses its name."""
    save_named(site, "web")
    site.before_start = lambda: (never for never in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        site.evacuate()
    site.before_start = lambda: None
    site.variables["kvm2"].pop("kvmfleet_bridge_map")
    run = site.evacuate()
    assert "kvm2 has no bridge 'prod' in kvmfleet_bridge_map" in errors(run)["web"]
    assert (site.running(), site.record_summaries()) == ({}, [("web", "failed", "kvm2")])


def test_a_start_that_an_earlier_run_made_by_other_maps_is_kept(site: Site, other_names: pathlib.Path) -> None:
    save_named(site, "web")
    site.after_start = lambda: (never for never in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        site.evacuate()
    site.after_start = lambda: None
    site.variables["kvm2"].pop("kvmfleet_bridge_map")
    run = site.evacuate()
    assert (errors(run), site.record_summaries()) == ({}, [("web", "done", "kvm2")])
    assert "bridge='br-prod'" in site.hosts["kvm2"].definitions["web"]


def test_a_domain_that_stays_off_is_rewritten_too(site: Site, other_names: pathlib.Path) -> None:
    save_named(site, "idle", state="shut off")
    site.evacuate()
    assert "bridge='br-prod'" in site.hosts["kvm2"].definitions["idle"]
    assert not site.hosts["kvm2"].view_domain(uuid_of("idle")).active


def test_firmware_variables_are_proved_where_the_survivor_has_them(site: Site, other_names: pathlib.Path) -> None:
    uuid = save_named(site, "web")
    nvram = site.images / "web.fd"
    nvram.touch()

    def complete(body: dict[str, t.Any]) -> None:
        saved = body["protected"]
        saved["definition"] = saved["definition"].replace("<devices>", f"<os><type>hvm</type><nvram>{nvram}</nvram></os><devices>")
        file = {"what": "nvram", "kind": "file", "path": str(nvram), "folders": [str(site.images)], "present": True, "seen_by": saved["disks"][0]["seen_by"]}
        saved |= {"nvram": str(nvram), "files": [file]}

    site.change("web", complete)
    looks: list[t.Any] = []
    phase = site.phase
    site.phase = lambda on, name, work: (looks.append(work) if name == "look" else None, phase(on, name, work))[1]  # type: ignore[method-assign]
    run = site.evacuate()
    assert (errors(run), site.running()) == ({}, {"kvm2": ["web"]})
    (domain,) = looks[0]["domains"]
    assert (domain["uuid"], domain["files"][0]["path"], domain["files"][0]["folders"]) == (uuid, str(other_names / "web.fd"), [str(other_names)])
    assert f"<nvram>{other_names}/web.fd</nvram>" in site.hosts["kvm2"].definitions["web"]
