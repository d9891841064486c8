# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import request as needs_of_domains
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.local_stores import LocalStores
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.mounts import Mount
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.request import build_request
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.requirements import describe_cpu, describe_start_cpu
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.reading import read_domain_info
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.values import Definition
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policy_documents import POLICY_NAMESPACE, parse_policy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import GuestCpu
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._facts.definitions import VERSIONS, domain

OS = "<os firmware='efi'><type arch='x86_64' machine='pc-q35-7.2'>hvm</type><loader type='pflash'>/usr/share/OVMF.fd</loader>{}</os>"
CPU = "<cpu mode='custom' match='exact'><model>EPYC</model><feature policy='require' name='aes'/><feature policy='disable' name='svm'/></cpu>"
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"


def request(root: ElementTree.Element, policy: str = "", snapshots: bool = False) -> t.Dict[str, t.Any]:
    info = domain_states.DomainInfo(uuid="u", name="web1", view=domain_states.NOT_THERE, **read_domain_info(root))
    return t.cast("t.Dict[str, t.Any]", encode(build_request(Definition(info, root, snapshots), parse_policy(policy), VERSIONS, None, ())))


def test_a_request_is_read_from_a_definition() -> None:
    needs = request(domain(OS.format("<nvram>/var/lib/nvram/web1.fd</nvram>") + CPU, TPM), snapshots=True)
    assert (needs["memory_mib"], needs["vcpus"], needs["arch"], needs["virt_type"], needs["machine"]) == (4096, 4, "x86_64", "kvm", "pc-q35-7.2")
    assert needs["boot_files"] == [{"what": "loader", "path": "/usr/share/OVMF.fd"}]
    assert (needs["hypervisor"], needs["tpm"], needs["loader"], needs["nvram"]) == (7002022, True, "/usr/share/OVMF.fd", "/var/lib/nvram/web1.fd")
    assert {key: needs["cpu"][key] for key in ("mode", "model", "features")} == {
        "mode": "custom",
        "model": "EPYC",
        "features": {"aes": "require", "svm": "disable"},
    }
    assert ElementTree.fromstring(needs["cpu"]["xml"]).findtext("model") == "EPYC"
    assert len(needs["blockers"]) == 1


def test_nvram_is_read_from_its_text_or_source() -> None:
    assert request(domain(OS.format("<nvram type='file'><source file='/n.fd'/></nvram>")))["nvram"] == "/n.fd"
    assert request(domain(OS.format("")))["nvram"] is None


def test_a_definition_without_a_cpu_has_an_empty_cpu_request() -> None:
    assert encode(describe_cpu(domain())) == {"mode": None, "model": None, "features": {}, "xml": None, "package_threads": 1, "shows_threads": None}
    assert describe_cpu(domain("<cpu mode='host-passthrough'/>")).mode == "host-passthrough"


def test_the_cpu_with_which_a_guest_of_host_model_starts_anew() -> None:
    given, asked = domain(CPU), domain("<cpu mode='host-model'><feature policy='require' name='vmx'/></cpu>")
    start_cpu = describe_start_cpu(asked)
    assert isinstance(start_cpu, GuestCpu)
    assert (start_cpu.mode, start_cpu.features, start_cpu.xml) == ("host-model", {"vmx": "require"}, ABSENT)
    assert [describe_start_cpu(configuration) for configuration in (None, given, domain())] == [ABSENT] * 3


def test_a_request_has_the_scheduling_fields_of_the_policy() -> None:
    policy = (
        f"<p:policy xmlns:p='{POLICY_NAMESPACE}'><p:post_copy>true</p:post_copy><p:priority>7</p:priority><p:drain>leave</p:drain>"
        "<p:group name='web' policy='anti-affinity'/><p:labels><p:label>ssd</p:label></p:labels></p:policy>"
    )
    needs = request(domain(), policy)
    assert needs["traits"] == ["COMPUTE_MIGRATE_POST_COPY"]
    assert {key: needs[key] for key in ("priority", "drain", "labels", "group")} == {
        "priority": 7,
        "drain": "leave",
        "labels": ["ssd"],
        "group": {"name": "web", "policy": "anti-affinity"},
    }


HT = "<feature policy='require' name='ht'/><feature policy='require' name='cmp_legacy'/><feature policy='require' name='aes'/>"


@pytest.mark.parametrize(
    ("topology", "threads"),
    [
        ("", 1),
        ("<topology sockets='4' cores='1' threads='1'/>", 1),
        ("<topology sockets='2' cores='2' threads='2'/>", 4),
        ("<topology sockets='1' dies='2' clusters='2' cores='2' threads='1'/>", 8),
    ],
)
def test_cpu_features_that_follow_from_the_topology_are_not_requested(topology: str, threads: int) -> None:
    root = domain(f"<cpu mode='custom' match='exact' check='full'><model>EPYC</model>{topology}{HT}</cpu>")
    cpu = describe_cpu(root)
    assert (cpu.package_threads, cpu.shows_threads) == (threads, True)
    assert set(cpu.features or ()) == ({"aes"} if threads > 1 else {"ht", "cmp_legacy", "aes"})
    assert ('name="ht"' in str(cpu.xml)) == (threads == 1)
    assert len(root.findall("cpu/feature")) == 3


def test_visible_threads_are_known_only_with_a_full_cpu_check() -> None:
    topology = "<model>EPYC</model><topology sockets='1' cores='2' threads='1'/>"
    assert describe_cpu(domain(f"<cpu mode='custom' check='full'>{topology}</cpu>")).shows_threads is False
    for check in ("", "check='none'", "check='partial'"):
        assert describe_cpu(domain(f"<cpu mode='custom' {check}>{topology}</cpu>")).shows_threads is None


DISK = "<disk type='file' device='{}'><source file='/srv/web1.qcow2'/><target dev='vda'/></disk>"


@pytest.mark.parametrize(
    ("state", "hypervisor", "device", "is_replaced", "count"),
    [
        ("paused", 7002022, "disk", False, 1),
        ("paused", 10000000, "disk", True, 1),
        ("paused", 10000000, "disk", False, 0),
        ("paused", 7002022, "cdrom", False, 0),
        ("running", 7002022, "disk", False, 0),
    ],
)
def test_a_guest_that_arrived_paused_cannot_move_before_it_has_run(
    monkeypatch: pytest.MonkeyPatch, state: str, hypervisor: int, device: str, is_replaced: bool, count: int
) -> None:
    monkeypatch.setattr(needs_of_domains, "waits_since_arrival", lambda name: name == "web1")
    monkeypatch.setattr(needs_of_domains, "is_program_replaced", lambda _name: is_replaced)
    root = domain(devices=DISK.format(device))
    view = domain_states.DomainView(present=True, active=True, persistent=True, state=state, reason="user", job=domain_states.JOB_NONE)
    info = domain_states.DomainInfo(uuid="u", name="web1", view=view, **read_domain_info(root))
    stores = LocalStores([Mount("/", "ext4")])
    found = build_request(Definition(info, root), parse_policy(""), {"hypervisor": hypervisor}, stores, ()).blockers
    assert len(found or ()) == count
    assert build_request(Definition(info, root), parse_policy(""), {"hypervisor": hypervisor}, None, ()).blockers == ()
