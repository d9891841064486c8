# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What apt knows on this machine, and apt elsewhere needs to know, too: from where packages come, and how they are fetched."""

from __future__ import annotations

import pathlib
import shutil
import typing as t

from .commands import run
from .errors import LabError

SETTINGS = "etc/apt/apt.conf.d/50machine"
SOURCES = "etc/apt/sources.list"
# What each apt brings along for itself.
NOT_COPIED = ("IndexTargets", "CompressionTypes", "Languages", "Changelogs", "cdrom")
SECRETS = ("etc/apt/auth.conf", "etc/apt/auth.conf.d")
# To reach a mirror that has a name or a certificate of its own.
TO_REACH_IT = ("etc/hosts", "etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt")


def mirror(codename: str) -> str:
    """Return the URI from which this machine gets its own release.

    :raises LabError: apt has no source.
    """
    targets = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
    found = mirror_of(targets, codename)
    if not found:
        raise LabError("apt has no package source on this machine, and so none for another release. Name one in /etc/apt/sources.list.")
    return found


def mirror_of(targets: str, codename: str) -> t.Optional[str]:
    """Return the URI of that release's component C(main), else of the first source of all.

    :arg targets: lines of URI, release and component.
    """
    rows = [line.split() for line in targets.splitlines() if len(line.split()) == 3]
    return next((row[0] for row in rows if row[1:] == [codename, "main"]), rows[0][0] if rows else None)


def settings_of(dump: str) -> str:
    """Return of C(apt-config dump) how packages are fetched: proxies, certificates, what is not checked."""
    lines = [line for line in dump.splitlines() if line.startswith("Acquire::") and not line.endswith(' "";')]
    return "".join(f"{line}\n" for line in lines if line.split("::")[1].split()[0] not in NOT_COPIED)


def teach(root: pathlib.Path, release: str, uri: str) -> None:
    """Let apt in the root of a release get its packages from there, as apt of this machine would."""
    (root / SOURCES).write_text(f"deb {uri} {release} main\n")
    (root / SETTINGS).write_text(settings_of(run("apt-config", "dump")))
    for name in (*SECRETS, *TO_REACH_IT):
        _copy(pathlib.Path("/") / name, root / name)


def forget_secrets(root: pathlib.Path) -> None:
    """Remove this machine's credentials for package sources again."""
    for name in SECRETS:
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copy(source, target)
