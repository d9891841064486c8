# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Traits that the start of a domain cannot keep are warnings, with trait, domain and host."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.reservation import START_FILTERS

from .sites import WORD, Site

POST_COPY = "COMPUTE_MIGRATE_POST_COPY"


def lacking(site: Site, monkeypatch: pytest.MonkeyPatch, **facts: t.Any) -> None:
    """Let kvm2 have these facts, too."""
    original = site.facts
    monkeypatch.setattr(site, "facts", lambda name: {**original(name), **(facts if name == "kvm2" else {})})


@pytest.mark.parametrize("check", [False, True])
def test_a_trait_that_a_start_cannot_keep_is_a_warning_with_trait_domain_and_host(site: Site, monkeypatch: pytest.MonkeyPatch, check: bool) -> None:
    site.save("web", policy={"post_copy": True})
    site.save("app")
    lacking(site, monkeypatch, traits=[], missing_traits={POST_COPY: "The sysctl is 0."})
    run = site.evacuation("kvm2", check=check, force_down=WORD)
    run.evacuate_domains()
    told = [warning for warning in run.context.warnings if POST_COPY in warning]
    assert len(told) == 1
    for text in ("Domain web: ", "post_copy", "is not available on kvm2: The sysctl is 0."):
        assert text in told[0]
    assert [job.error for job in run.jobs] == [None, None]
    assert site.running() == ({} if check else {"kvm2": ["app", "web"]})


def test_a_trait_that_nobody_knows_is_a_warning_and_one_that_is_there_is_none(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web", policy={"post_copy": True, "auto_converge": False})
    lacking(site, monkeypatch, traits=[], missing_traits={})
    run = site.evacuate("kvm2")
    assert [f"{POST_COPY}), which the policy of web requires, is unverified on kvm2" in one for one in run.context.warnings if POST_COPY in one] == [True]
    site.save("app", policy={"post_copy": True})
    lacking(site, monkeypatch, traits=[POST_COPY])
    assert [one for one in site.evacuate("kvm2", domains=["app"]).context.warnings if POST_COPY in one] == []


def test_a_domain_that_stays_off_is_warned_of_as_well(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web", state="shut off", policy={"post_copy": True})
    lacking(site, monkeypatch, traits=[], missing_traits={POST_COPY: "The sysctl is 0."})
    assert [POST_COPY in one for one in site.evacuate("kvm2").context.warnings if "web" in one] == [True]


def test_no_filter_of_a_start_refuses_for_a_trait() -> None:
    (rule,) = (rule for rule in START_FILTERS if rule.name == "traits")
    assert type(rule).__name__ == "KeptTraits"
