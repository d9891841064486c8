# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _systemd
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import status
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal

WHAT_IS_LEFT = ". The boot guard's files are in place, but systemd does not hold this host's guests yet."


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ("exec sleep 60", "Command '['systemctl', 'daemon-reload']' timed out after 0.2 seconds"),
        ("echo 'Failed to connect to bus: No such file' >&2; exit 1", "Failed to connect to bus: No such file"),
        ("echo 'Failed to reload daemon.' >&2; exit 1", "Failed to reload daemon"),
        # "Gerät" in ISO-8859-1: programs write in the encoding of the locale, and the module of a task has UTF-8.
        (r"printf 'Ger\344t belegt' >&2; exit 1", "Ger\ufffdt belegt"),
    ],
)
def test_a_failed_systemctl_is_reported_in_whole_sentences(script: str, cause: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "systemctl"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(_systemd, "SYSTEMCTL_SECONDS", 0.2 if "sleep" in script else 60)
    with pytest.raises(Internal) as caught:
        status.run_systemctl("daemon-reload")
    assert caught.value.message == f"'systemctl daemon-reload' failed: {cause}{WHAT_IS_LEFT}"
