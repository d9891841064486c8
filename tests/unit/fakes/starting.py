# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host on which domains can be defined and started, in memory."""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, NotSupported, Unreachable

EMULATOR = "/usr/bin/qemu-system-x86_64"
UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"


def definition(uuid: str = UUID, name: str = "web1", path: str = "/srv/images/web1.qcow2", emulator: str = EMULATOR) -> str:
    disk = f"<disk type='file' device='disk'><source file='{path}'/><target dev='vda' bus='virtio'/></disk>"
    return f"<domain type='kvm'><name>{name}</name><uuid>{uuid}</uuid><devices><emulator>{emulator}</emulator>{disk}</devices></domain>"


class FakeStartingHost:
    """Implements what a restart needs. C(refuses) are names that do not start; C(dies) ends the connection at a start, which is C(done) or not.

    C(loses_tpm): its libvirt would delete the state of a TPM with the definition. C(drops) are texts that it leaves out of one.
    """

    uri = "qemu:///system"

    def __init__(self) -> None:
        self.guests: dict[str, dict[str, t.Any]] = {}
        self.refuses: set[str] = set()
        self.stops_at_once: set[str] = set()
        self.dies: str | None = None
        self.loses_tpm = False
        self.drops: tuple[str, ...] = ()
        self.memory: dict[str, str] = {}
        self.starts: list[str] = []
        self.definitions: dict[str, str] = {}

    def add(self, uuid: str, name: str, state: str = domain_states.RUNNING) -> None:
        self.guests[uuid] = {"name": name, "state": state, "persistent": True, "autostart": False}

    def view_domain(self, uuid: str) -> domain_states.DomainView:
        guest = self.guests.get(uuid)
        if guest is None:
            return domain_states.NOT_THERE
        active = guest["state"] in (domain_states.RUNNING, domain_states.PAUSED)
        return domain_states.DomainView(present=True, active=active, persistent=guest["persistent"], state=guest["state"])

    def find_uuid(self, name: str) -> str | None:
        return next((uuid for uuid, guest in self.guests.items() if guest["name"] == name), None)

    def list_emulators(self) -> list[str]:
        return [EMULATOR]

    def saved_memory(self, name: str) -> str | None:
        return self.memory.get(name)

    def define_domain(self, definition: str) -> None:
        root = ElementTree.fromstring(definition)
        self.add(str(root.findtext("uuid")), str(root.findtext("name")), domain_states.SHUTOFF)
        self.definitions[str(root.findtext("name"))] = definition

    def read_definition(self, uuid: str) -> str:
        kept = self.definitions[self.guests[uuid]["name"]]
        for text in self.drops:
            kept = kept.replace(text, "")
        return kept

    def start_domain(self, uuid: str, paused: bool) -> None:
        guest = self.guests[uuid]
        if guest["name"] in self.refuses:
            raise Internal(f"Failed to start {guest['name']}: no.")
        self.starts.append(uuid)
        if self.dies != "before":
            guest["state"] = domain_states.SHUTOFF if guest["name"] in self.stops_at_once else domain_states.PAUSED if paused else domain_states.RUNNING
        if self.dies:
            raise Unreachable("The connection is gone.")

    def create_domain(self, definition: str, paused: bool) -> None:
        self.define_domain(definition)
        uuid = str(ElementTree.fromstring(definition).findtext("uuid"))
        self.guests[uuid]["persistent"] = False
        try:
            self.start_domain(uuid, paused)
        except Internal:
            del self.guests[uuid]
            raise

    def undefine_if_inactive(self, uuid: str) -> None:
        if self.loses_tpm:
            raise NotSupported("It was not undefined.", "Undefine it by hand.")
        if not self.view_domain(uuid).active:
            self.guests.pop(uuid, None)

    def set_autostart(self, uuid: str, autostart: bool) -> None:
        self.guests[uuid]["autostart"] = autostart

    def close(self) -> None:
        return
