# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host's file system that is switched off and on again, and guests that would start with it."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import typing as t
import uuid

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import install, program, storage_program
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.program import Guard
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.boot_guard import TokenGrant

WEB = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
DB = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a12"
GRANT = "c1b8e5d4-13f4-44a5-9d43-0b4a6f0f0a01"
HOST_ID = "c1b8e5d4-13f4-44a5-9d43-0b4a6f0f0b01"
NONCE = "c1b8e5d4-13f4-44a5-9d43-0b4a6f0f0c01"


class Machine:
    """A host below a folder of the test's own."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.stores = [root / "images" / "one", root / "images" / "two"]
        for store in self.stores:
            self.mount(store)
        self.boot()

    @property
    def guard(self) -> Guard:
        return Guard(str(self.root), confirm_seconds=0)

    def grant(self, grant: str = GRANT) -> TokenGrant:
        """Return a grant that both folders of shared storage confirm."""
        return TokenGrant(grant, HOST_ID, {str(store): NONCE for store in self.stores})

    def have_storage_program(self) -> None:
        """Install the program with which the guard reads shared storage."""
        self.write(program.STORAGE_PROGRAM, pathlib.Path(storage_program.__file__).read_text(encoding="utf-8"))

    def mount(self, store: pathlib.Path, nonce: str = NONCE) -> None:
        """Put the host's own file into a folder, as protect does in every shared folder of its images."""
        store.mkdir(parents=True, exist_ok=True)
        (store / f"{storage_program.HOST_TOKEN_PREFIX}{HOST_ID}").write_text(json.dumps({"host_id": HOST_ID, "nonce": nonce}))

    def unmount(self, store: pathlib.Path) -> None:
        """Leave an empty folder, as when nothing is mounted there."""
        shutil.rmtree(store)
        store.mkdir()

    def revoke_elsewhere(self, store: pathlib.Path, grant: str = GRANT) -> t.List[str]:
        """Revoke the grant, as another host does that sees only this folder."""
        return install.leave_tombstones(dataclasses.replace(self.grant(grant), folders={str(store): NONCE}))[0]

    @property
    def mark(self) -> pathlib.Path:
        return self.root / "run/libvirt/qemu/autostarted"

    @property
    def token(self) -> pathlib.Path:
        return self.root / "var/lib/kvmfleet/guard/token.json"

    @property
    def listed(self) -> pathlib.Path:
        return self.root / "var/lib/libvirt/libvirt-guests"

    def boot(self) -> None:
        """Switch it on: C(/run) is empty, and the boot has a new ID."""
        shutil.rmtree(self.root / "run", ignore_errors=True)
        (self.root / "run").mkdir()
        self.write("proc/sys/kernel/random/boot_id", f"{uuid.uuid4()}\n")

    def identify(self, product_uuid: t.Optional[str]) -> None:
        """Let the firmware of the machine report this UUID, or none."""
        path = self.write("sys/class/dmi/id/product_uuid", f"{product_uuid}\n")
        if product_uuid is None:
            path.unlink()

    def write(self, path: str, text: str) -> pathlib.Path:
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text, encoding="utf-8")
        return full

    def define(self, name: str, domain_uuid: str, suffix: str = "") -> None:
        """Define a guest that starts with the host, as libvirt does: by a link of the host's own path."""
        self.write(f"etc/libvirt/qemu/{name}.xml", f"<!-- a comment -->\n<domain type='qemu'><name>{name}</name><uuid>{domain_uuid}</uuid></domain>\n")
        link = self.root / f"etc/libvirt/qemu/autostart/{name}.xml{suffix}"
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(f"/etc/libvirt/qemu/{name}.xml")

    def starts_guests(self) -> bool:
        """Whether libvirt's daemon would start guests when it starts now: by its own rule it does unless the mark is there."""
        return not self.mark.exists()

    def runs_libvirt_guests(self) -> bool:
        """Whether systemd would run libvirt-guests: by the condition in the drop-in."""
        return (self.root / "run/kvmfleet/guard/released.json").exists()
