# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome, Record
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

IMAGES = "/var/lib/libvirt/images"
BY = "root@control pid 1"


class Scene:
    """A fleet of two hosts, whose guests are evacuated as the ledger and libvirt would have them afterwards: by hand."""

    def __init__(self, lab: Lab, control: Control) -> None:
        self.lab = lab
        self.control = control
        self.names: set[str] = set()

    def guest(self, name: str, *options: str) -> str:
        """Make a guest on the first host."""
        self.names.add(name)
        self.lab("guest", name, "--host", self.lab.host(1), "--mib", "32", *options)
        return name

    def protect(self, shared: bool = False) -> None:
        """Save the domains: the first host last, because it learns only then who sees its tokens; those of a store of its own nobody can see."""
        for number in (1, 2, 1) if shared else (2, 1):
            outcome = self.control.task(number, "protect", {})
            assert outcome.code == 0, outcome.text

    def place(self, number: int) -> HostRef:
        entry = self.control.ledger.find_host(name=self.lab.host(number))
        assert entry
        return HostRef(self.lab.host(number), entry.body["host_id"], entry.body["host_uuid"])

    def copy_image(self, name: str) -> None:
        """Put a copy of a guest's local image on the second host, as a restore of a backup does."""
        passed = self.control.folder / f"{name}.qcow2"
        self.lab.on(1, "cp", f"{IMAGES}/{name}.qcow2", str(passed))
        self.lab.on(2, "mkdir", "-p", IMAGES)
        self.lab.on(2, "cp", str(passed), f"{IMAGES}/{name}.qcow2")

    def start_elsewhere(self, name: str, source: int = 1, destination: int = 2, start: bool = True) -> None:
        """Stop a guest where it is, as power that fails does, and define and start it on the other host."""
        definition = self.control.folder / f"{name}.xml"
        definition.write_text(self.lab.virsh(source, "dumpxml", "--inactive", "--security-info", name), encoding="utf-8")
        self.lab.try_("virsh", self.lab.host(source), "destroy", name)
        self.lab.virsh(destination, "define", str(definition))
        if start:
            self.lab.virsh(destination, "start", name)

    def record(self, name: str, uuid: str, source: int = 1, destination: int = 2, until: str = s.DONE, **more: t.Any) -> Record:
        """Write the record that the evacuation would have left."""
        record = new_record(s.EVACUATION, DomainRef(uuid, name), self.place(source), self.place(destination), {}, by=BY)
        stored = self.control.ledger.open_record(dataclasses.replace(record, **more))
        for status in (s.PRE_MIGRATING, s.DONE):
            changed = stored.record.advance(status, BY)
            stored = self.control.ledger.update_record(stored, changed)
            if status == until:
                break
        return t.cast(Record, encode(stored.record))

    def evacuated(self, name: str, **more: t.Any) -> Record:
        uuid = self.lab.uuid(name)
        self.start_elsewhere(name)
        return self.record(name, uuid, **more)

    def status(self, record: Record) -> tuple[str, str | None]:
        now = self.control.ledger.read_record(record["id"]).record
        return now.status, now.reason

    def clean(self, *options: str, **arguments: t.Any) -> Outcome:
        """Run the task on the first host."""
        return self.control.task(1, "evacuation_cleanup", arguments, *options)

    def exists(self, path: str | pathlib.Path, number: int = 1) -> bool:
        return self.lab.try_("exec", self.lab.host(number), "--", "test", "-e", str(path)).returncode == 0

    def clear(self) -> None:
        for name in self.names:
            self.lab("rmguest", name)
