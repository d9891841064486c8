# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


from __future__ import annotations

import inspect
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.host import LibvirtHost
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.interface import Host
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost

CALLS = sorted(name for name, call in vars(Host).items() if inspect.isfunction(call) and not name.startswith("_"))


def parameters_of(kind: type, call: str) -> list[tuple[str, t.Any]]:
    return [(parameter.name, parameter.default) for parameter in inspect.signature(getattr(kind, call)).parameters.values()]


@pytest.mark.parametrize("call", CALLS)
def test_the_host_and_its_fake_twin_have_every_call_with_the_same_parameters(call: str) -> None:
    assert parameters_of(LibvirtHost, call) == parameters_of(FakeHost, call) == parameters_of(Host, call)


def test_the_protocol_has_calls() -> None:
    assert len(CALLS) > 50
