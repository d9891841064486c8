# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An older tree comes from the repository's history; where the history is missing, the error says so and what to do."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from ansible_collections.kvmfleet.migration.tests.golden import unpacked

AUTHOR = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.com")


@pytest.fixture
def checkout(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder that stands in for the checkout."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    monkeypatch.setattr(unpacked, "CHECKOUT", checkout)
    # Git must not find a repository above that folder.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return checkout


def git(checkout: pathlib.Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(checkout), *AUTHOR, *arguments], capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def commit(checkout: pathlib.Path, content: str) -> str:
    """Commit a file with that content; return the revision."""
    (checkout / "galaxy.yml").write_text(content)
    git(checkout, "add", "galaxy.yml")
    git(checkout, "commit", "-q", "-m", content)
    return git(checkout, "rev-parse", "HEAD")


def test_a_tree_of_the_history_is_unpacked_as_a_collection(checkout: pathlib.Path, tmp_path: pathlib.Path) -> None:
    git(checkout, "init", "-q")
    old = commit(checkout, "version: 1")
    commit(checkout, "version: 2")
    build = unpacked.unpack(old, tmp_path / "build")
    assert (build / "ansible_collections/kvmfleet/migration/galaxy.yml").read_text() == "version: 1"


@pytest.mark.parametrize("is_repository", [True, False], ids=["a shallow clone", "an unpacked tarball"])
def test_a_missing_revision_is_an_error_that_names_the_next_step(checkout: pathlib.Path, tmp_path: pathlib.Path, is_repository: bool) -> None:
    if is_repository:
        git(checkout, "init", "-q")
        commit(checkout, "version: 2")
    with pytest.raises(unpacked.NoHistory, match=f"{checkout} has no revision e2bd77c: .*git fetch --unshallow"):
        unpacked.unpack(unpacked.VERSION_0_1_0, tmp_path / "build")
    assert not (tmp_path / "build").exists()
