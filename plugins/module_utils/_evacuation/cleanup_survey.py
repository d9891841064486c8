# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Surveys the copies of an evacuated domain before a cleanup: the copy on this host, the copies on other hosts, and every user of an image."""

from __future__ import annotations

import dataclasses
import os
import stat
import typing as t

from .._dataclass import dataclass
from .._facts.disks import describe_disks, list_files_below
from .._facts.image_header import Unreadable
from .._facts.storage_queries import STORAGE_SECONDS
from .._libvirt.interface import Host
from .._libvirt.reading import parse_domain_xml
from .._migration.shared_storage import Finding, compare_folders
from .._model.cleanup import CleanupPlan, CleanupQuestion, DiskVerdict, FleetReading
from .._model.clock import boot_moment
from .._model.definition_files import SEPARATE, SHARED, UNPROVED, has_deletable_tpm, list_needed_files
from .._model.errors import KvmfleetError, NotFound
from .._model.references import HostAnswer, HostRef, host_of
from .._model.requests import DiskNeed
from .._model.saved_domains import NVRAM, TPM, SavedDisk
from .._time_limits import answer_within
from .cleanup_verdicts import CLEAN, CopyVerdict, DiskFacts, LocalCopy, OtherCopies, judge_copy, judge_disk
from .images import ImageLocator
from .peers import ask_fleet, is_recent_answer
from .qemu_locks import LOCKED, probe_lock


def iterate_chain(path: str) -> t.Iterator[str]:
    """Yield the image and every file that it needs. Raises L(Unreadable), also for an endless chain."""
    yield path
    for file in list_files_below(path):
        if file.path:
            yield file.path


def find_users(path: str, images: t.Iterable[t.Tuple[str, str]]) -> t.List[str]:
    """Return, as parts of a sentence, which of these images use the image, and for which that is unknown.

    :arg images: (owner, path) of every other image that is in use on this host.
    """
    found = {_describe_use(path, owner, image) for owner, image in images}
    return sorted(use for use in found if use)


def _describe_use(path: str, owner: str, image: str) -> str:
    try:
        return owner if any(_is_same_file(path, file) for file in iterate_chain(image)) else ""
    except Unreadable as error:
        return f"{owner}, it may be: {error}"


def iterate_images_beside(path: str) -> t.Iterator[t.Tuple[str, str]]:
    """Yield the other regular files of the image's folder, which may be overlays of the image that no domain of this host names."""
    folder = os.path.dirname(path)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and not _is_same_file(path, entry.path):
                yield f"the image {entry.path}", entry.path


def _is_same_file(one: str, other: str) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


SAVE_FOLDER = "/var/lib/libvirt/qemu/save"
_CHAIN_SECONDS = 60.0
_SILENT_FILE = f"its file system did not answer within {STORAGE_SECONDS:.0f} s"


OpenCleaningHost = t.Callable[[str], Host]
ListPutAside = t.Callable[[str], t.Collection[str]]


@dataclass(frozen=True)
class OwnCopy:
    """The copy on this host, and the files that belong to it."""

    copy: LocalCopy
    managed_save: t.Optional[str] = None
    nvram: t.Optional[str] = None
    tpm: t.Optional[str] = None
    disks: t.Sequence[SavedDisk] = ()


class CleanupSurvey:
    """One survey of the domains of a task. Changes nothing. C(reading) is what all other hosts have answered to it; null if they were not asked.

    :arg uris: name of each other host of the fleet to its URI.
    :arg open_host: opens one of these hosts.
    :arg put_aside: returns the files that an earlier, interrupted run has already moved for a record.
    """

    def __init__(
        self, host: Host, host_id: str, uris: t.Mapping[str, str], open_host: OpenCleaningHost, put_aside: ListPutAside, save_folder: str = SAVE_FOLDER
    ) -> None:
        self._host = host
        self._host_id = host_id
        self._uris = uris
        self._open = open_host
        self._put_aside = put_aside
        self._save_folder = save_folder
        self._images = ImageLocator()
        self._pools = host.read_surroundings().pools or ()
        self.reading: t.Optional[FleetReading] = None

    def plan_cleanups(self, domains: t.Sequence[CleanupQuestion]) -> t.List[CleanupPlan]:
        """Return the permitted cleanup of each domain's copy."""
        answers = self._ask_others([domain.uuid for domain in domains])
        return [self._plan_cleanup(domain, answers) for domain in domains]

    def plan_again(self, domain: CleanupQuestion, earlier: t.Optional[FleetReading], uuids: t.Sequence[str]) -> CleanupPlan:
        """Return the permitted cleanup of one domain that an earlier survey has planned.

        :arg earlier: what all other hosts have answered before. It counts for 120 s, and only if the host that has the domain says now that it still does.
        :arg uuids: the domains to ask all other hosts about if it does not count.
        """
        plan = self._plan_by_earlier(domain, earlier) if earlier is not None and self._is_valid(earlier, domain) else None
        return plan or self._plan_cleanup(domain, self._ask_others(uuids))

    def _is_valid(self, earlier: FleetReading, domain: CleanupQuestion) -> bool:
        return is_recent_answer(earlier.moment, boot_moment()) and domain.uuid in earlier.uuids and set(earlier.answers) == set(self._uris)

    def _plan_by_earlier(self, domain: CleanupQuestion, earlier: FleetReading) -> t.Optional[CleanupPlan]:
        """Return the plan by earlier answers and a new one of the host that has the domain; null unless both permit the removal, and the former still count."""
        where = self._judge_copy(domain, self._find_copy(domain.uuid, self._put_aside(domain.record)), self._list_others(earlier.answers)).where
        if where is None:
            return None
        again = ask_fleet({where: self._uris[where]}, self._open, [domain.uuid])
        plan = self._plan_cleanup(domain, self._list_others({**earlier.answers, **again}))
        # That host, or the storage of the disks, may have been slow.
        return plan if plan.kind == CLEAN and plan.where == where and self._is_valid(earlier, domain) else None

    def _ask_others(self, uuids: t.Sequence[str]) -> t.Dict[str, HostAnswer]:
        """Query all other hosts."""
        asked_at = boot_moment()
        self.reading = FleetReading(ask_fleet(self._uris, self._open, uuids), tuple(uuids), asked_at)
        return self._list_others(self.reading.answers)

    def _list_others(self, given: t.Mapping[str, HostAnswer]) -> t.Dict[str, HostAnswer]:
        """Return the answers of the other hosts. A host with two names, or this host itself, counts once."""
        answers, seen = {}, [HostRef(None, self._host_id, self._host.host_uuid())]
        for name, answer in sorted(given.items()):
            who = answer.as_host()
            if not any(who.is_same_answer(other) for other in seen):
                answers[name] = answer
                seen.append(who)
        return answers

    def _judge_copy(self, domain: CleanupQuestion, own: OwnCopy, answers: t.Mapping[str, HostAnswer]) -> CopyVerdict:
        others = _summarize_others(domain, answers)
        return judge_copy(own.copy, others, domain.defined, domain.came_back, bool(domain.fenced), bool(domain.missing))

    def _plan_cleanup(self, domain: CleanupQuestion, answers: t.Mapping[str, HostAnswer]) -> CleanupPlan:
        gone = self._put_aside(domain.record)
        own = self._find_copy(domain.uuid, gone)
        verdict = self._judge_copy(domain, own, answers)
        disks = [disk for disk in own.disks or domain.saved if disk.path and disk.path not in gone]
        return CleanupPlan(
            domain.uuid,
            domain.name,
            domain.record,
            verdict.kind,
            verdict.reason,
            verdict.where,
            own.copy.present,
            own.managed_save,
            own.nvram,
            own.tpm,
            tuple(self._judge_disks(domain, disks, verdict)) if verdict.kind == CLEAN else (),
        )

    def _find_copy(self, uuid: str, gone: t.Collection[str]) -> OwnCopy:
        view = self._host.view_domain(uuid)
        if not view.present or view.active:
            return OwnCopy(LocalCopy(view.present, view.active))
        root = parse_domain_xml(self._host.read_definition(uuid))
        files = {file.what: file.path for file in list_needed_files(root) if file.kind == "file"}
        managed_save = self._find_managed_save(uuid, root.findtext("name") or "", gone)
        loses_tpm = has_deletable_tpm(root) and not self._host.keeps_tpm()
        return OwnCopy(
            LocalCopy(True, False, self._find_blocker(uuid, managed_save, loses_tpm)),
            managed_save,
            nvram=files.get(NVRAM),
            tpm=files.get(TPM),
            disks=self._images.locate_disks(describe_disks(root, None, self._pools), self._pools, None),
        )

    def _find_managed_save(self, uuid: str, name: str, gone: t.Collection[str]) -> t.Optional[str]:
        path = os.path.join(self._save_folder, f"{name}.save")
        return path if self._host.has_managed_save(uuid) and path not in gone else None

    def _find_blocker(self, uuid: str, managed_save: t.Optional[str], loses_tpm: bool) -> str:
        snapshots, checkpoints = self._host.count_snapshots(uuid)
        if snapshots or checkpoints:
            return (
                f"libvirt has {snapshots} snapshots and {checkpoints} checkpoints of it here, and would lose them: remove those that are not needed "
                "(virsh snapshot-delete --metadata) and run the task again"
            )
        if loses_tpm:
            return "this host's libvirt (before 8.9) would delete the state of its TPM: copy that state, then undefine the domain by hand"
        if managed_save and not os.path.isfile(managed_save):
            return f"libvirt has a managed-save image of it that is not at {managed_save}"
        return ""

    # -- disks ---------------------------------------------------------------------------------------------------

    def _judge_disks(self, domain: CleanupQuestion, disks: t.Sequence[SavedDisk], verdict: CopyVerdict) -> t.List[DiskVerdict]:
        """Judge the disks of the definition on this host or, if it has been removed, the recorded disks."""
        if not disks:
            return []
        saved = {disk.target: disk for disk in domain.saved}
        peer = _PeerHost(self._uris[verdict.where], self._open, domain.uuid) if verdict.where else None
        try:
            used = list(self._iterate_used_images(domain.uuid))
            return [judge_disk(self._gather_disk_facts(disk, saved.get(disk.target), peer, used), self._host_id) for disk in disks]
        finally:
            if peer:
                peer.close()

    def _gather_disk_facts(self, disk: SavedDisk, saved: t.Optional[SavedDisk], peer: t.Optional[_PeerHost], used: t.Sequence[t.Tuple[str, str]]) -> DiskFacts:
        path = disk.path
        known = saved if saved is not None and saved.path == path else None
        facts = DiskFacts(disk.target, disk.kind, path, disk.readonly, known)
        if disk.kind != "file" or known is None or disk.readonly:
            return facts
        problem = self._images.storage.ask(path, lambda: (_find_file_problem(path),))
        if problem is None or problem[0]:
            return dataclasses.replace(facts, problem=problem[0] if problem else _SILENT_FILE)
        finding = peer.compare_stores(path, disk.target) if peer else Finding(UNPROVED, "no host that has the domain answers")
        return dataclasses.replace(
            facts,
            mount=self._images.locate_disks([DiskNeed(disk.target, kind="file", source=path, shared=None)], (), None)[0].mount or None,
            users=_find_image_users(path, used),
            locked=probe_lock(path).state == LOCKED,
            verdict=finding.verdict,
            why=finding.why,
            replaced=peer is None or disk.target in peer.targets,
        )

    def _iterate_used_images(self, uuid: str) -> t.Iterator[t.Tuple[str, str]]:
        """Yield (domain, path) of every image, and every backing file that libvirt knows, of the other domains of this host."""
        for other, name, xml in self._host.iterate_definitions():
            if other == uuid:
                continue
            root = parse_domain_xml(xml)
            for disk in self._images.locate_disks(describe_disks(root, None, self._pools), self._pools, root):
                for path in [disk.path, *(disk.backing or ())]:
                    if path.startswith("/"):
                        yield f"domain {name}", path

    def find_users(self, path: str) -> t.List[str]:
        """Return which domains of this host use a file."""
        return find_users(path, self._iterate_used_images(""))


def _find_image_users(path: str, used: t.Sequence[t.Tuple[str, str]]) -> t.List[str]:
    """Return the users of the image. An image that cannot be read in time may be a user."""
    found = answer_within(_CHAIN_SECONDS, lambda: (find_users(path, [*used, *iterate_images_beside(path)]),))
    return found[0] if found else ["an image that could not be read"]


class _PeerHost:
    """The host that has the domain now."""

    def __init__(self, uri: str, open_host: OpenCleaningHost, uuid: str) -> None:
        self._host = open_host(uri)
        try:
            self.targets = {disk.target: disk for disk in self._host.find_domain(uuid=uuid).disks if disk.source}
        except KvmfleetError:
            self.close()
            raise

    def compare_stores(self, path: str, target: str) -> Finding:
        """Return whether the folder of the image is the same storage as that path on the other host, or as the folder of the domain's disk there.

        This also proves a folder that the other host has under another path. Raises L(Unreachable).
        """
        folders = [os.path.dirname(path)]
        disk = self.targets.get(target)
        if disk is not None and disk.kind == "file" and disk.source.startswith("/"):
            folders.append(os.path.dirname(disk.source))
        findings = [finding for finding in (self._compare_folder(path, folder) for folder in dict.fromkeys(folders)) if finding is not None]
        for wanted in (SHARED, UNPROVED):
            found = next((finding for finding in findings if finding.verdict == wanted), None)
            if found is not None:
                return found
        return Finding(SEPARATE) if findings else Finding(UNPROVED, f"the other host has no folder {folders[0]} that libvirt can open")

    def _compare_folder(self, path: str, folder: str) -> t.Optional[Finding]:
        try:
            with self._host.open_folder(folder) as opened:
                return compare_folders(path, opened)
        except NotFound:
            return None

    def close(self) -> None:
        self._host.close()


def _find_file_problem(path: str) -> str:
    """Return why the file cannot be moved; empty if it is."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return "it is not there"
    except OSError as error:
        return f"it cannot be examined: {error.strerror}"
    if not stat.S_ISREG(found.st_mode):
        return "it is not a regular file"
    return "the file has another name (hard link)" if found.st_nlink > 1 else ""


def _summarize_others(domain: CleanupQuestion, answers: t.Mapping[str, HostAnswer]) -> OtherCopies:
    expected = [host_of(host) for host in domain.expected]
    answered = {name: answer for name, answer in answers.items() if answer.answered}
    there = {name: answer.find_domain(domain.uuid) for name, answer in answered.items()}
    return OtherCopies(
        active=[name for name, found in there.items() if found and found.active],
        defined=[name for name, found in there.items() if found],
        silent={name: str(answer.msg) for name, answer in answers.items() if not answer.answered},
        expected=[name for name, answer in answered.items() if any(host.is_same(answer.as_host(name)) for host in expected)],
    )
