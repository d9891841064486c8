# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet on which the documents come into being: three hosts of the lab, a control node named C(control), and what is kept of both."""

from __future__ import annotations

import json
import pathlib
import shutil
import typing as t

from ansible_collections.kvmfleet.migration.tests.golden.quick import QuickSite
from ansible_collections.kvmfleet.migration.tests.golden.recorder import Recorder
from ansible_collections.kvmfleet.migration.tests.integration.support import site as sites
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

Document = t.Dict[str, t.Any]

PREFIX = "kvm"
PLAIN = {"mib": 32, "dirty_mib": 8, "rate": 200}
ENDLESS = {"mib": 96, "dirty_mib": 64, "rate": 6000}
CALM = {"mib": 64, "dirty_mib": 40, "rate": 500}
# A watcher's own troubles are text for people, and no document.
_NO_DOCUMENT = (".log", ".new")
# Nobody waits for this run: on a busy machine it takes its time.
sites.PLAY_SECONDS = 900


class Stage:
    """:arg folder: where the control node lives.

    :arg out: where the corpus is written.
    """

    def __init__(self, lab: Lab, folder: pathlib.Path, out: pathlib.Path) -> None:
        self.lab = lab
        self.out = out
        self.site = QuickSite(lab, folder)
        self.recorder = Recorder(folder / "recorder")
        self.site.record = self.recorder.write
        self._names: t.Set[str] = set()

    def guest(self, name: str, on: int = 1, **options: t.Any) -> str:
        self._names.add(name)
        self.lab.make_guest(name, {"host": on, **options})
        return name

    def remove(self, *names: str) -> None:
        for name in names or tuple(self._names):
            self._names.discard(name)
            self.lab("rmguest", name)

    def mend(self) -> None:
        """Give every host its power and its cable, and take all guests away."""
        self.lab("up", "--hosts", "3")
        for number in (1, 2, 3):
            self.site.hooks[number].clear()
            self.lab("heal", self.lab.host(number))
            self.site.variable(number, "kvmfleet_scheduler", {"cpu_allocation_ratio": 32.0})
            for name in self._names:
                self.lab.try_("virsh", self.lab.host(number), "domjobabort", name)
        for name in tuple(self._names):
            self._names.discard(name)
            self.lab.try_("rmguest", name)

    def under_way(self, name: str, on: int = 1) -> Document:
        return self.lab.under_way(self.lab.uuid(name, on), on)

    def abort(self, name: str, on: int = 1) -> None:
        done = self.site.popen(self.site.ad_hoc_command(on, "migration_abort", {"name": name}, ledger=False))
        text, _code = done.communicate(timeout=120)
        assert done.returncode == 0, text

    def ends(self, done: t.Any, status: str, reason: t.Optional[str] = None) -> Document:
        """Check how a move ended: a story that went another way makes no corpus."""
        assert done.ended() == (status, reason), done.text
        return t.cast(Document, done.record)

    # What is kept

    def keep_run(self, name: str, number: int = 1) -> None:
        """Keep the files under /run/kvmfleet of a host as they are at this moment."""
        self._copy(self.lab.path(number, "/run/kvmfleet"), self.out / "run" / name)

    def keep_ledger(self, folder: pathlib.Path, name: str) -> None:
        """Keep a ledger's whole folder, without the files that are only locked."""
        shutil.copytree(folder, self.out / "ledgers" / name, ignore=shutil.ignore_patterns("*.lock", "*.gate", "locks"), dirs_exist_ok=True)

    def keep_disk(self, name: str, number: int = 1) -> None:
        """Keep the files under /var/lib/kvmfleet of a host."""
        self._copy(self.site.on_disk(number, "var-lib-kvmfleet"), self.out / "host" / name)

    def keep_tokens(self, folder: pathlib.Path) -> None:
        """Keep the tokens that hosts have left in a folder of images."""
        target = self.out / "tokens"
        target.mkdir(parents=True, exist_ok=True)
        for token in folder.glob(".kvmfleet-host-*"):
            shutil.copy(token, target / token.name.lstrip("."))

    def keep_tombstones(self, folder: pathlib.Path) -> None:
        """Keep the tombstones of revoked grants that hosts have left in a folder of images."""
        target = self.out / "tombstones"
        target.mkdir(parents=True, exist_ok=True)
        for tombstone in folder.glob(".kvmfleet-revoked-*"):
            shutil.copy(tombstone, target / tombstone.name.lstrip("."))

    def keep_text(self, name: str, text: str) -> None:
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def keep_lines(self, name: str, documents: t.Iterable[t.Any]) -> None:
        self.keep_text(name, "".join(f"{json.dumps(document, sort_keys=True)}\n" for document in documents))

    @staticmethod
    def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
        for path in sorted(source.rglob("*")):
            if path.is_file() and path.stat().st_size and path.suffix not in _NO_DOCUMENT and ".qcow2" not in path.suffixes:
                place = target / path.relative_to(source)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, place)

    def await_file(self, pattern: str, number: int = 1) -> None:
        folder = self.lab.path(number, "/run/kvmfleet")
        eventually(lambda: list(folder.glob(pattern)), f"{pattern} is there", 60)
