# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The execution environment: ansible-builder takes the definition, and what it puts into the image can be installed there."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import typing as t

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEFINITION = ROOT / "awx/execution-environment.yml"
BIN = pathlib.Path(sys.executable).parent


def run(*command: str, cwd: pathlib.Path) -> str:
    done = subprocess.run([str(BIN / command[0]), *command[1:]], cwd=cwd, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What a container engine would be given."""
    folder = tmp_path_factory.mktemp("awx")
    shutil.copy(DEFINITION, folder)
    run("ansible-galaxy", "collection", "build", "--output-path", str(folder), cwd=ROOT)
    run("ansible-builder", "create", "--file", DEFINITION.name, "--context", "context", "--output-filename", "Containerfile", cwd=folder)
    return folder / "context"


def test_ansible_builder_accepts_the_definition(context: pathlib.Path) -> None:
    text = (context / "Containerfile").read_text()
    assert "quay.io/centos/centos:stream9" in text
    assert "python3.11" in text


def test_the_collection_is_compiled_where_it_is_copied_to(context: pathlib.Path) -> None:
    lines = (context / "Containerfile").read_text().splitlines()
    copied = next(number for number, line in enumerate(lines) if line.startswith("COPY --from=galaxy /usr/share/ansible /usr/share/ansible"))
    compiled = next(number for number, line in enumerate(lines) if "compileall" in line)
    final = max(number for number, line in enumerate(lines) if line.startswith("FROM "))
    assert max(copied, final) < compiled
    assert lines[compiled].endswith(" /usr/share/ansible/collections/ansible_collections/kvmfleet")


def test_the_collection_of_the_definition_can_be_installed(context: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run("ansible-galaxy", "collection", "install", "--force", "--offline", "-r", "requirements.yml", "-p", str(tmp_path), cwd=context / "_build")
    installed = tmp_path / "ansible_collections/kvmfleet/migration"
    assert (installed / "playbooks/drain.yml").read_text() == (ROOT / "playbooks/drain.yml").read_text()


def test_introspect_finds_the_requirements_of_the_collection(context: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Asked as ansible-builder asks it: an SSH client and one Python package, and nothing that is compiled."""
    run("ansible-galaxy", "collection", "install", "--force", "--offline", "-r", "requirements.yml", "-p", str(tmp_path), cwd=context / "_build")
    asked = run("ansible-builder", "introspect", str(tmp_path), cwd=tmp_path)
    needs: dict[str, t.Any] = yaml.safe_load(asked.partition("---")[2])
    assert [line.split("#")[0].strip() for line in needs["python"]] == ["jmespath >= 1.0.0"]
    assert sorted(line.split("#")[0].strip() for line in needs["system"]) == ["openssh-client [platform:dpkg]", "openssh-clients [platform:rpm]"]
