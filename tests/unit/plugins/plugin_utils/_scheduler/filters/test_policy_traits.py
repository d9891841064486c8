# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import host, judge_with, request

POST_COPY = "COMPUTE_MIGRATE_POST_COPY"


def test_a_host_with_the_trait_passes_without_a_warning() -> None:
    finding = judge_with("traits", request(traits=[POST_COPY]), host())
    assert (finding.reason, finding.warnings) == (None, ())


def test_a_missing_trait_is_refused_with_the_explanation_of_the_host() -> None:
    there = host(traits=[], missing_traits={POST_COPY: "QEMU runs as user 64055, which may not use userfaultfd."})
    reason = judge_with("traits", request(traits=[POST_COPY]), there).reason
    assert reason == f"It lacks post_copy ({POST_COPY}): QEMU runs as user 64055, which may not use userfaultfd."


def test_an_unverified_trait_is_a_warning() -> None:
    finding = judge_with("traits", request(traits=[POST_COPY]), host(traits=[], unverified=[POST_COPY]))
    assert finding.reason is None
    assert f"post_copy ({POST_COPY}) for web1 is unverified on kvm2" in finding.warnings[0]


def test_a_domain_without_required_traits_passes() -> None:
    assert judge_with("traits", request(), host(traits=[], missing_traits={POST_COPY: "No."})).reason is None
