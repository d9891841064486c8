# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which release a host runs, and from where another one comes."""

from __future__ import annotations

import os
import pathlib
import stat

import pytest
from kvmlab import fleet, hostfiles, machineapt, releaseroot, releases
from kvmlab.errors import LabError, UsageError
from kvmlab.layout import Lab

TARGETS = """\
http://mirror.example/other/ other main
http://mirror.example/debian/ bookworm contrib
http://mirror.example/debian/ bookworm main
http://mirror.example/debian/ bookworm-updates main
"""
DUMP = """\
APT "";
APT::Architecture "amd64";
Acquire "";
Acquire::http "";
Acquire::http::Proxy "http://proxy.example:3128";
Acquire::Check-Valid-Until "false";
Acquire::IndexTargets::deb::Packages::MetaKey "$(COMPONENT)/binary-$(ARCHITECTURE)/Packages";
Acquire::CompressionTypes::xz "xz";
Acquire::Languages "none";
Dpkg::Post-Invoke:: "something of this machine";
"""


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> Lab:
    lab = Lab("kvm", tmp_path / "labs")
    lab.state.mkdir(parents=True)
    return lab


def known(*, hosts: int, releases: dict[str, str]) -> dict[str, object]:
    return {"hosts": hosts, "releases": releases}


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([], {}),
        (["trixie"], {1: "trixie", 2: "trixie", 3: "trixie"}),
        (["trixie:3"], {3: "trixie"}),
        (["trixie:1,3", "bookworm:2"], {1: "trixie", 3: "trixie", 2: "bookworm"}),
        (["trixie:3", "trixie:3"], {3: "trixie"}),
    ],
)
def test_a_release_is_for_all_hosts_or_for_some(values: list[str], found: dict[int, str]) -> None:
    assert releases.wanted(values, 3) == found


@pytest.mark.parametrize(
    "value", ["", "trixie:", "trixie:0", "trixie:1;2", "trixie:10", "../trixie", "/etc", "-o", "trixie:1,", "Trixie", "trixie:4", "trixie\n"]
)
def test_an_invalid_release_or_host_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match=r"trixie:1,3|the lab has 3"):
        releases.wanted([value], 3)


def test_a_host_runs_one_release() -> None:
    with pytest.raises(UsageError, match="host 2 cannot run both trixie and sid"):
        releases.wanted(["trixie", "sid:2"], 3)


@pytest.mark.parametrize("name", ["", "..", ".trixie.x", "a/b", "trixie:1", "-x", "trixie\n"])
def test_a_name_that_could_be_another_folder_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="code name"):
        releases.checked(name)


@pytest.mark.parametrize(
    ("text", "name"),
    [("ID=debian\nVERSION_CODENAME=bookworm\n", "bookworm"), ('VERSION_CODENAME="noble"\nUBUNTU_CODENAME=x\n', "noble"), ("ID=arch\n", "machine")],
)
def test_the_release_of_the_machine_is_read_from_os_release(tmp_path: pathlib.Path, text: str, name: str) -> None:
    path = tmp_path / "os-release"
    path.write_text(text)
    assert releases.own(path) == name
    assert releases.own(tmp_path / "missing") == "machine"


@pytest.mark.parametrize(
    ("codename", "uri"), [("bookworm", "http://mirror.example/debian/"), ("sid", "http://mirror.example/other/"), ("other", "http://mirror.example/other/")]
)
def test_packages_come_from_the_mirror_of_the_machine(codename: str, uri: str) -> None:
    assert machineapt.mirror_of(TARGETS, codename) == uri
    assert machineapt.mirror_of("", codename) is None


def test_only_the_acquire_settings_of_apt_are_copied() -> None:
    assert machineapt.settings_of(DUMP) == 'Acquire::http::Proxy "http://proxy.example:3128";\nAcquire::Check-Valid-Until "false";\n'


def test_credentials_of_apt_are_removed_from_a_root(tmp_path: pathlib.Path) -> None:
    (tmp_path / "etc/apt/auth.conf.d").mkdir(parents=True)
    (tmp_path / "etc/apt/auth.conf.d/mirror.conf").write_text("machine mirror.example login me password secret\n")
    machineapt.forget_secrets(tmp_path)
    assert not (tmp_path / "etc/apt/auth.conf.d").exists()


def test_a_missing_debootstrap_is_named_with_its_package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvmlab.requirements.find_program", lambda program: None)
    with pytest.raises(LabError, match="apt install -y --no-install-recommends debootstrap"):
        releaseroot.ensure(tmp_path / "cache", "trixie")
    assert not (tmp_path / "cache").exists()


class Tools:
    """Debootstrap and apt as programs that leave a mark, or fail, in a folder that stands before the machine's in the path."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir()
        # What gives a program mounts of its own needs root.
        self.write("unshare", 'while [ "${1#--}" != "$1" ]; do [ "$1" = --propagation ] && shift; shift; done; exec "$@"')
        self.write("apt-get", 'echo "http://mirror.example/debian/ bookworm main"')
        self.write("apt-config", 'echo "Acquire::Retries \\"3\\";"')
        self.write("debootstrap", 'mkdir -p "$3/etc/apt/apt.conf.d" "$3/usr/sbin"; echo "$2 $4" > "$3/made"')

    def write(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    tools = Tools(tmp_path / "tools")
    monkeypatch.setenv("PATH", str(tools.folder), prepend=os.pathsep)
    # What is installed in the new root is nothing that a unit test can run.
    monkeypatch.setattr(releaseroot, "ENTER", 'echo "$@" > "$1/installed"')
    return tools


def test_a_root_is_created_completely_and_only_once(tmp_path: pathlib.Path, tools: Tools) -> None:
    cache = tmp_path / "cache"
    torn = cache / ".trixie.torn"
    torn.mkdir(parents=True)
    root = releaseroot.ensure(cache, "trixie")
    assert root == cache / "trixie"
    assert (root / "made").read_text().split() == ["trixie", "http://mirror.example/debian/"]
    assert "qemu-system-x86" in (root / "installed").read_text()
    assert (root / "etc/apt/sources.list").read_text() == "deb http://mirror.example/debian/ trixie main\n"
    assert stat.S_IMODE(root.stat().st_mode) == 0o755
    tools.write("debootstrap", "exit 1")
    assert releaseroot.ensure(cache, "trixie") == root
    assert [path.name for path in cache.iterdir()] == ["trixie"]


def test_an_incomplete_root_is_removed(tmp_path: pathlib.Path, tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releaseroot, "ENTER", "echo no room >&2; exit 100")
    with pytest.raises(LabError, match="no room"):
        releaseroot.ensure(tmp_path / "cache", "trixie")
    assert not (tmp_path / "cache").exists()


def test_a_running_host_keeps_its_release(lab: Lab) -> None:
    trixie = pathlib.Path("/cache/trixie")
    assert fleet.new_roots(lab, known(hosts=0, releases={}), {"kvm1": None, "kvm3": trixie}) == {"kvm3": "/cache/trixie"}
    assert fleet.new_roots(lab, known(hosts=1, releases={"kvm1": "/cache/trixie"}), {"kvm1": trixie, "kvm2": trixie})["kvm2"] == "/cache/trixie"
    for there, asked in ({}, trixie), ({"kvm1": "/cache/trixie"}, None), ({"kvm1": "/cache/sid"}, trixie):
        with pytest.raises(UsageError, match="release kvm1"):
            fleet.new_roots(lab, known(hosts=1, releases=there), {"kvm1": asked})


def test_passwd_keeps_the_users_of_the_release(tmp_path: pathlib.Path) -> None:
    (tmp_path / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\nsshd:x:997:65534::/run/sshd:/usr/sbin/nologin\n")
    users = hostfiles.passwd(tmp_path, pathlib.Path("/state/home-root"), pathlib.Path("/state/home-operator")).splitlines()
    assert users[0].split(":")[5] == "/state/home-root"
    assert users[1].startswith("sshd:x:997:")
    assert users[2].startswith("operator:x:4777:")
