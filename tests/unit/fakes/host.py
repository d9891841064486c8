# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fake twin of C(LibvirtHost): one connection to a fake machine, with libvirt's answers and refusals."""

from __future__ import annotations

import os
import typing as t
from xml.etree import ElementTree

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.values import Permissions
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, InvalidState, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Checkpoint

from .domain import MIB, NO_CAP_MIB, FakeDomain
from .machine import FakeMachine
from .migration import FakeMigration
from .reading import FakeReader
from .saved import read_image, write_image

MAX_DOWNTIME_MS = 2_000_000


class FakeHost(FakeReader):
    """Implements C(Host)."""

    def migrate_domain(self, uuid: str, destination_uri: str, flags: t.Sequence[str], parameters: t.Mapping[str, t.Any]) -> None:
        self._refuse_if_read_only("migrate")
        machine = self._there("migrate")
        machine.calls.append(f"migrate {uuid}")
        migration = self._fleet.begin(machine, uuid, destination_uri, flags, parameters)
        self._fleet.wait(migration)
        if migration.error is not None:
            raise migration.error

    def abort_job(self, uuid: str) -> None:
        machine = self._act("abort", uuid)
        machine.domain(uuid)
        migration = self._fleet.migration_from(machine, uuid)
        if migration is None:
            raise InvalidState(f"Failed to abort the migration of domain {uuid}: no job is active.")
        if migration.is_post_copy:
            raise NotSupported(f"Failed to abort the migration of domain {uuid}: it is in post-copy.")
        migration.cancel()

    def set_max_downtime_ms(self, uuid: str, milliseconds: int) -> None:
        domain = self._act("set_max_downtime_ms", uuid, milliseconds).domain(uuid)
        if not domain.active:
            raise InvalidState(f"Failed to set the downtime of domain {uuid}: it is not running.")
        if not 0 <= milliseconds <= MAX_DOWNTIME_MS:
            raise Internal(f"Failed to set the downtime of domain {uuid} to {milliseconds}.")
        domain.max_downtime_ms = milliseconds

    def set_bandwidth_mib(self, uuid: str, mib: int) -> None:
        machine = self._act("set_bandwidth_mib", uuid, mib)
        if not machine.domain(uuid).active:
            raise InvalidState(f"Failed to set the bandwidth of domain {uuid}: it is not running.")
        machine.domain(uuid).bandwidth_mib = mib or NO_CAP_MIB
        migration = self._fleet.migration_from(machine, uuid)
        if migration is not None:
            migration.cap_bytes = mib * MIB

    def start_post_copy(self, uuid: str) -> None:
        self._outgoing("start_post_copy", uuid).switch()

    def pause_post_copy(self, uuid: str) -> None:
        migration = self._outgoing("pause_post_copy", uuid)
        if not migration.is_post_copy:
            raise InvalidState(f"Failed to pause the post-copy migration of domain {uuid}: its job is not in post-copy.")
        migration.break_post_copy()

    def suspend_domain(self, uuid: str) -> None:
        machine = self._act("suspend", uuid)
        domain = machine.domain(uuid)
        if domain.job == domain_states.JOB_INCOMING:
            raise AssertionError(f"suspend of domain {uuid}, which is being received: libvirt would block, and do it later")
        if not domain.active:
            raise InvalidState(f"Failed to suspend domain {uuid}: it is not running.")
        migration = self._fleet.migration_from(machine, uuid)
        if domain.state == domain_states.RUNNING:
            domain.enter(domain_states.PAUSED, "user") if migration is None else migration.suspend()

    def listen_for_completion(self, uuid: str) -> None:
        self._there("listen").listeners.append(self._hear)

    def listen_for_arrivals(self, arrived: t.Callable[[str], None]) -> None:
        def hear(uuid: str) -> None:
            if self.is_connected():
                arrived(uuid)

        self._there("listen_for_arrivals").arrival_listeners.append(hear)

    def resume_domain(self, uuid: str) -> None:
        domain = self._act("resume", uuid).domain(uuid)
        if domain.job != domain_states.JOB_NONE:
            raise AssertionError(f"resume of domain {uuid}, which has a job: libvirt would block, and do it later")
        if not domain.active:
            raise InvalidState(f"Failed to resume domain {uuid}: it is not running.")
        domain.enter(domain_states.RUNNING, "unpaused")

    def destroy_domain(self, uuid: str) -> None:
        machine = self._act("destroy", uuid)
        domain = machine.domain(uuid)
        if not domain.active:
            raise InvalidState(f"Failed to destroy domain {uuid}: it is not running.")
        domain.enter(domain_states.SHUTOFF, "destroyed")
        if not domain.persistent:
            machine.remove(uuid)

    def undefine_domain(self, uuid: str) -> None:
        machine = self._act("undefine", uuid)
        domain = machine.domains.get(uuid)
        if domain is not None and not domain.active:
            machine.remove(uuid)

    def set_autostart(self, uuid: str, autostart: bool) -> None:
        domain = self._act("set_autostart", uuid, autostart).domain(uuid)
        if not domain.persistent:
            raise InvalidState(f"Failed to set autostart of domain {uuid}: it is transient.")
        domain.autostart = autostart

    def redefine_checkpoint(self, uuid: str, checkpoint: Checkpoint) -> None:
        domain = self._act("redefine_checkpoint", uuid, checkpoint.name).domain(uuid)
        if checkpoint.name in self._machine.broken_bitmaps:
            raise Internal(f"checkpoint inconsistent: missing or broken bitmap '{checkpoint.name}' for disk 'vda'")
        domain.checkpoints = (*(known for known in domain.checkpoints if known.name != checkpoint.name), checkpoint)

    def listen_for_stop(self, uuid: str) -> None:
        self._there("listen_for_stop").domain(uuid)

    def stopped_by(self, uuid: str) -> t.Optional[str]:
        domain = self._there("stopped_by").domains.get(uuid)
        return domain.reason if domain and not domain.active else None

    def shut_down(self, uuid: str) -> None:
        domain = self._act("shut_down", uuid).domain(uuid)
        if domain.active:
            domain.enter(domain_states.SHUTOFF, "shutdown")

    def define_domain(self, definition: str) -> None:
        root = ElementTree.fromstring(definition)
        uuid, name = str(root.findtext("uuid")), str(root.findtext("name"))
        machine = self._act("define", uuid)
        known = machine.domains.get(uuid)
        if known is None or not known.active:
            machine.put(FakeDomain(uuid, name, domain_states.SHUTOFF, "", definition=definition))

    def start_domain(self, uuid: str, paused: bool = False) -> None:
        domain = self._act("start", uuid).domain(uuid)
        if domain.active:
            raise InvalidState(f"Failed to start domain {uuid}: it is running already.")
        domain.enter(domain_states.PAUSED if paused else domain_states.RUNNING, "user" if paused else "booted")
        image = self._machine.saved_memory.get(domain.name)
        if image is not None and os.path.exists(image):
            saved = read_image(image)
            domain.restored_from, domain.live_definition = saved["image"], saved["definition"]
            os.unlink(image)
            del self._machine.saved_memory[domain.name]

    def save_domain(self, uuid: str, path: str, image_format: str) -> None:
        domain = self._act("save", uuid, image_format).domain(uuid)
        if not domain.active:
            raise InvalidState(f"Failed to save domain {uuid}: it is not running.")
        write_image(path, domain)
        domain.enter(domain_states.SHUTOFF, "saved")

    def save_managed(self, uuid: str, resumes_as: str) -> None:
        machine = self._act("save_managed", uuid, resumes_as)
        domain = machine.domain(uuid)
        if not domain.active:
            raise InvalidState(f"Failed to save domain {uuid}: it is not running.")
        machine.saved_memory[domain.name] = f"{machine.save_folder}/{domain.name}.save"
        write_image(machine.saved_memory[domain.name], domain, resumes_as == domain_states.RUNNING)
        domain.enter(domain_states.SHUTOFF, "saved")

    def restore_paused(self, path: str, definition: t.Optional[str] = None) -> None:
        machine = self._act("restore")
        saved = read_image(path)
        domain = machine.domains.get(saved["uuid"]) or machine.put(FakeDomain(saved["uuid"], saved["name"], persistent=False))
        if domain.active:
            raise InvalidState(f"Failed to restore domain {domain.uuid}: it is running already.")
        domain.enter(domain_states.PAUSED, domain_states.MIGRATION)
        domain.restored_from = saved["image"]
        domain.live_definition = definition or saved["definition"]

    def make_folder(self, path: str, permissions: Permissions) -> None:
        machine = self._act("make_folder", path)
        if path not in machine.folders:
            raise Internal(f"Failed to make the folder {path} on {self.uri}: the test gives it no place.")

    def create_domain(self, definition: str, paused: bool) -> None:
        self.define_domain(definition)
        uuid = str(ElementTree.fromstring(definition).findtext("uuid"))
        self._machine.domain(uuid).persistent = False
        self.start_domain(uuid, paused)

    def undefine_if_inactive(self, uuid: str) -> None:
        if not self.view_domain(uuid).active:
            self.undefine_inactive(uuid)

    def undefine_inactive(self, uuid: str) -> None:
        domain = self._act("undefine", uuid).domains.get(uuid)
        if domain is not None and domain.active:
            raise InvalidState(f"Domain {domain.name} ({uuid}) is active on {self.uri}: it was not undefined.")
        if domain is not None and domain.name in self._machine.saved_memory:
            raise InvalidState("Refusing to undefine while domain managed save image exists")
        self._machine.remove(uuid)

    def close(self) -> None:
        self.is_closed = True

    # -- inside --------------------------------------------------------------------------------------------------

    def _act(self, call: str, *arguments: object) -> FakeMachine:
        self._refuse_if_read_only(call)
        machine = self._there(call)
        machine.calls.append(" ".join([call, *map(str, arguments)]))
        return machine

    def _hear(self, uuid: str, stats: domain_states.JobStats) -> None:
        if not self.is_closed and self._outages == self._machine.outages:
            self._told[uuid] = stats

    def _outgoing(self, call: str, uuid: str) -> FakeMigration:
        machine = self._act(call, uuid)
        machine.domain(uuid)
        migration = self._fleet.migration_from(machine, uuid)
        if migration is None:
            raise InvalidState(f"Failed to {call} domain {uuid}: it is not being migrated.")
        return migration
