# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The service of the lease, below a folder that stands for the root of a host."""

from __future__ import annotations

import io
import json
import os
import pathlib
import subprocess
import sys
import types
import typing as t
import zipfile

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _systemd
from ansible_collections.kvmfleet.migration.plugins.module_utils._archive import build_archive
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import install as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.config import LeaseConfig
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.program import run_lease
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.watchdog import TESTED_FILE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import LeaseWatchdog

from .conftest import make_config

TLS: t.Mapping[str, str] = types.MappingProxyType({"ca_file": "ca", "cert_file": "certificate", "key_file": "key"})
CONFIG, COUNT = "etc/kvmfleet/lease.json", "var/lib/kvmfleet/lease-count"
INSTALLED = {m.PROGRAM_FILE, CONFIG, m.UNIT_FILE, m.WANTS_LINK, *m.TLS_FILES.values()}


@pytest.fixture(autouse=True)
def tried(monkeypatch: pytest.MonkeyPatch) -> t.List[t.Tuple[t.Optional[str], str]]:
    """The passwords of the configurations that were tried, with the content of their key file. One with the password C(wrong) cannot work."""
    seen: t.List[t.Tuple[t.Optional[str], str]] = []

    def explain(config: LeaseConfig) -> str:
        seen.append((config.password, pathlib.Path(str(config.key_file)).read_text(encoding="utf-8") if config.key_file else ""))
        return "10.0.0.1:2379: it rejects the user 'lease-kvm1'" if config.password == "wrong" else ""

    monkeypatch.setattr(m, "explain_no_renewal", explain)
    return seen


def tree(root: pathlib.Path) -> t.Set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or path.is_file()}


def install(root: pathlib.Path, tls: t.Mapping[str, str] = TLS, **options: t.Any) -> t.Set[str]:
    changes = {name: options.pop(name) for name in tuple(options) if name not in ("least_count", "check_mode")}
    return {path.lstrip("/") for path in m.install_lease(make_config(**changes), tls, root=str(root), **options).files}


def test_a_program_that_needs_a_virtual_environment_is_a_warning(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody removes it after an upgrade of Ansible, for example, and the watchdog resets the host."""
    monkeypatch.setattr(_systemd, "INTERPRETERS", ("/usr/bin/python3",))
    assert m.install_lease(make_config(), TLS, root=str(tmp_path)).warnings == ()
    monkeypatch.setattr(_systemd, "INTERPRETERS", ())
    monkeypatch.setattr(sys, "prefix", "/opt/venv")
    (warning,) = m.install_lease(make_config(), TLS, root=str(tmp_path)).warnings
    assert (sys.executable in warning, warning.endswith("a watchdog that is bound to it resets the host.")) == (True, True)


def test_a_second_installation_changes_nothing(tmp_path: pathlib.Path) -> None:
    assert install(tmp_path) == tree(tmp_path) == INSTALLED | {COUNT}
    assert install(tmp_path) == set()
    assert os.readlink(tmp_path / m.WANTS_LINK) == f"/{m.UNIT_FILE}"


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_configuration_with_which_a_host_would_lose_its_lease_is_refused(tmp_path: pathlib.Path, check_mode: bool) -> None:
    install(tmp_path)
    before = (tmp_path / CONFIG).read_text()
    with pytest.raises(Unsafe, match=r"it rejects the user 'lease-kvm1'") as error:
        install(tmp_path, password="wrong", check_mode=check_mode)
    assert "Nothing was changed" in str(error.value)
    assert (tmp_path / CONFIG).read_text() == before
    assert install(tmp_path, password="another") == {CONFIG}


def test_only_a_change_of_what_the_lease_needs_is_tried(tmp_path: pathlib.Path, tried: t.List[t.Tuple[t.Optional[str], str]]) -> None:
    install(tmp_path)
    install(tmp_path)
    (tmp_path / m.UNIT_FILE).write_text("older")
    install(tmp_path)
    assert tried == []
    install(tmp_path, tls={**TLS, "key_file": "new key"})
    install(tmp_path, password="another", tls={})
    assert tried == [("secret", "new key"), ("another", "")]


def test_a_service_whose_task_died_after_its_files_had_changed_is_started_anew(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep its old password, which may be withdrawn later."""
    calls: t.List[str] = []

    def systemctl(*words: str, state: str) -> None:
        calls.append(words[0])
        if len(calls) == 3:
            raise Internal(f"failed. {state}")

    monkeypatch.setattr(m, "is_systemd_running", lambda _root: True)
    monkeypatch.setattr(_systemd, "run_systemctl", systemctl)
    install(tmp_path)
    with pytest.raises(Internal, match="in place"):
        install(tmp_path, password="another")
    assert install(tmp_path, password="another") == {_systemd.RestartNote(m.SERVICE, "/").path}
    assert install(tmp_path, password="another") == set()
    assert calls == ["daemon-reload", "restart", "daemon-reload", "daemon-reload", "restart", "start"]


def test_a_program_that_does_not_run_is_not_installed_also_by_the_next_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the real root is written."""
    answers = iter([b"no ssl\n", b"no ssl\n", b"usage: lease\n"])
    files: t.Dict[str, t.Any] = {}
    for name, instead in (
        ("try_program", lambda _interpreter, _content: subprocess.CompletedProcess([], 2, b"", next(answers))),
        ("is_systemd_running", lambda _root: False),
        ("has_content", lambda path, content, _mode: files.get(path) == content),
        ("is_linked", lambda path, unit: files.get(path) == unit),
        ("install_file", lambda path, content, _mode: files.update({path: content})),
        ("link_unit", lambda path, unit: files.update({path: unit})),
    ):
        monkeypatch.setattr(m, name, instead)
    for _try in range(2):
        with pytest.raises(Internal, match=r"does not run on this host: no ssl\. The service was not changed"):
            m.install_lease(make_config(), TLS)
    assert files == {}
    m.install_lease(make_config(), TLS)
    assert files.keys() >= {f"/{path}" for path in INSTALLED}


def test_secrets_are_for_root_only_and_the_files_are_named(tmp_path: pathlib.Path) -> None:
    install(tmp_path)
    for path in (CONFIG, *m.TLS_FILES.values()):
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o600
    config = json.loads((tmp_path / CONFIG).read_text())
    assert (config["password"], config["ca_file"], config["key_file"]) == ("secret", "/etc/kvmfleet/lease-ca.pem", "/etc/kvmfleet/lease-key.pem")


def test_only_what_differs_is_written(tmp_path: pathlib.Path) -> None:
    install(tmp_path)
    assert install(tmp_path, password="another") == {CONFIG}
    assert install(tmp_path, {**TLS, "ca_file": "another"}, password="another") == {m.TLS_FILES["ca_file"]}
    # Without certificates their files go.
    assert install(tmp_path, {}, password="another") == {CONFIG, *m.TLS_FILES.values()}
    assert tree(tmp_path) == (INSTALLED | {COUNT}) - set(m.TLS_FILES.values())


@pytest.mark.parametrize("lost", sorted(INSTALLED))
def test_an_interrupted_installation_is_completed(tmp_path: pathlib.Path, lost: str) -> None:
    install(tmp_path)
    (tmp_path / lost).unlink()
    assert install(tmp_path) == {lost}
    assert tree(tmp_path) == INSTALLED | {COUNT}


@pytest.mark.parametrize("content", [None, "damaged"])
def test_a_host_that_lost_its_count_goes_on_above_the_last_renewal_in_etcd(tmp_path: pathlib.Path, content: t.Optional[str]) -> None:
    install(tmp_path)
    path = tmp_path / COUNT
    path.unlink() if content is None else path.write_text(content)
    assert install(tmp_path, least_count=777) == {COUNT}
    assert path.read_text() == "777\n"
    assert install(tmp_path, least_count=999) == set()
    assert path.read_text() == "777\n"


def test_removing_leaves_the_count_alone(tmp_path: pathlib.Path) -> None:
    install(tmp_path)
    assert {path.lstrip("/") for path in m.remove_lease(str(tmp_path)).files} == INSTALLED
    assert tree(tmp_path) == {COUNT}
    assert m.remove_lease(str(tmp_path)) == m.UnitChange((), systemd=False)


def test_a_lease_that_is_removed_leaves_no_note_of_a_test(tmp_path: pathlib.Path) -> None:
    """If it is installed again in this boot, the host has had no lease yet."""
    install(tmp_path)
    note = tmp_path / TESTED_FILE
    note.parent.mkdir(parents=True)
    note.touch()
    assert f"/{TESTED_FILE}" in m.remove_lease(str(tmp_path)).files
    assert not note.exists()


def test_a_lease_to_which_a_watchdog_is_bound_is_not_removed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    monkeypatch.setattr(m, "read_watchdog", lambda root: LeaseWatchdog("/dev/watchdog0", "i6300ESB timer", 10, True, True, 30))
    with pytest.raises(Unsafe, match="would reset the host"):
        m.remove_lease(str(tmp_path))
    # The task unbinds it before, which check mode only predicts.
    assert {path.lstrip("/") for path in m.remove_lease(str(tmp_path), check_mode=True).files} == INSTALLED
    assert tree(tmp_path) == INSTALLED | {COUNT}


def test_check_mode_predicts_both_and_changes_neither(tmp_path: pathlib.Path) -> None:
    assert install(tmp_path, check_mode=True) == INSTALLED | {COUNT}
    assert tree(tmp_path) == set()
    install(tmp_path)
    assert {path.lstrip("/") for path in m.remove_lease(str(tmp_path), check_mode=True).files} == INSTALLED
    assert tree(tmp_path) == INSTALLED | {COUNT}


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "etc").write_text("a file")
    with pytest.raises(Internal, match="cannot be written"):
        install(tmp_path)


def test_the_program_runs_without_the_collection_and_without_libvirt(tmp_path: pathlib.Path) -> None:
    archive = build_archive(run_lease)
    contents = zipfile.ZipFile(io.BytesIO(archive)).namelist()
    # Without the models of moves, as a host that is busy needs long to load them, and its watchdog does not wait.
    assert not [name for name in contents if "_libvirt/" in name or name.endswith("_model/records.py")]
    program = tmp_path / "lease.pyz"
    program.write_bytes(archive)
    done = subprocess.run([sys.executable, "-I", str(program)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "", "usage: kvmfleet-lease.pyz serve|test|status")
