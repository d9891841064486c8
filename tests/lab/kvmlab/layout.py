# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a lab keeps what, and what its parts are called. Every name follows from the prefix."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import re
import typing as t

from .errors import LabError, UsageError

DEFAULT_ROOT = "/run/kvmfleet-lab"
MAX_HOSTS = 9
"""One digit, so that the hosts of the prefixes C(kvm) and C(kvm2) can never have the same name."""
PACKAGE_FOLDER = pathlib.Path(__file__).resolve().parent.parent
PYTHON = "/usr/bin/python3"
LONGEST_STATE = 60
"""Characters; unix sockets below it must stay under 108."""


@dataclasses.dataclass(frozen=True)
class Lab:
    """One lab: C(prefix) names it, C(root) holds the state of all labs."""

    prefix: str
    root: pathlib.Path

    @classmethod
    def named(cls, prefix: str, root: t.Optional[str] = None) -> Lab:
        """Return the lab of that prefix; the root is the one given, else C($KVMFLEET_LAB_STATE), else L(DEFAULT_ROOT).

        :raises UsageError: the prefix does not serve as the beginning of host and interface names, or the path is too long.
        """
        if not re.fullmatch(r"[a-z][a-z0-9]{0,8}", prefix) or prefix == "localhost":
            raise UsageError(f"The prefix {prefix!r} does not serve: one small letter, then at most 8 small letters and digits, and not 'localhost'.")
        lab = cls(prefix, pathlib.Path(root or os.environ.get("KVMFLEET_LAB_STATE") or DEFAULT_ROOT).absolute())
        if len(str(lab.state)) > LONGEST_STATE:
            raise UsageError(f"The state folder {lab.state} is too long for the unix sockets in it: choose one of at most {LONGEST_STATE} characters.")
        return lab

    @property
    def state(self) -> pathlib.Path:
        return self.root / self.prefix

    @property
    def settings_file(self) -> pathlib.Path:
        return self.state / "lab.json"

    @property
    def ssh(self) -> pathlib.Path:
        return self.state / "ssh"

    @property
    def sockets(self) -> pathlib.Path:
        """The folder of the connections that ssh keeps open on the control node."""
        return self.state / "cm"

    @property
    def shared(self) -> pathlib.Path:
        """The folder of images that all hosts see at this path."""
        return self.state / "shared"

    @property
    def gluster(self) -> pathlib.Path:
        """The mount point, on every host, of the file system that libvirt counts as shared."""
        return self.state / "gluster"

    @property
    def gluster_store(self) -> pathlib.Path:
        return self.state / "gluster-store"

    @property
    def exports(self) -> pathlib.Path:
        """The folder of the images that the NBD servers export."""
        return self.state / "exports"

    @property
    def boot(self) -> pathlib.Path:
        """The folder of the boot code of guests without a disk."""
        return self.state / "boot"

    @property
    def guests(self) -> pathlib.Path:
        return self.state / "guests"

    @property
    def etcd(self) -> pathlib.Path:
        """The folder of the etcd cluster; beside the lab's, because it lives without hosts, too."""
        return self.root / f"{self.prefix}-etcd"

    @property
    def switch(self) -> str:
        """The network namespace of the bridge that all hosts are plugged into."""
        return f"{self.prefix}-net"

    @property
    def uplink(self) -> str:
        """The control node's interface in the lab's network."""
        return f"{self.prefix}-ctl"

    @functools.cached_property
    def settings(self) -> t.Dict[str, t.Any]:
        """What C(up) decided: C(subnet), e.g. C(10.177.4), C(hosts), their number, and C(releases), the root of each host that does not run the machine's.

        :raises LabError: the lab is not up.
        """
        try:
            settings: t.Dict[str, t.Any] = json.loads(self.settings_file.read_text())
            return settings
        except FileNotFoundError:
            raise LabError(f"The lab '{self.prefix}' is not up: there is no {self.settings_file}. Start it with: lab --prefix {self.prefix} up") from None

    @property
    def hosts(self) -> t.List[str]:
        return [self.host_name(number) for number in range(1, self.settings["hosts"] + 1)]

    def host_name(self, number: int) -> str:
        return f"{self.prefix}{number}"

    def host_folder(self, host: str) -> pathlib.Path:
        return self.state / "hosts" / host

    def host_address(self, host: str) -> str:
        return f"{self.settings['subnet']}.{10 + int(host[-1])}"

    def release_root(self, host: str) -> t.Optional[pathlib.Path]:
        """Return the root of the release that a host runs, a folder of its name; None where that is the machine's own."""
        root = self.settings["releases"].get(host)
        return pathlib.Path(root) if root else None

    @property
    def control_address(self) -> str:
        return f"{self.settings['subnet']}.254"

    @property
    def storage_address(self) -> str:
        """The address of the NBD servers, on the bridge itself."""
        return f"{self.settings['subnet']}.253"

    def require_host(self, host: str) -> str:
        """Return the name of a host of this lab.

        :raises UsageError: there is none of that name.
        """
        if host not in self.hosts:
            raise UsageError(f"There is no host {host!r} in the lab '{self.prefix}': it has {', '.join(self.hosts)}.")
        return host
