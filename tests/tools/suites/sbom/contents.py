# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a tarball of the collection has of others, and what it needs where it runs, as the files in the tarball say."""

from __future__ import annotations

import json
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

CHARTS = "tests/browser/charts.mjs"
LOCK = "tests/browser/package-lock.json"
# What tests/tools/charts.py writes at the head of the library that the report's page has in it.
HEAD = re.compile(rb"Apache ECharts (\d\S*) with ZRender (\d\S*) and tslib")
CONTROL_NODE, HOST = "control node", "host"
LICENCES = {"ansible-core": "GPL-3.0-or-later", "jmespath": "MIT"}


@dataclass(frozen=True)
class Library:
    """A library of others that is in the tarball; needs has the names of those that are in it for this one's sake."""

    name: str
    version: str
    licence: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Need:
    """What has to be there where the collection runs. kind is the type of its package URL, versions a specifier, empty for any."""

    kind: str
    name: str
    licence: str
    where: str
    versions: str = ""


# No file says in a form for machines what hosts need; README says it in words.
OF_HOSTS = (
    Need("generic", "libvirt", "LGPL-2.1-or-later", HOST),
    Need("pypi", "libvirt-python", "LGPL-2.1-or-later", HOST),
    Need("generic", "qemu", "GPL-2.0-only", HOST),
)


class Contents:
    """A tarball that ansible-galaxy has built."""

    def __init__(self, tarball: Path) -> None:
        with tarfile.open(tarball) as archive:
            members = [(member.name, archive.extractfile(member)) for member in archive]
            self.files = {name: stream.read() for name, stream in members if stream}

    @property
    def info(self) -> dict[str, Any]:
        """Return what galaxy.yml said: namespace, name, version, license and so on."""
        return dict(json.loads(self.files["MANIFEST.json"])["collection_info"])

    def libraries(self) -> list[Library]:
        """Return what charts.mjs asks npm's packages for, and what those ask for. Raises KeyError for a package that is not locked."""
        locked = json.loads(self.files[LOCK])["packages"]
        wanted = re.findall(r"from '([^'/]+)", self.files[CHARTS].decode())
        found: dict[str, Library] = {}
        while wanted:
            name = wanted.pop()
            package = locked[f"node_modules/{name}"]
            found[name] = Library(name, package["version"], package["license"], tuple(package.get("dependencies", ())))
            wanted += set(found[name].needs) - set(found)
        return sorted(found.values(), key=lambda library: library.name)

    def needs(self) -> list[Need]:
        """Return what the control node and the hosts need. Raises LookupError for a requirement of which LICENCES knows nothing."""
        lines = [line for line in self.files["requirements.txt"].decode().splitlines() if line and not line.startswith("#")]
        lines.append(f"ansible-core {yaml.safe_load(self.files['meta/runtime.yml'])['requires_ansible']}")
        python = [Requirement(line) for line in lines]
        if unknown := {one.name for one in python} - set(LICENCES):
            raise LookupError(f"The licence of {', '.join(unknown)} is not known: add it to LICENCES in {Path(__file__).name}.")
        return [*(Need("pypi", one.name, LICENCES[one.name], CONTROL_NODE, str(one.specifier)) for one in python), *OF_HOSTS]

    def bundles(self) -> dict[str, dict[str, str]]:
        """Return the files that have the chart library in them, and of which versions by their own words it is made."""
        heads = {name: HEAD.search(content) for name, content in self.files.items()}
        return {name: {"echarts": head[1].decode(), "zrender": head[2].decode()} for name, head in heads.items() if head}
