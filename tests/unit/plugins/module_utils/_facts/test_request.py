# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.cpu import cpu_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.ports import Definition
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.request import request_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.domain import info_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.document import NAMESPACE, parse
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._facts.definitions import VERSIONS, domain

OS = "<os firmware='efi'><type arch='x86_64' machine='pc-q35-7.2'>hvm</type><loader type='pflash'>/usr/share/OVMF.fd</loader>{}</os>"
CPU = "<cpu mode='custom' match='exact'><model>EPYC</model><feature policy='require' name='aes'/><feature policy='disable' name='svm'/></cpu>"
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"


def request(root: ElementTree.Element, policy: str = "", snapshots: bool = False) -> t.Dict[str, t.Any]:
    info = h.DomainInfo(uuid="u", name="web1", view=h.NOT_THERE, **info_of(root))
    return request_of(Definition(info, root, snapshots), parse(policy), VERSIONS, None, ())


def test_what_a_definition_needs_of_a_host() -> None:
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


def test_nvram_may_be_a_source() -> None:
    assert request(domain(OS.format("<nvram type='file'><source file='/n.fd'/></nvram>")))["nvram"] == "/n.fd"
    assert request(domain(OS.format("")))["nvram"] is None


def test_a_definition_without_a_cpu() -> None:
    assert cpu_of(domain()) == {"mode": None, "model": None, "features": {}, "xml": None, "package_threads": 1, "shows_threads": None}
    assert cpu_of(domain("<cpu mode='host-passthrough'/>"))["mode"] == "host-passthrough"


def test_what_its_policy_says_of_its_place() -> None:
    policy = (
        f"<p:policy xmlns:p='{NAMESPACE}'><p:post_copy>true</p:post_copy><p:priority>7</p:priority><p:drain>leave</p:drain>"
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
def test_what_qemu_makes_of_a_topology_no_host_has_to_give(topology: str, threads: int) -> None:
    root = domain(f"<cpu mode='custom' match='exact' check='full'><model>EPYC</model>{topology}{HT}</cpu>")
    cpu = cpu_of(root)
    assert (cpu["package_threads"], cpu["shows_threads"]) == (threads, True)
    assert set(cpu["features"]) == ({"aes"} if threads > 1 else {"ht", "cmp_legacy", "aes"})
    assert ('name="ht"' in cpu["xml"]) == (threads == 1)
    assert len(root.findall("cpu/feature")) == 3


def test_what_a_guest_sees_of_its_threads_is_known_only_of_one_that_libvirt_asked() -> None:
    topology = "<model>EPYC</model><topology sockets='1' cores='2' threads='1'/>"
    assert cpu_of(domain(f"<cpu mode='custom' check='full'>{topology}</cpu>"))["shows_threads"] is False
    for check in ("", "check='none'", "check='partial'"):
        assert cpu_of(domain(f"<cpu mode='custom' {check}>{topology}</cpu>"))["shows_threads"] is None
