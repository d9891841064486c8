# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Certificates for a cluster on this machine: an authority, a member's, a client's, and ones that must not be accepted."""

from __future__ import annotations

import dataclasses
import pathlib

from .commands import run

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclasses.dataclass(frozen=True)
class Authority:
    """A certificate authority whose files lie in C(folder)."""

    folder: pathlib.Path

    @classmethod
    def made(cls, folder: pathlib.Path) -> Authority:
        """Make an authority in a new folder."""
        folder.mkdir(mode=0o700, parents=True)
        authority = cls(folder)
        run(
            "openssl",
            "req",
            "-x509",
            *_NEW_KEY,
            "-keyout",
            authority.key("ca"),
            "-out",
            authority.certificate("ca"),
            "-subj",
            "/CN=lab authority",
            "-days",
            "2",
        )
        return authority

    def certificate(self, name: str) -> str:
        """Return the path of a certificate."""
        return str(self.folder / f"{name}.pem")

    def key(self, name: str) -> str:
        """Return the path of a certificate's key."""
        return str(self.folder / f"{name}.key")

    def issue(self, name: str, days: int = 2, subject: str = "/O=lab", address: str = "127.0.0.1") -> None:
        """Make a certificate for this machine, valid from now on for so many days; negative ones make one that has expired.

        :arg subject: without a CommonName, which etcd does not take from one who gives a password, too.
        :arg address: of this machine, beside that of the loopback interface.
        """
        request, extension = self.folder / f"{name}.csr", self.folder / "extension"
        extension.write_text(f"subjectAltName=IP:127.0.0.1,IP:{address},DNS:localhost\n")
        run("openssl", "req", *_NEW_KEY, "-keyout", self.key(name), "-out", str(request), "-subj", subject)
        signer = ("-CA", self.certificate("ca"), "-CAkey", self.key("ca"), "-CAcreateserial")
        run("openssl", "x509", "-req", "-in", str(request), *signer, "-days", str(days), "-extfile", str(extension), "-out", self.certificate(name))
