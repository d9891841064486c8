# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a fleet keeps what, and what its machines are called.

Names and addresses are the same in every fleet: each fleet has a network namespace of its own, and all of them start from the same snapshot.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import re
import typing as t
import uuid

from ...lab.kvmlab.errors import LabError, UsageError

DEFAULT_CACHE = "/var/cache/kvmfleet-machines"
PYTHON = "/usr/bin/python3"
SUBNET = "10.178.0"
CONTROL_ADDRESS = f"{SUBNET}.254"
NFS = "nfs"
NFS_NUMBER = 250
MAX_HOSTS = 4
HOST_MIB = 1536
NFS_MIB = 768
IDENTITIES = uuid.UUID("5d8f0c3e-6f0a-4c55-9c4f-0d2f5a9a7b11")
"""The name space of the machines' UUIDs."""
UPGRADED_FILE = "upgraded.json"
"""In the folder of a machine whose root disk was exchanged for one of another release."""
LONGEST_STATE = 70
"""Characters; unix sockets below it must stay under 108."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """One machine as it is configured; C(has_uuid) says whether its firmware tells a UUID."""

    name: str
    number: int
    release: str
    memory_mib: int
    has_uuid: bool

    @property
    def is_host(self) -> bool:
        return self.name != NFS

    @property
    def address(self) -> str:
        return f"{SUBNET}.{self.number}"

    @property
    def bmc_address(self) -> str:
        """The address of its BMC, which is a device of its own."""
        return f"{SUBNET}.{100 + self.number}"

    @property
    def mac(self) -> str:
        return f"52:54:00:b2:00:{self.number:02x}"

    @property
    def uuid(self) -> uuid.UUID:
        return uuid.uuid5(IDENTITIES, self.name)


@dataclasses.dataclass(frozen=True)
class Fleet:
    """One fleet: C(prefix) names it, C(cache) holds images, snapshots and the state of all fleets."""

    prefix: str
    cache: pathlib.Path

    @classmethod
    def named(cls, prefix: str, cache: t.Optional[str] = None) -> Fleet:
        """Return the fleet of that prefix; the cache is the one given, else C($KVMFLEET_MACHINES_CACHE), else L(DEFAULT_CACHE).

        :raises UsageError: the prefix cannot begin the name of a namespace, or the path is too long.
        """
        if not re.fullmatch(r"[a-z][a-z0-9]{0,8}", prefix):
            raise UsageError(f"The prefix {prefix!r} is not valid: use one small letter, then at most 8 small letters and digits.")
        fleet = cls(prefix, pathlib.Path(cache or os.environ.get("KVMFLEET_MACHINES_CACHE") or DEFAULT_CACHE).absolute())
        if len(str(fleet.state)) > LONGEST_STATE:
            raise UsageError(f"The state folder {fleet.state} is too long for the unix sockets in it: choose a cache with a shorter path.")
        return fleet

    @property
    def state(self) -> pathlib.Path:
        return self.cache / "fleets" / self.prefix

    @property
    def settings_file(self) -> pathlib.Path:
        return self.state / "fleet.json"

    @property
    def ssh(self) -> pathlib.Path:
        return self.state / "ssh"

    @property
    def shared_disk(self) -> pathlib.Path:
        """The raw disk that all hosts have: C(/dev/disk/by-id/virtio-shared) in each of them."""
        return self.state / "shared.raw"

    @property
    def snapshots(self) -> pathlib.Path:
        return self.state / "snapshots"

    @property
    def namespace(self) -> str:
        """The network namespace of the control node and of the switch."""
        return f"{self.prefix}-machines"

    @functools.cached_property
    def settings(self) -> t.Dict[str, t.Any]:
        """What C(up) decided: C(machines), C(images) by release, C(accelerator).

        :raises LabError: the fleet is not up.
        """
        try:
            settings: t.Dict[str, t.Any] = json.loads(self.settings_file.read_text())
            return settings
        except FileNotFoundError:
            raise LabError(f"The fleet '{self.prefix}' is not up. Start it with: machines --prefix {self.prefix} up") from None

    def write_settings(self, settings: t.Mapping[str, t.Any]) -> Fleet:
        """Write the settings in one step; return the fleet that reads them."""
        new = self.settings_file.with_suffix(".new")
        new.write_text(json.dumps(settings, indent=2) + "\n")
        new.replace(self.settings_file)
        return Fleet(self.prefix, self.cache)

    @property
    def machines(self) -> t.List[Machine]:
        return [Machine(**values) for values in self.settings["machines"]]

    @property
    def hosts(self) -> t.List[Machine]:
        return [machine for machine in self.machines if machine.is_host]

    def folder(self, machine: Machine) -> pathlib.Path:
        """Return the folder of a machine's disk, sockets and serial log."""
        return self.state / machine.name

    def bmc_folder(self, machine: Machine) -> pathlib.Path:
        """Return the folder of a machine's BMC."""
        return self.folder(machine) / "bmc"

    def image(self, machine: Machine) -> pathlib.Path:
        """Return the folder of the image that a machine's root disk was made from."""
        return pathlib.Path(self._upgraded(machine).get("image") or self.settings["images"][machine.release])

    def release(self, machine: Machine) -> str:
        """Return the release that a machine's root disk has now."""
        return self._upgraded(machine).get("release") or machine.release

    def set_release(self, machine: Machine, release: str, image: pathlib.Path) -> None:
        """Write down that a machine's root disk was exchanged for one of that image. It is not among the settings, for a snapshot brings the old disk back."""
        (self.folder(machine) / UPGRADED_FILE).write_text(json.dumps({"release": release, "image": str(image)}))

    def _upgraded(self, machine: Machine) -> t.Dict[str, str]:
        try:
            return t.cast("t.Dict[str, str]", json.loads((self.folder(machine) / UPGRADED_FILE).read_text()))
        except FileNotFoundError:
            return {}

    def require_machine(self, name: str) -> Machine:
        """Return a machine of this fleet.

        :raises UsageError: there is none of that name.
        """
        found = {machine.name: machine for machine in self.machines}
        if name not in found:
            raise UsageError(f"There is no machine {name!r} in the fleet '{self.prefix}': it has {', '.join(found)}.")
        return found[name]


def plan_machines(hosts: int, releases: t.Mapping[int, str], release: str) -> t.List[Machine]:
    """Return the machines of a fleet: so many hosts, and the NFS server. The last host's firmware tells no UUID.

    :arg releases: of hosts that run another release, by number.
    :raises UsageError: there cannot be so many hosts.
    """
    if not 1 <= hosts <= MAX_HOSTS:
        raise UsageError(f"A fleet has 1 to {MAX_HOSTS} hosts, not {hosts}.")
    found = [Machine(f"m{number}", 10 + number, releases.get(number, release), HOST_MIB, number == 1 or number < hosts) for number in range(1, hosts + 1)]
    return [*found, Machine(NFS, NFS_NUMBER, release, NFS_MIB, True)]
