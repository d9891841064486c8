# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What this host, and through it the others, say of the domains that were evacuated from it; and what follows from that."""

from __future__ import annotations

import os
import stat
import typing as t

from .._errors import KvmfleetError, NotFound
from .._facts.disks import disks_of
from .._hypervisor.domain import definition_root
from .._migration import hypervisor as h
from .._patience import within
from .._records.hosts import same_answer, same_host
from .._records.schema import place
from .._storage.ports import Folder
from .._storage.token import SEPARATE, SHARED, UNPROVED, Finding, compare
from .ask import AskedHost, ask_fleet
from .cleanup import CLEAN, Copy, DiskFacts, Elsewhere, Verdict, judge, judge_disk
from .cleanup_backing import images_beside, users_of
from .images import PATIENCE_SECONDS, Images
from .locks import LOCKED, probe

Json = t.Dict[str, t.Any]

SAVE_FOLDER = "/var/lib/libvirt/qemu/save"
_TPM_FOLDER = "/var/lib/libvirt/swtpm"
_CHAIN_SECONDS = 60.0
_SILENT_FILE = f"its file system did not answer within {PATIENCE_SECONDS:.0f} s"


class CleaningHost(AskedHost, t.Protocol):
    """A host that can forget a domain without deleting anything of it, and whose folders can be compared with those of others."""

    def view(self, uuid: str) -> h.GuestView:
        """The domain now."""

    def find(self, name: t.Optional[str] = None, uuid: t.Optional[str] = None) -> h.DomainInfo:
        """The domain with its disks. Raises L(NotFound)."""

    def surroundings(self) -> t.Dict[str, t.Any]:
        """C(pools) among others."""

    def definition(self, uuid: str) -> str:
        """The inactive definition, without passwords. Raises L(NotFound)."""

    def whole_definition(self, uuid: str, persistent: bool) -> str:
        """The inactive definition with its passwords. Raises L(NotFound)."""

    def definitions(self) -> t.Iterator[t.Tuple[str, str, str]]:
        """UUID, name and definition of every domain; of an active one both."""

    def has_managed_save(self, uuid: str) -> bool:
        """Whether the next start would restore a saved memory image."""

    def attached(self, uuid: str) -> t.Tuple[int, int]:
        """How many snapshots and checkpoints libvirt knows of the domain."""

    def keeps_tpm(self) -> bool:
        """Whether undefining can keep the state of an emulated TPM."""

    def folder(self, path: str) -> t.ContextManager[Folder]:
        """The folder of that path. Raises L(NotFound) where the host cannot open it."""

    def forget(self, uuid: str) -> None:
        """Undefine an inactive domain and delete nothing of it."""


Open = t.Callable[[str], CleaningHost]
PutAside = t.Callable[[str], t.Collection[str]]


class Survey:
    """One look at the domains of a task. Changes nothing.

    :arg uris: name of each other host of the fleet to its URI.
    :arg open_host: opens one of them.
    :arg put_aside: returns the files that an earlier run, which died on its way, has moved already for a record.
    """

    def __init__(
        self, host: CleaningHost, host_id: str, uris: t.Mapping[str, str], open_host: Open, put_aside: PutAside, save_folder: str = SAVE_FOLDER
    ) -> None:
        self._host = host
        self._host_id = host_id
        self._uris = uris
        self._open = open_host
        self._put_aside = put_aside
        self._save_folder = save_folder
        self._images = Images()
        self._pools: t.Sequence[t.Mapping[str, t.Any]] = host.surroundings()["pools"] or ()

    def plans(self, domains: t.Sequence[Json]) -> t.List[Json]:
        """Return for each domain C({uuid, name, record, kind, reason, where, present, managed_save, nvram, tpm, disks}).

        :arg domains: C(uuid), C(name), C(record) (its id), C(defined), C(came_back), C(expected) (places), C(saved) (disks).
        """
        answers = self._answers([domain["uuid"] for domain in domains])
        return [self._plan(domain, answers) for domain in domains]

    def _answers(self, uuids: t.Sequence[str]) -> t.Dict[str, Json]:
        """Ask all others. A host that is reached by two names, or that is this one, counts once."""
        answers, seen = {}, [place(None, self._host_id, self._host.host_uuid())]
        for name, answer in sorted(ask_fleet(self._uris, self._open, uuids).items()):
            if not any(same_answer(answer, other) for other in seen):
                answers[name] = answer
                seen.append(answer)
        return answers

    def _plan(self, domain: Json, answers: t.Mapping[str, Json]) -> Json:
        gone = self._put_aside(domain["record"])
        copy, about = self._copy(domain["uuid"], gone)
        verdict = judge(copy, _elsewhere(domain, answers), domain["defined"], domain["came_back"])
        own = about.pop("disks") or domain["saved"]
        disks = self._disks(domain, [disk for disk in own if disk["path"] and disk["path"] not in gone], verdict) if verdict.kind == CLEAN else []
        named = {key: domain[key] for key in ("uuid", "name", "record")}
        return {**named, **verdict.__dict__, "present": copy.present, **about, "disks": disks}

    def _copy(self, uuid: str, gone: t.Collection[str]) -> t.Tuple[Copy, Json]:
        view = self._host.view(uuid)
        about: Json = {"managed_save": None, "nvram": None, "tpm": None, "disks": []}
        if not view.present or view.active:
            return Copy(view.present, view.active), about
        root = definition_root(self._host.definition(uuid))
        name = root.findtext("name") or ""
        backend = root.find("devices/tpm/backend[@type='emulator']")
        about["nvram"] = (root.findtext("os/nvram") or "").strip() or None
        about["tpm"] = f"{_TPM_FOLDER}/{uuid}" if backend is not None else None
        about["disks"] = self._images.disks(disks_of(root, None, self._pools), self._pools, None)
        save = os.path.join(self._save_folder, f"{name}.save")
        about["managed_save"] = save if self._host.has_managed_save(uuid) and save not in gone else None
        loses_tpm = backend is not None and backend.get("persistent_state") != "yes" and not self._host.keeps_tpm()
        return Copy(True, False, self._blocker(uuid, about["managed_save"], loses_tpm)), about

    def _blocker(self, uuid: str, managed_save: t.Optional[str], loses_tpm: bool) -> str:
        snapshots, checkpoints = self._host.attached(uuid)
        if snapshots or checkpoints:
            return (
                f"libvirt knows {snapshots} snapshots and {checkpoints} checkpoints of it here, and would forget them: remove those that nobody needs "
                "(virsh snapshot-delete --metadata) and run the task again"
            )
        if loses_tpm:
            return "this host's libvirt (before 8.9) would delete the state of its TPM: undefine it by hand after a copy was made"
        if managed_save and not os.path.isfile(managed_save):
            return f"libvirt has a managed-save image of it that is not at {managed_save}"
        return ""

    # -- disks ---------------------------------------------------------------------------------------------------

    def _disks(self, domain: Json, disks: t.Sequence[Json], verdict: Verdict) -> t.List[Json]:
        """Judge the disks of the definition here, or where that is gone already those that were recorded."""
        if not disks:
            return []
        saved = {disk["target"]: disk for disk in domain["saved"]}
        peer = _Peer(self._uris[str(verdict.where)], self._open, domain["uuid"])
        try:
            used = list(self._used_by_others(domain["uuid"]))
            return [judge_disk(self._facts(disk, saved.get(disk["target"]), peer, used), self._host_id) for disk in disks]
        finally:
            peer.close()

    def _facts(self, disk: Json, saved: t.Optional[Json], peer: _Peer, used: t.Sequence[t.Tuple[str, str]]) -> DiskFacts:
        path = disk["path"]
        known = saved if saved is not None and saved.get("path") == path else None
        facts: Json = {"target": disk["target"], "kind": disk["kind"], "path": path, "readonly": bool(disk.get("readonly")), "saved": known}
        if disk["kind"] != "file" or known is None or facts["readonly"]:
            return DiskFacts(**facts)
        problem = within(PATIENCE_SECONDS, lambda: (_problem(path),))
        if problem is None or problem[0]:
            return DiskFacts(**facts, problem=problem[0] if problem else _SILENT_FILE)
        finding = peer.compare(path, disk["target"])
        return DiskFacts(
            **facts,
            mount=self._images.disks([{**_AS_ASKED, "target": disk["target"], "source": path}], (), None)[0]["mount"],
            users=_users(path, used),
            locked=probe(path).state == LOCKED,
            verdict=finding.verdict,
            why=finding.why,
            replaced=disk["target"] in peer.targets,
        )

    def _used_by_others(self, uuid: str) -> t.Iterator[t.Tuple[str, str]]:
        """Yield (domain, path) of every image, and every backing file that libvirt knows, of the other domains of this host."""
        for other, name, xml in self._host.definitions():
            if other == uuid:
                continue
            root = definition_root(xml)
            for disk in self._images.disks(disks_of(root, None, self._pools), self._pools, root):
                for path in [disk["path"], *disk["backing"]]:
                    if path.startswith("/"):
                        yield f"domain {name}", path

    def users_of(self, path: str) -> t.List[str]:
        """Return which domains of this host use a file."""
        return users_of(path, self._used_by_others(""))


def _users(path: str, used: t.Sequence[t.Tuple[str, str]]) -> t.List[str]:
    """Return who uses the image. What cannot be read in time may be a user."""
    found = within(_CHAIN_SECONDS, lambda: (users_of(path, [*used, *images_beside(path)]),))
    return found[0] if found else ["an image that could not be read"]


_AS_ASKED = {"kind": "file", "readonly": False, "optional": False, "shared": None}


class _Peer:
    """The host that has the domain now."""

    def __init__(self, uri: str, open_host: Open, uuid: str) -> None:
        self._host = open_host(uri)
        try:
            self.targets = {disk.target: disk for disk in self._host.find(uuid=uuid).disks if disk.source}
        except KvmfleetError:
            self.close()
            raise

    def compare(self, path: str, target: str) -> Finding:
        """Return whether the image's folder here is one store with the folder of that path there, or with the one where the domain's disk is now.

        What is there under another path alone is proved by that; raises L(Unreachable).
        """
        folders = [os.path.dirname(path)]
        disk = self.targets.get(target)
        if disk is not None and disk.kind == "file" and disk.source.startswith("/"):
            folders.append(os.path.dirname(disk.source))
        findings = [finding for finding in (self._compare(path, folder) for folder in dict.fromkeys(folders)) if finding is not None]
        for wanted in (SHARED, UNPROVED):
            found = next((finding for finding in findings if finding.verdict == wanted), None)
            if found is not None:
                return found
        return Finding(SEPARATE) if findings else Finding(UNPROVED, f"the other host has no folder {folders[0]}")

    def _compare(self, path: str, folder: str) -> t.Optional[Finding]:
        try:
            with self._host.folder(folder) as opened:
                return compare(path, opened)
        except NotFound:
            return None

    def close(self) -> None:
        self._host.close()


def _problem(path: str) -> str:
    """Say why the file is not one that could be moved; empty where it is."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return "it is not there"
    except OSError as error:
        return f"it cannot be looked at: {error.strerror}"
    if not stat.S_ISREG(found.st_mode):
        return "it is no regular file"
    return "the file has another name (hard link)" if found.st_nlink > 1 else ""


def _elsewhere(domain: Json, answers: t.Mapping[str, Json]) -> Elsewhere:
    there = {name: answer["domains"].get(domain["uuid"]) for name, answer in answers.items() if answer["answered"]}
    return Elsewhere(
        active=[name for name, found in there.items() if found and found["active"]],
        defined=[name for name, found in there.items() if found],
        silent={name: answer["msg"] for name, answer in answers.items() if not answer["answered"]},
        expected=[name for name in there if any(same_host(where, {**answers[name], "host": name}) for where in domain["expected"])],
    )
