# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""XML of libvirt: definitions of domains, the policy in their metadata, what a host tells of its devices."""

from __future__ import annotations

import contextlib
import json
import typing as t
from xml.sax.saxutils import escape, quoteattr

from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.start_checks import check_definition
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.request import build_request
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.folders import _parse_volume as volume_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.hardware import _describe_device as device_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.hardware import _list_platforms as platforms_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.reading import parse_domain_xml, read_domain_info
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.values import Definition
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states, policy_documents
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import StoragePool
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import parse_libvirt_xml
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import SavedDisk
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.policies import effective_policy
from ansible_collections.kvmfleet.migration.tests.unit.fakes.orders import restart_order

from ..mutation import mutated
from ..target import Target

UUID = "00000000-0000-4000-8000-000000000001"
VERSIONS = {"libvirt": 9000000, "hypervisor": 7002022}
# What every vCPU of the largest guest pinned to a few CPUs takes.
_MOST_CHARACTERS = 2**20
POOLS = (StoragePool("default", "dir", path="/srv"),)

# An element as [name, attributes, text, elements].
Tree = t.Any


def _tree(tag: str, text: str = "", /, *inner: Tree, **attributes: str) -> Tree:
    return [tag, attributes, text, list(inner)]


_POLICY = _tree(
    "p:policy",
    "",
    _tree("p:post_copy", "true"),
    _tree("p:timeout_seconds", "300"),
    _tree("p:on_timeout", "abort"),
    _tree("p:priority", "-7"),
    _tree("p:drain", "leave"),
    _tree("p:profile", "gold"),
    _tree("p:group", "", name="web", policy="anti-affinity", max_per_host="1"),
    _tree("p:labels", "", _tree("p:label", "ssd"), _tree("p:label", "x")),
    **{"xmlns:p": policy_documents.POLICY_NAMESPACE},
)
_DISK = _tree("disk", "", _tree("driver", type="qcow2"), _tree("source", file="/srv/a.qcow2"), _tree("target", dev="vda"), type="file", device="disk")
_VOLUME = _tree("disk", "", _tree("source", pool="default", volume="b"), _tree("target", dev="vdb"), type="volume")
_NETWORK_DISK = _tree(
    "disk", "", _tree("source", "", _tree("host", name="mon", port="6789"), protocol="nbd", name="rbd/c"), _tree("target", dev="vdc"), type="network"
)
_PCI = _tree("address", domain="0x0000", bus="0x06", slot="0x12", function="0x5")
_DOMAIN = _tree(
    "domain",
    "",
    _tree("name", "web1"),
    _tree("uuid", UUID),
    _tree("metadata", "", _POLICY),
    _tree("memory", "1048576", unit="KiB"),
    _tree("vcpu", "4", placement="static", cpuset="0-3,^2"),
    _tree("cputune", "", _tree("vcpupin", vcpu="0", cpuset="1"), _tree("emulatorpin", cpuset="0-1")),
    _tree("numatune", "", _tree("memory", mode="strict", nodeset="0-1"), _tree("memnode", cellid="0", mode="strict", nodeset="1")),
    _tree("memoryBacking", "", _tree("hugepages", "", _tree("page", size="2048", unit="KiB", nodeset="0"), _tree("page", size="1", unit="GiB"))),
    _tree("os", "", _tree("type", "hvm", arch="x86_64", machine="pc-q35-7.2"), _tree("loader", "/usr/share/OVMF.fd"), _tree("nvram", "/var/lib/nvram/a.fd")),
    _tree(
        "cpu",
        "",
        _tree("model", "EPYC"),
        _tree("feature", policy="require", name="invtsc"),
        _tree("numa", "", _tree("cell", id="0", cpus="0-3", memory="1048576", unit="KiB")),
        mode="custom",
    ),
    _tree("clock", "", _tree("timer", name="tsc", frequency="1")),
    _tree(
        "devices",
        "",
        _tree("emulator", "/usr/bin/qemu-system-x86_64"),
        _DISK,
        _VOLUME,
        _NETWORK_DISK,
        _tree("interface", "", _tree("source", network="default", bridge="virbr0"), type="network"),
        _tree("interface", "", _tree("source", "", _PCI), type="hostdev"),
        _tree("hostdev", "", _tree("source", "", _PCI, _tree("vendor", id="0x8086")), _tree("teaming", type="transient"), mode="subsystem", type="pci"),
        _tree(
            "hostdev",
            "",
            _tree("source", "", _tree("adapter", name="scsi_host2"), _tree("address", bus="0", target="1", unit="2")),
            mode="subsystem",
            type="scsi",
        ),
        _tree("filesystem", "", _tree("driver", type="virtiofs"), _tree("target", dir="tag")),
        _tree("tpm", "", _tree("backend", type="emulator")),
        _tree("shmem", "", name="s", role="peer"),
    ),
    type="kvm",
)


def xml_of(tree: Tree) -> str:
    """Return the XML of a tree, of a spoilt one what can be made of it: a list is an element, anything else is text."""
    if not isinstance(tree, list) or len(tree) != 4:
        return escape(_text(tree))
    name, attributes, text, inner = tree
    pairs = attributes.items() if isinstance(attributes, dict) else ()
    inside = "".join(map(xml_of, inner)) if isinstance(inner, list) else _text(inner)
    tag = _text(name)
    return f"<{tag}{''.join(f' {key}={quoteattr(_text(value))}' for key, value in pairs)}>{escape(_text(text))}{inside}</{tag}>"


def _text(value: t.Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def check_tree(tree: Tree) -> None:
    """Read the XML of a tree as a definition."""
    check_text(xml_of(tree))


def check_bytes(data: bytes) -> None:
    """Read bytes, as libvirt's binding makes a text of them, as a definition."""
    check_text(data.decode("utf-8", "surrogateescape"))


def check_text(xml: str) -> None:
    """Read a text as a definition: what facts, policies, storage and evacuations take out of it. Each may refuse it by itself."""
    with contextlib.suppress(e.KvmfleetError):
        _check_order(xml)
    root = parse_domain_xml(xml)
    info = domain_states.DomainInfo(uuid=UUID, name="web1", view=domain_states.NOT_THERE, **read_domain_info(root))
    own = policy_documents.parse_policy(info.policy_xml)
    request = build_request(Definition(info, root), own, VERSIONS, None, POOLS)
    assert len(json.dumps(encode(request))) < 100 * len(xml) + _MOST_CHARACTERS, "a short definition makes a huge request"


def _check_order(xml: str) -> None:
    proved = tuple(SavedDisk(target, "file", path, False, False, ()) for target, path in (("vda", "/srv/a.qcow2"), ("vdb", "/srv/b"), ("vdc", "rbd/c")))
    sources = (("vda", "/srv/a.qcow2"), ("vdb", "default/b"), ("vdc", "rbd/c"))
    check_definition(restart_order(UUID, "web1", xml, sources, proved), ["/usr/bin/qemu-system-x86_64"], lambda: POOLS)


def check_policy_tree(tree: Tree) -> None:
    """Read the XML of a tree as a policy."""
    check_policy(xml_of(tree).encode("utf-8", "surrogatepass"))


def check_policy(data: bytes) -> None:
    """Read bytes as the element of a policy, change it and write it again."""
    xml = data.decode("utf-8", "surrogateescape")
    own = policy_documents.parse_policy(xml)
    assert policy_documents.is_same_policy(xml, xml)
    if not own.wrong:
        assert effective_policy(own.check_values("domain web1"), {}, {"priority": 3}).warning != ""
    changed = policy_documents.change_policy(xml, {"priority": 5, "labels": ["a"], "group": {"name": "g", "policy": "affinity"}}, ["drain"])
    again = policy_documents.parse_policy(changed)
    assert again.values["priority"] == 5
    assert again.values["labels"] == ["a"]
    assert "drain" not in again.values


_VOLUME_OF_A_POOL = _tree(
    "volume",
    "",
    _tree("name", "a.qcow2"),
    _tree("capacity", "1073741824", unit="bytes"),
    _tree("allocation", "4096", unit="bytes"),
    _tree("target", "", _tree("format", type="qcow2"), _tree("timestamps", "", _tree("ctime", "1700000000.123"))),
    _tree("backingStore", "", _tree("path", "/srv/base.qcow2")),
)
_PARTS = (_tree("domain", "0"), _tree("bus", "6"), _tree("slot", "18"), _tree("function", "5"), _tree("vendor", id="0x8086"), _tree("class", "0x020000"))
_NODE_DEVICE = _tree("device", "", _tree("name", "pci_0"), _tree("capability", "", *_PARTS, type="pci"))
_GUEST = _tree("arch", "", _tree("emulator", "/usr/bin/qemu"), _tree("machine", "pc-q35-7.2", maxCpus="288"), _tree("domain", type="kvm"), name="x86_64")
_CAPABILITIES = _tree("capabilities", "", _tree("guest", "", _tree("os_type", "hvm"), _GUEST))


def check_host_tree(case: tuple[str, Tree]) -> None:
    """Read the XML of a tree as what libvirt tells of a volume, of a device, or of itself."""
    kind, xml = case[0], xml_of(case[1])
    if kind == "volume":
        volume_of(xml)
    elif kind == "device":
        device_of(parse_libvirt_xml(xml, "a device"))
    else:
        list(platforms_of(parse_libvirt_xml(xml, "its capabilities")))


_HOST_TREES = {"volume": _VOLUME_OF_A_POOL, "device": _NODE_DEVICE, "capabilities": _CAPABILITIES}

TARGETS = [
    Target("host_xml_tree", check_host_tree, st.one_of(*(st.tuples(st.just(kind), mutated(tree)) for kind, tree in _HOST_TREES.items()))),
    Target("domain_xml_tree", check_tree, mutated(_DOMAIN)),
    Target.of_bytes(
        "domain_xml", check_bytes, xml_of(_DOMAIN).encode(), b"<domain type='kvm'><name>w</name><memory unit='MiB'>1</memory><vcpu>1</vcpu></domain>"
    ),
    Target("policy_tree", check_policy_tree, mutated(_POLICY)),
    Target.of_bytes("policy_element", check_policy, xml_of(_POLICY).encode(), b"<policy><priority>1</priority></policy>"),
]
