# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The copy has what the checkout has, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import sync


@pytest.fixture(name="checkout")
def small_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    checkout = tmp_path / "checkout"
    (checkout / "plugins").mkdir(parents=True)
    (checkout / ".gitignore").write_text("*.pyc\n", encoding="utf-8")
    (checkout / "plugins" / "new.py").write_text("one\n", encoding="utf-8")
    (checkout / "plugins" / "new.pyc").write_text("no\n", encoding="utf-8")
    subprocess.run(["git", "init", "-q", checkout], check=True)
    monkeypatch.setattr(sync, "ROOT", checkout)
    monkeypatch.setattr("sys.argv", ["sync.py", str(tmp_path / "build")])
    return checkout


@pytest.fixture(name="copy")
def place_of_copy(tmp_path: Path) -> Path:
    return tmp_path / "build" / sync.COPY


def names(copy: Path) -> set[str]:
    return {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file() and ".git/" not in f"{path}/"}


@pytest.mark.usefixtures("checkout")
def test_new_files_are_copied_and_ignored_ones_are_not(copy: Path) -> None:
    sync.main()
    assert names(copy) == {".gitignore", "plugins/new.py"}
    assert (copy / ".git").is_dir()


def test_changed_content_and_mode_are_copied(checkout: Path, copy: Path) -> None:
    sync.main()
    source = checkout / "plugins" / "new.py"
    source.write_text("two\n", encoding="utf-8")
    source.chmod(0o755)
    sync.main()
    assert (copy / "plugins" / "new.py").read_text(encoding="utf-8") == "two\n"
    assert os.access(copy / "plugins" / "new.py", os.X_OK)


def test_deleted_files_are_removed_from_the_copy_except_test_output(checkout: Path, copy: Path) -> None:
    sync.main()
    (checkout / "plugins" / "new.py").unlink()
    (copy / "tests" / "output" / "junit").mkdir(parents=True)
    (copy / "tests" / "output" / "junit" / "report.xml").write_text("<x/>", encoding="utf-8")
    sync.main()
    assert names(copy) == {".gitignore", "tests/output/junit/report.xml"}
    assert not (copy / "plugins").exists()
