# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the program of the load timer ends if it stores no reading."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._load_timer import store as m


@pytest.fixture(autouse=True)
def hung_libvirt(monkeypatch: pytest.MonkeyPatch) -> None:
    report = types.SimpleNamespace(warnings=("libvirt did not report.",))
    monkeypatch.setattr(m.os, "umask", lambda _mode: 0)
    monkeypatch.setattr(m, "LoadMeasurement", lambda *_arguments: types.SimpleNamespace(finish=lambda _guests: report))


@pytest.mark.parametrize("binding", [object(), None])
def test_a_python_without_the_binding_of_libvirt_is_told_apart_from_a_libvirt_that_hangs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], binding: t.Any
) -> None:
    monkeypatch.setattr(connection, "_libvirt", binding)
    with pytest.raises(SystemExit) as ended:
        m.store_reading()
    if binding:
        assert (ended.value.code, capsys.readouterr().err) == (m.NOT_STORED, "libvirt did not report.\n")
    else:
        assert "has no libvirt binding" in str(ended.value.code)
