# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import host, judged, request

POST_COPY = "COMPUTE_MIGRATE_POST_COPY"


def test_a_trait_that_is_there_passes_silently() -> None:
    finding = judged("traits", request(traits=[POST_COPY]), host())
    assert (finding.reason, finding.warnings) == (None, ())


def test_a_missing_trait_refuses_with_the_host_s_explanation() -> None:
    there = host(traits=[], missing_traits={POST_COPY: "QEMU runs as user 64055, who may not use userfaultfd."})
    reason = judged("traits", request(traits=[POST_COPY]), there).reason
    assert reason == f"It lacks post_copy ({POST_COPY}): QEMU runs as user 64055, who may not use userfaultfd."


def test_what_could_not_be_verified_is_a_warning() -> None:
    finding = judged("traits", request(traits=[POST_COPY]), host(traits=[], unverified=[POST_COPY]))
    assert finding.reason is None
    assert f"post_copy ({POST_COPY}) for web1 is unverified on kvm2" in finding.warnings[0]


def test_a_domain_that_asks_for_nothing_passes_anywhere() -> None:
    assert judged("traits", request(), host(traits=[], missing_traits={POST_COPY: "No."})).reason is None
