# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Encrypted moves: with certificates of the hosts' own, with one for another name, and with one of a stranger."""

from __future__ import annotations

import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

from .conftest import WEB, Disks

Make = t.Callable[..., str]
FOLDER = "/etc/libvirt/pki-qemu"
SETTINGS = f'default_tls_x509_cert_dir = "{FOLDER}"\\ndefault_tls_x509_verify = 1\\n'


class Authority:
    """A certificate authority in a folder of the control node."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self._openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca-key.pem", "-out", "ca-cert.pem", "-days", "2", "-subj", f"/CN={name}")

    def issue(self, name: str) -> pathlib.Path:
        """Return a folder with all that QEMU wants of a host of that name."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        (place / "extensions").write_text(f"subjectAltName=DNS:{name}\n")
        (place / "ca-cert.pem").write_bytes((self.folder / "ca-cert.pem").read_bytes())
        for side in ("server", "client"):
            key, request, certificate = f"{place}/{side}-key.pem", f"{place}/{side}.csr", f"{place}/{side}-cert.pem"
            self._openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
            authority = ["-CA", "ca-cert.pem", "-CAkey", "ca-key.pem", "-CAcreateserial"]
            self._openssl("x509", "-req", "-in", request, *authority, "-out", certificate, "-days", "2", "-extfile", str(place / "extensions"))
        return place

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def authority(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Give both hosts their certificates."""
    authority = Authority(tmp_path_factory.mktemp("tls"), "ours")
    for number in (1, 2):
        lab.on(number, "mkdir", "-p", FOLDER)
        install(lab, number, authority.issue(lab.host(number)))
        lab.on(number, "sh", "-c", f"printf '{SETTINGS}' >> /etc/libvirt/qemu.conf")
        lab("libvirtd", lab.host(number), "restart")
    for number in (1, 2):
        eventually(lambda number=number: lab.try_("virsh", lab.host(number), "list").returncode == 0, "libvirtd answers again")
    return authority


def install(lab: Lab, number: int, place: pathlib.Path) -> None:
    """Put certificates on a host; QEMU reads them at the beginning of each move."""
    files = [str(path) for path in place.glob("*.pem")]
    for path in files:
        lab("exec", lab.host(number), "--", "sh", "-c", f"cat > {FOLDER}/{pathlib.Path(path).name}", stdin=pathlib.Path(path).read_text())


def test_memory_and_disks_are_sent_encrypted(lab: Lab, control: Control, disks: Disks, web: str, authority: Authority) -> None:
    outcome = control.move(web, transport="tcp", tls=True, copy_storage="auto")
    assert outcome.ended() == ("completed", None), outcome.text
    assert lab.places(web) == {2: "running"}
    assert disks.content(WEB, 2) == disks.content(WEB, 1)


@pytest.mark.long
def test_several_connections_are_encrypted_too(lab: Lab, control: Control, guest: Make, authority: Authority) -> None:
    name = guest("busy", "--mib", "64", "--dirty-mib", "16", "--rate", "500", "--integrity")
    outcome = control.move(name, transport="tcp", tls=True, parallel_connections=2)
    assert outcome.ended() == ("completed", None), outcome.text
    lab("check", name)


@pytest.mark.long
@pytest.mark.parametrize("fault", ["name", "authority"])
def test_a_move_fails_on_a_wrong_certificate_and_the_guest_stays(
    lab: Lab, control: Control, disks: Disks, web: str, authority: Authority, tmp_path: pathlib.Path, fault: str
) -> None:
    wrong = authority.issue("elsewhere") if fault == "name" else Authority(tmp_path, "strangers").issue(lab.host(2))
    install(lab, 2, wrong)
    try:
        outcome = control.move(web, transport="tcp", tls=True, copy_storage="auto")
    finally:
        install(lab, 2, authority.issue(lab.host(2)))
    assert outcome.ended() == ("failed", None), outcome.text
    assert outcome.result["error_code"] == "migration_failed"
    assert "certificate" in outcome.msg.lower(), outcome.msg
    assert lab.places(web) == {1: "running"}
    assert not disks.exists(WEB, 2)
