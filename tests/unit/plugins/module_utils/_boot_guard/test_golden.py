# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What earlier trees left of the boot guard on hosts and on shared storage is read by the present code, and decided about in the same way."""

from __future__ import annotations

import json
import shutil
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import install, program, storage_program
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.boot_guard import BootHold, BootRelease
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.tests.golden.corpus import CORPORA, GOLDEN, find_files, find_files_in_some, name_of

every_corpus = pytest.mark.parametrize("corpus", CORPORA, ids=name_of)

OTHER_BOOT = "00000000-0000-4000-8000-00000000b007"


def booted(root: Path, boot_id: str, run: t.Optional[Path] = None, kept: t.Optional[Path] = None) -> program.Guard:
    """Return the guard of a host with these files of a corpus, in that boot."""
    kernel = root / "proc/sys/kernel/random"
    kernel.mkdir(parents=True)
    (kernel / "boot_id").write_text(boot_id, encoding="ascii")
    if run:
        shutil.copytree(run / "guard", root / "run/kvmfleet/guard")
    if kept:
        shutil.copytree(kept / "guard", root / "var/lib/kvmfleet/guard")
    return program.Guard(str(root))


def why_held(guard: program.Guard) -> str:
    held = guard.read_hold()
    assert held is not None
    return str(held["why"])


@pytest.mark.parametrize("path", [*find_files("run/guard-*/guard/*.json"), *find_files("host/*/guard/*.json")], ids=name_of)
def test_a_file_of_the_boot_guard_is_written_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    program.write_json(str(tmp_path / "file"), json.loads(path.read_text(encoding="utf-8")))
    assert (tmp_path / "file").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("path", "kind"),
    [(path, BootHold if path.name == "held.json" else BootRelease) for path in find_files("run/guard-*/guard/*.json")],
    ids=lambda value: name_of(value) if isinstance(value, Path) else "",
)
def test_a_file_of_the_boot_guard_is_read_completely_by_modules(path: Path, kind: t.Any) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    read = decode(kind, document)
    assert encode(read) == document
    assert read.extra == {}


@every_corpus
def test_a_held_boot_stays_held(tmp_path: Path, corpus: Path) -> None:
    run = corpus / "run/guard-held"
    held = json.loads((run / "guard/held.json").read_text(encoding="utf-8"))
    guard = booted(tmp_path, held["boot_id"], run=run)
    assert (guard.read_hold(), guard.read_release(), guard.hold_boot()) == (held, None, None)


@every_corpus
@pytest.mark.parametrize(
    ("run", "by"),
    [("guard-released", program.BY_INSTALL), ("guard-released-by-control", program.BY_CONTROL), ("guard-released-by-token", program.BY_TOKEN)],
)
def test_a_released_boot_stays_released(tmp_path: Path, corpus: Path, run: str, by: str) -> None:
    released = json.loads((corpus / "run" / run / "guard/released.json").read_text(encoding="utf-8"))
    guard = booted(tmp_path, released["boot_id"], run=corpus / "run" / run)
    assert (guard.read_release(), released["by"], guard.hold_boot()) == (released, by, released)


# Clean-shutdown tokens


def test_a_clean_shutdown_token_without_shared_storage_does_not_release(tmp_path: Path) -> None:
    guard = booted(tmp_path, OTHER_BOOT, kept=GOLDEN / "0.1.0/host/trusted")
    assert guard.read_grant_id() is not None
    assert guard.confirm_token() is None
    assert "names no shared storage" in why_held(guard)


CONFIRMABLE = [path.parents[1] for path in find_files("host/trusted/guard/grant.json") if json.loads(path.read_text(encoding="utf-8")).get("folders")]


def store(root: Path, kept: Path) -> t.Tuple[Path, Path]:
    """Give a host the shared storage that its grant names; return the folder of the storage and a copy of the host's files that names it."""
    folder, copy = root / "images", root / "kept"
    folder.mkdir()
    shutil.copytree(kept, copy)
    grant = json.loads((kept / "guard/grant.json").read_text(encoding="utf-8"))
    [nonce] = grant["folders"].values()
    (copy / "guard/grant.json").write_text(json.dumps({**grant, "folders": {str(folder): nonce}}), encoding="utf-8")
    (folder / f"{storage_program.HOST_TOKEN_PREFIX}{grant['host_id']}").write_text(json.dumps({"host_id": grant["host_id"], "nonce": nonce}), encoding="utf-8")
    program_file = root / program.STORAGE_PROGRAM
    program_file.parent.mkdir(parents=True)
    shutil.copyfile(storage_program.__file__, program_file)
    return folder, copy


@pytest.mark.parametrize("kept", CONFIRMABLE, ids=name_of)
def test_a_clean_shutdown_token_that_shared_storage_confirms_releases(tmp_path: Path, kept: Path) -> None:
    _folder, copy = store(tmp_path, kept)
    token = json.loads((kept / "guard/token.json").read_text(encoding="utf-8"))
    released = booted(tmp_path, OTHER_BOOT, kept=copy).confirm_token()
    assert released is not None
    assert (released["by"], released["token"], released["grant"]) == (program.BY_TOKEN, token["token"], token["grant"])


@pytest.mark.parametrize("tombstone", find_files_in_some("tombstones/*"), ids=name_of)
def test_a_tombstone_revokes_the_token_and_is_written_back_byte_for_byte(tmp_path: Path, tombstone: Path) -> None:
    kept = tombstone.parents[1] / "host/trusted"
    folder, copy = store(tmp_path, kept)
    grant = install.read_grant(json.loads((copy / "guard/grant.json").read_text(encoding="utf-8")))
    assert install.leave_tombstones(grant) == ([str(folder)], {})
    assert [path.name for path in folder.glob(f"{storage_program.TOMBSTONE_PREFIX}*")] == [f".{tombstone.name}"]
    assert (folder / f".{tombstone.name}").read_bytes() == tombstone.read_bytes()
    guard = booted(tmp_path, OTHER_BOOT, kept=copy)
    assert guard.confirm_token() is None
    assert "was revoked while this host was off" in why_held(guard)


@pytest.mark.parametrize("path", find_files_in_some("host/*/guard/revoked.json"), ids=name_of)
def test_a_revoked_grant_stays_revoked(tmp_path: Path, path: Path) -> None:
    guard = booted(tmp_path, OTHER_BOOT, kept=path.parents[1])
    revoked = json.loads(path.read_text(encoding="utf-8"))
    assert revoked
    assert (guard.list_revoked_grants(), guard.read_grant_id()) == (revoked, None)
    for grant in revoked:
        assert not install.revoke_grant(str(tmp_path), grant=grant)[0]
    assert Path(guard.revoked_file).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", find_files_in_some("run/guard-unconfirmed/guard/held.json"), ids=name_of)
def test_a_boot_whose_token_is_not_confirmed_stays_held(tmp_path: Path, path: Path) -> None:
    held = json.loads(path.read_text(encoding="utf-8"))
    guard = booted(tmp_path, held["boot_id"], run=path.parents[1])
    assert (guard.hold_boot(), guard.read_hold()) == (None, held)
    assert held["unconfirmed"]["folders"]
