# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Comparing CPUs on a host whose libvirt hangs."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import fleet_cpus
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.fleet_cpus import ComparedCpu, FleetQuestions
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI
from ansible_collections.kvmfleet.migration.tests.unit.fakes.hung import hung_libvirt


def test_the_comparison_of_cpus_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = encode(FleetQuestions((ComparedCpu("x86_64", "kvm", None, "<cpu/>"),), ()))
    with hung_libvirt(monkeypatch, "compare_cpu", "call compare_cpu") as open_hung:
        monkeypatch.setattr(fleet_cpus, "open_reader", open_hung)
        with pytest.raises(Unreachable, match="Failed to call compare_cpu: libvirt did not answer"):
            fleet_cpus.answer_questions(LOCAL_URI, {"questions": questions})
