# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.identity import AUTO_CONVERGE, POST_COPY, probe_traits

OLD = {"libvirt": 9000000, "hypervisor": 7002022}
NEW = {"libvirt": 11003000, "hypervisor": 10000000}
QEMU_UID = 64055


class Host:
    def __init__(self, versions: t.Dict[str, int], uid: t.Optional[int], uri: str = "qemu:///system") -> None:
        self._versions, self._uid, self.uri = versions, uid, uri

    def read_versions(self) -> t.Dict[str, int]:
        return self._versions

    def emulator_uid(self) -> t.Optional[int]:
        return self._uid


Files = t.Callable[..., str]


@pytest.fixture
def files(tmp_path: pathlib.Path) -> Files:
    """Return a function that lays out a host's files and returns their root."""

    def lay(sysctl: t.Optional[str] = "0\n", device: bool = True, conf: t.Optional[str] = "", release: str = "6.1.0-18-amd64") -> str:
        named = {"proc/sys/vm/unprivileged_userfaultfd": sysctl, "proc/sys/kernel/osrelease": release, "etc/libvirt/qemu.conf": conf}
        named["dev/userfaultfd"] = "" if device else None
        for name, content in named.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is not None:
                path.write_text(content)
        return str(tmp_path)

    return lay


def post_copy(host: Host, root: str) -> t.Optional[bool]:
    found = probe_traits(host, root)
    assert sorted([*found.traits, *found.unverified, *found.missing_traits]) == [AUTO_CONVERGE, POST_COPY]
    return None if POST_COPY in found.unverified else POST_COPY in found.traits


def test_qemu_as_root_has_post_copy_locally_and_remotely(files: Files) -> None:
    assert post_copy(Host(OLD, 0), files()) is True
    assert post_copy(Host(OLD, 0, "qemu+tcp://kvm2/system"), files()) is True


def test_the_sysctl_decides_for_qemu_without_root(files: Files) -> None:
    assert post_copy(Host(OLD, QEMU_UID), files(sysctl="1\n")) is True
    root = files(sysctl="0\n")
    assert post_copy(Host(OLD, QEMU_UID), root) is False
    assert str(QEMU_UID) in probe_traits(Host(OLD, QEMU_UID), root).missing_traits[POST_COPY]


def test_a_kernel_before_the_sysctl_permits_userfaultfd(files: Files) -> None:
    assert post_copy(Host(OLD, QEMU_UID), files(sysctl=None, release="4.18.0-553.el8")) is True


@pytest.mark.parametrize("release", ["5.14.0", "strange", "4" * 5001 + ".1", "4." + "1" * 5001])
def test_a_newer_kernel_without_the_sysctl_has_no_userfaultfd(files: Files, release: str) -> None:
    assert post_copy(Host(OLD, QEMU_UID), files(sysctl=None, release=release)) is False


@pytest.mark.parametrize(
    ("versions", "device", "conf", "expected"),
    [
        (NEW, True, "", True),
        (NEW, True, None, True),
        (NEW, False, "", False),
        ({**NEW, "libvirt": 10000000}, True, "", False),
        ({**NEW, "hypervisor": 7002022}, True, "", False),
        (NEW, True, "namespaces = [ ]\n", False),
        (NEW, True, '#namespaces = [ ]\nnamespaces = [ "mount" ]\n', True),
        (NEW, True, 'cgroup_device_acl = [\n  "/dev/null",\n  "/dev/kvm"\n]\n', False),
        (NEW, True, 'cgroup_device_acl = [\n  "/dev/null",\n  "/dev/userfaultfd"\n]\n', True),
    ],
)
def test_a_new_libvirt_passes_the_userfaultfd_device_unless_configured_otherwise(
    files: Files, versions: t.Dict[str, int], device: bool, conf: t.Optional[str], expected: bool
) -> None:
    assert post_copy(Host(versions, QEMU_UID), files(device=device, conf=conf)) is expected


def test_an_unreadable_configuration_leaves_post_copy_unverified(files: Files) -> None:
    root = files(conf=None)
    pathlib.Path(root, "etc/libvirt/qemu.conf").mkdir()
    assert post_copy(Host(NEW, QEMU_UID), root) is None


def test_a_configuration_in_a_folder_that_cannot_be_searched_is_not_taken_for_missing(files: Files) -> None:
    root = files(conf=None)
    # Neither can be read, and only the second is known to be missing.
    pathlib.Path(root, "etc/libvirt/qemu.conf").symlink_to("qemu.conf")
    found = probe_traits(Host(NEW, QEMU_UID), root)
    assert (POST_COPY in found.traits, found.unverified) == (False, {POST_COPY: "only root can read it on the host (/etc/libvirt/qemu.conf)"})
    pathlib.Path(root, "etc/libvirt/qemu.conf").unlink()
    assert post_copy(Host(NEW, QEMU_UID), root) is True


def test_post_copy_is_unverified_remotely_and_without_a_known_user(files: Files) -> None:
    assert post_copy(Host(OLD, QEMU_UID, "qemu+ssh://kvm2/system"), files(sysctl="1")) is None
    assert post_copy(Host(OLD, None), files(sysctl="0")) is None
    assert post_copy(Host(OLD, None), files(sysctl="1")) is True


def test_an_old_qemu_has_neither_trait(files: Files) -> None:
    found = probe_traits(Host({"libvirt": 1002000, "hypervisor": 2000000}, 0), files())
    assert (found.traits, found.unverified) == ((), {})
    assert sorted(found.missing_traits) == [AUTO_CONVERGE, POST_COPY]
