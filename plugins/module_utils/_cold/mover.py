# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One cold move on its source: looks at both hosts, decides about the next step, writes it down, does it, and looks again until the move has ended.

A step that fails is undone where the source is still the owner. A host that no longer answers leaves the result unproved: the next run continues.
"""

from __future__ import annotations

import dataclasses
import os
import time
import typing as t

from .._dataclass import dataclass
from .._domains.shutting_down import DomainShutdown
from .._evacuation.quarantine import Quarantine, find_unmounted, is_moved
from .._facts.mounts import innermost_mount, read_mounts
from .._facts.qemu_process import is_program_replaced
from .._host_identity import read_host_id
from .._migration.rewriting import rewrite_definition
from .._model.cleanup import QuarantinedFile
from .._model.cold_moves import ColdAnswer, ColdOrder
from .._model.definition_files import SHARED, list_needed_files
from .._model.domain_states import NO_ANSWER, RUNNING
from .._model.errors import Conflict, Internal, KvmfleetError, MigrationFailed, NotSupported
from .._model.libvirt_formats import parse_libvirt_xml
from .._model.record_parts import LIVE, PERSISTENT, SAVE, ColdMove, CopiedFile, Result
from .._model.saved_domains import NVRAM, TPM, NeededFile
from .._model.statuses import BEFORE_JOB
from .._run_folder import RUN_FOLDER, note_own_act
from . import managed_steps
from . import steps as st
from .definitions import find_lost
from .hosts import HostView, MoveHosts
from .journal import ColdJournal
from .saved_memory import check_unsaved, choose_format, find_image, hold_image, prove_shared_folder, remove_image, spend_image, sync_image
from .state_files import copy_files, find_users, remove_copies

# A job of libvirt that is waited for: saving or restoring the memory of a large guest.
WAIT_SECONDS = 3600.0
_POLL_SECONDS = 0.5
# A step that has failed is tried once more if nothing else follows from it.
_MAX_TRIES = 2


@dataclass
class ColdMover:
    """Carries out one order, whose lock its caller holds.

    :arg hosts: both hosts, which are closed at the end.
    :arg quarantine: where the source keeps what it had of the domain; that of the record by default.
    :arg step: called with the name of each step before and after it; tests end the process at that point.
    """

    order: ColdOrder
    journal: ColdJournal
    hosts: MoveHosts
    run_folder: str = RUN_FOLDER
    quarantine: t.Optional[Quarantine] = None
    clock: t.Callable[[], float] = time.monotonic
    sleep: t.Callable[[float], None] = time.sleep
    step: t.Callable[[str], None] = lambda name: None
    _done: t.Set[str] = dataclasses.field(default_factory=set, init=False)
    _tries: t.Dict[str, int] = dataclasses.field(default_factory=dict, init=False)
    _error: t.Optional[KvmfleetError] = dataclasses.field(default=None, init=False)
    _paused_at: t.Optional[float] = dataclasses.field(default=None, init=False)
    _runs_at: t.Optional[float] = dataclasses.field(default=None, init=False)

    def carry_out(self) -> ColdAnswer:
        """Carry the move out, or settle it, and return how it has ended."""
        begun = self.clock()
        try:
            end, seen = self._take_steps()
        finally:
            self.hosts.close()
        record = self.journal.finish(end, self._describe_end(end, seen), self._build_result(begun) if end == st.ARRIVED else None)
        error = self._final_error(end, seen)
        return ColdAnswer(self.order.uuid, record, error.error_code if error else None, str(error) if error else "")

    def _take_steps(self) -> t.Tuple[str, st.Seen]:
        waits_since: t.Optional[float] = None
        while True:
            seen = self._look()
            step = (managed_steps if self._cold.resumes_as else st).next_step(self._course(), seen)
            if step in st.ENDS:
                return step, seen
            if step == st.WAIT:
                waits_since = self.clock() if waits_since is None else waits_since
                if self.clock() - waits_since > WAIT_SECONDS:
                    return st.DOUBT, seen
                self.sleep(_POLL_SECONDS)
                continue
            waits_since = None
            if self._tries.get(step, 0) >= _MAX_TRIES:
                return st.DOUBT, seen
            self._take_step(step)

    def _take_step(self, step: str) -> None:
        self._tries[step] = self._tries.get(step, 0) + 1
        try:
            self.journal.intend(step)
            self.step(f"before {step}")
            self._acts()[step]()
            self._done.add(step)
        except KvmfleetError as error:
            self._error = self._error or error
        except OSError as error:
            self._error = self._error or Internal(f"{step}: {error.strerror or error} ({error.filename}).")
        self.step(f"after {step}")

    def _course(self) -> st.Course:
        record, cold = self.journal.record, self._cold
        ran = record.before.state == RUNNING
        return st.Course(
            method=str(record.method),
            runs_after=ran if record.method == SAVE else cold.start,
            ran_before=ran,
            autostart=bool(record.before.autostart),
            adopted=self.order.adopt,
            undoing=self._error is not None or (self.order.adopt and record.status in BEFORE_JOB),
            restore_ordered=self.journal.may_have_begun(managed_steps.MOVE_LIVE if cold.resumes_as else st.RESTORE),
            done=frozenset(self._done),
        )

    def _acts(self) -> t.Mapping[str, t.Callable[[], None]]:
        uuid, image, resumes_as = self.order.uuid, str(self._cold.image), str(self._cold.resumes_as)
        return {
            st.DEFINE: self._define,
            st.HOLD_AUTOSTART: lambda: self.hosts.source.set_autostart(uuid, False),
            st.SHUT_DOWN: self._shut_down,
            st.SAVE_MEMORY: self._save_memory,
            st.COPY_FILES: self._copy_files,
            st.RESTORE: self._restore,
            st.SPEND: lambda: spend_image(image, st.SPENT_THERE),
            st.RESUME: self._resume,
            st.UNDEFINE_SOURCE: self._undefine_source,
            st.AUTOSTART: lambda: self.hosts.destination.set_autostart(uuid, True),
            st.START: self._start,
            st.REMOVE_IMAGE: lambda: remove_image(image),
            st.KEEP_FILES: self._keep_files,
            st.RESTORE_BACK: self._restore_back,
            st.SPEND_BACK: lambda: spend_image(image, st.SPENT_HERE),
            st.RESUME_BACK: lambda: self.hosts.source.resume_domain(uuid),
            st.START_BACK: self._start_back,
            st.UNDEFINE_DESTINATION: self._undefine_destination,
            st.AUTOSTART_BACK: lambda: self.hosts.source.set_autostart(uuid, True),
            managed_steps.HOLD_IMAGE: lambda: hold_image(str(self.hosts.source.saved_memory(self.order.name)), image),
            managed_steps.START_PAUSED: self._start_paused,
            managed_steps.MOVE_LIVE: self._move_live,
            managed_steps.SAVE_THERE: lambda: self.hosts.destination.save_managed(uuid, resumes_as),
            managed_steps.SAVE_BACK: self._save_back,
        }

    def _look(self) -> st.Seen:
        """Return what both hosts show now."""
        source, destination = self.hosts.view(self.hosts.source_uri), self.hosts.view(self.hosts.destination_uri)
        image = st.NO_IMAGE
        if self._cold.image and source.domain.answered:
            try:
                image = find_image(str(self._cold.image), self.order.uuid, self.hosts.source)
            except KvmfleetError as error:
                source = HostView(NO_ANSWER, error=error)
        self._error = self._error or source.error or destination.error
        seen = st.Seen(source.domain, destination.domain, source.autostart, destination.autostart, image, source.saved, destination.saved)
        return dataclasses.replace(seen, folder_proved=self._is_folder_proved()) if st.needs_folder_proof(self._course(), seen) else seen

    def _is_folder_proved(self) -> bool:
        """Whether both hosts see the folder of the saved memory, so that it is mounted on this one."""
        try:
            return prove_shared_folder(os.path.dirname(str(self._cold.image)), self.hosts.destination).verdict == SHARED
        except KvmfleetError:
            return False

    @property
    def _cold(self) -> ColdMove:
        return self.journal.record.cold or ColdMove(False)

    def _rewrite(self, definition: str, which: str) -> str:
        """Return the definition with the names of the destination. Raises L(NotSupported) if it has one that cannot be translated."""
        renaming = self._cold.renaming
        return rewrite_definition(definition, renaming, which)[0] if renaming else definition

    # -- the acts ------------------------------------------------------------------------------------------------

    def _define(self) -> None:
        """Define the domain at the destination.

        Raises L(NotSupported) if its libvirt loses a part of the definition, L(Unsafe) if a start there would resume memory.
        """
        destination, uuid = self.hosts.destination, self.order.uuid
        check_unsaved(self.order.name, destination)
        definition = self._rewrite(self.hosts.source.read_whole_definition(uuid, True), PERSISTENT)
        destination.define_domain(definition)
        lost = find_lost(definition, destination.read_whole_definition(uuid, True))
        if lost:
            raise NotSupported(f"The libvirt of the destination does not keep {lost} of the definition of domain {self.order.name}.", "Update it.")

    def _shut_down(self) -> None:
        info = self.hosts.source.find_domain(uuid=self.order.uuid)
        wait = self._cold.shutdown_wait_seconds or 1
        shutdown = DomainShutdown(self.hosts.source, info, wait, self.run_folder, self.clock, self.sleep, is_own=True)
        shutdown.check_possible()
        shutdown.carry_out()
        self._paused_at = self.clock()

    def _save_memory(self) -> None:
        """Save the memory. Until the guest is off, it continues to run on the source if this fails."""
        uuid, image = self.order.uuid, str(self._cold.image)
        chosen = choose_format([self.hosts.source, self.hosts.destination], is_program_replaced(self.order.name))
        self.journal.note_cold(image_format=chosen)
        note_own_act(uuid, self.run_folder)
        self._paused_at = self.clock()
        self.hosts.source.save_domain(uuid, image, chosen)
        sync_image(image)

    def _copy_files(self) -> None:
        definition = self.hosts.source.read_whole_definition(self.order.uuid, True)
        self._check_unchanged(definition)
        files = self._list_files(definition)
        record, destination, renaming = self.journal.record, self.hosts.destination, self._cold.renaming or None
        copies = copy_files(files, destination, self.order.uuid, record.record_id, renaming, self._copied_files(), self._note_copy)
        self.journal.note_cold(files=tuple(copies))

    def _check_unchanged(self, definition: str) -> None:
        """Raise L(Conflict) if the destination has an older definition: a snapshot or a commit gives a disk another image, and its old one is stale."""
        there = self.hosts.destination.read_whole_definition(self.order.uuid, True)
        changed = find_lost(self._rewrite(definition, PERSISTENT), there)
        if changed:
            raise Conflict(
                f"The definition of domain {self.order.name} was changed on the source since it was sent to the destination ({changed}).", "Run the task again."
            )

    def _note_copy(self, copied: CopiedFile) -> None:
        others = (known for known in self._copied_files() if known.path != copied.path)
        self.journal.note_cold(files=(*others, copied))

    @staticmethod
    def _list_files(definition: str) -> t.List[NeededFile]:
        return [file for file in list_needed_files(parse_libvirt_xml(definition, "a domain definition")) if file.what in (NVRAM, TPM)]

    def _restore(self) -> None:
        image, destination = str(self._cold.image), self.hosts.destination
        destination.restore_paused(image, self._rewrite(destination.read_saved_definition(image), LIVE) if self._cold.renaming else None)

    def _resume(self) -> None:
        self.hosts.destination.resume_domain(self.order.uuid)
        self._runs_at = self.clock()

    def _undefine_source(self) -> None:
        """Keep the definition in a file, then remove it from libvirt. Firmware variables and TPM state stay."""
        quarantine = self._keeper
        definition = self.hosts.source.read_whole_definition(self.order.uuid, True)
        located = [self._locate(file, quarantine) for file in self._copied_files()]
        quarantine.record_files(self.journal.record.domain, self._own_id(), definition, located)
        self.hosts.source.undefine_inactive(self.order.uuid)

    def _start(self) -> None:
        self.hosts.destination.start_domain(self.order.uuid)
        self._runs_at = self.clock()

    def _keep_files(self) -> None:
        """Move the source's files to where it keeps the definition. One that another domain of the source needs stays."""
        quarantine = self._keeper
        manifest = quarantine.read_manifest()
        if manifest is None:
            return
        mounts = {mount.path for mount in read_mounts()}
        for file in [file for file in manifest.items if self._is_needed_by_others(file) or not _try_move(quarantine, file)]:
            # An earlier run may have moved it, and its file system is not mounted now: it is kept, and no other list names it.
            if not find_unmounted(file, mounts):
                quarantine.drop_file(file)
        manifest = quarantine.mark_complete()
        self.journal.note_cold(kept=tuple(filter(None, [manifest.definition, *(file.destination for file in manifest.items)])))

    def _is_needed_by_others(self, file: QuarantinedFile) -> bool:
        return not is_moved(file) and bool(find_users(self.hosts.source, self.order.uuid, file.source))

    def _start_paused(self) -> None:
        note_own_act(self.order.uuid, self.run_folder)
        self.hosts.source.start_domain(self.order.uuid, paused=True)

    def _move_live(self) -> None:
        """Let the paused guest cross; the definitions of both hosts stay. It stays paused, by a flag and because it is paused."""
        order, source, parameters = self.order, self.hosts.source, dict(self.order.parameters or {})
        if self._cold.renaming:
            parameters["destination_xml"] = self._rewrite(source.read_movable_definition(order.uuid, persistent=False), LIVE)
        source.migrate_domain(order.uuid, order.destination_uri, order.flags or (), parameters)

    def _save_back(self) -> None:
        note_own_act(self.order.uuid, self.run_folder)
        self.hosts.source.save_managed(self.order.uuid, str(self._cold.resumes_as))

    def _restore_back(self) -> None:
        note_own_act(self.order.uuid, self.run_folder)
        self.hosts.source.restore_paused(str(self._cold.image))

    def _start_back(self) -> None:
        note_own_act(self.order.uuid, self.run_folder)
        self.hosts.source.start_domain(self.order.uuid)

    def _undefine_destination(self) -> None:
        try:
            self.hosts.destination.undefine_inactive(self.order.uuid)
        except NotSupported as kept:
            # The first error is why the move is undone. Its end also has to say why the definition stays.
            if self._error is not None and kept.message not in self._error.message:
                self._error = type(self._error)(f"{self._error} {kept}")
            raise
        remove_copies(self._copied_files(), self.hosts.destination)

    def _copied_files(self) -> t.Sequence[CopiedFile]:
        return self._cold.files or ()

    @property
    def _keeper(self) -> Quarantine:
        if self.quarantine is None:
            self.quarantine = Quarantine(self.journal.record.record_id)
        return self.quarantine

    def _own_id(self) -> str:
        return read_host_id() or self.hosts.source.host_uuid()

    @staticmethod
    def _locate(file: CopiedFile, quarantine: Quarantine) -> QuarantinedFile:
        mounts = {mount.path for mount in read_mounts()}
        return quarantine.locate_file(file.what, None, file.path, innermost_mount(os.path.realpath(file.path), mounts))

    # -- the end -------------------------------------------------------------------------------------------------

    def _describe_end(self, end: str, seen: st.Seen) -> str:
        kept = f" {self._cold.image} was restored, and is kept under another name." if seen.image in (st.SPENT_THERE, st.SPENT_HERE) else ""
        if end == st.ARRIVED:
            off = "" if seen.destination.active or not self._course().runs_after else " Its guest is off."
            return f"The domain is {seen.destination.describe()} at the destination, and the source has no definition of it.{off}{kept}"
        error = f"{self._error} " if self._error else ""
        if end == st.STAYED:
            return f"{error}The domain is {seen.source.describe()} on the source, and the destination has no definition of it.{self._describe_loss(seen)}{kept}"
        return f"{error}{st.describe_doubt(seen)}{self._explain_image(seen)}"

    def _explain_image(self, seen: st.Seen) -> str:
        """Return where the memory is if the source holds its image, or what to do about an image that it does not see."""
        image = self._cold.image
        if self._cold.resumes_as:
            return f" It is {image} on the source." if seen.image == st.READY else ""
        if not st.lacks_image(self._course(), seen):
            return ""
        return (
            f" Its memory was restored there from {image}, which the source does not see. Make sure that the source sees the folder, and run the task again. "
            "If the file is gone, resume the guest at the destination first."
        )

    def _describe_loss(self, seen: st.Seen) -> str:
        """Return that the guest ended before its memory was saved, if it did."""
        is_lost = self.journal.record.method == SAVE and not seen.source.active and seen.image == st.NO_IMAGE
        return " Its guest ended before its memory was saved, and will start from its disks." if is_lost else ""

    def _final_error(self, end: str, seen: st.Seen) -> t.Optional[KvmfleetError]:
        if end == st.ARRIVED:
            return None
        if end == st.DOUBT or self._error is None:
            return Internal(self._describe_end(end, seen)) if end == st.DOUBT else MigrationFailed(self._describe_end(end, seen))
        return type(self._error)(self._describe_end(end, seen))

    def _build_result(self, begun: float) -> Result:
        elapsed = None if self.order.adopt else round((self.clock() - begun) * 1000)
        downtime = None
        if self._paused_at is not None and self._runs_at is not None:
            downtime = round((self._runs_at - self._paused_at) * 1000)
        return Result(elapsed, downtime, None, None, None, None, mode=None, rung=None)


def _try_move(quarantine: Quarantine, file: QuarantinedFile) -> bool:
    """Move a file to quarantine; return false if it stays where it is, or is gone. An error can come after it was moved: it is in quarantine then."""
    try:
        quarantine.move_file(file)
    except (KvmfleetError, OSError):
        return is_moved(file)
    return True
