# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of a survey, completed by those of the host."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import CpuFacts, DomainFacts, HostFacts, MountFacts, Platform
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DiskNeed, DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import NOT_SURVEYED
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.decide import group_reasons
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.known_facts import add_profile_groups, fill_disks, fill_facts

SEEN = HostFacts(
    answered=True,
    host_uuid="u2",
    mounts=None,
    memory={"total_bytes": 64},
    traits=("A",),
    missing_traits={},
    unverified=("P", "mounts", "bridges"),
    bridges=None,
)


def test_own_facts_of_a_host_fill_in_what_a_survey_cannot_see() -> None:
    mounts = (MountFacts("/"),)
    own = HostFacts(host_uuid="u2", mounts=mounts, memory={"total_bytes": 1}, traits=("A", "P"), missing_traits={}, unverified=())
    facts = fill_facts(SEEN, own)
    assert facts.mounts == mounts
    assert facts.memory == {"total_bytes": 64}
    assert facts.traits == ("A", "P")
    assert facts.unverified == ("bridges",), "what nobody told stays open"


def test_a_trait_that_own_facts_report_as_missing_is_not_unverified() -> None:
    facts = fill_facts(SEEN, HostFacts(host_uuid="u2", traits=("A",), missing_traits={"P": "The sysctl is 0."}, unverified=()))
    assert facts.missing_traits == {"P": "The sysctl is 0."}
    assert "P" not in (facts.unverified or ())


WITHHELD = ("cpu_comparison", "mounts", "paths", "platforms.cpu")


def test_reasons_remain_for_what_the_own_facts_of_a_host_do_not_know_either() -> None:
    kinds = (Platform("x86_64", "kvm"),)
    seen = HostFacts(answered=True, host_uuid="u2", platforms=kinds, mounts=None, unverified=WITHHELD, unverified_reasons=dict.fromkeys(WITHHELD, "because"))
    known = (Platform("x86_64", "kvm", cpu=CpuFacts("EPYC")),)
    facts = fill_facts(seen, HostFacts(host_uuid="u2", mounts=(), platforms=known, unverified=()))
    assert (facts.platforms, facts.unverified_reasons) == (known, {"cpu_comparison": "because", "paths": "because"})
    partly = fill_facts(seen, HostFacts(host_uuid="u2", mounts=(), platforms=kinds, unverified=("platforms.cpu",), unverified_reasons={"platforms.cpu": "why"}))
    assert partly.unverified_reasons == {"cpu_comparison": "because", "paths": "because", "platforms.cpu": "because"}


def test_what_a_user_could_not_read_does_not_make_the_survey_of_root_uncertain() -> None:
    platforms = (Platform("x86_64", "kvm", cpu=CpuFacts("EPYC")),)
    seen = HostFacts(answered=True, host_uuid="u2", platforms=platforms, mounts=None, unverified=("mounts",))
    own = HostFacts(
        host_uuid="u2", mounts=(), platforms=(Platform("x86_64", "kvm"),), unverified=WITHHELD, unverified_reasons=dict.fromkeys(WITHHELD, "because")
    )
    facts = fill_facts(seen, own)
    assert (facts.platforms, facts.unverified, facts.unverified_reasons) == (platforms, (), ABSENT)


def test_traits_that_a_user_could_not_probe_are_those_of_the_survey() -> None:
    seen = HostFacts(answered=True, host_uuid="u2", traits=("A", "P"), missing_traits={"Q": "It needs QEMU 2.5.0."}, unverified=())
    facts = fill_facts(seen, HostFacts(host_uuid="u2", traits=("A",), missing_traits={}, unverified=("P", "Q")))
    assert (facts.traits, facts.missing_traits, facts.unverified) == (("A", "P"), {"Q": "It needs QEMU 2.5.0."}, ())


def test_facts_of_another_or_a_silent_host_are_not_used() -> None:
    assert fill_facts(SEEN, HostFacts(host_uuid="other", mounts=())) == SEEN
    assert fill_facts(SEEN, None) == SEEN
    silent = HostFacts(answered=False, msg="no route")
    assert fill_facts(silent, HostFacts(host_uuid="u2", mounts=())) == silent


def test_the_store_of_a_disk_is_taken_from_the_facts_of_the_source() -> None:
    disks = (DiskNeed("vda", source="/a", shared=None, store=None, bytes=7), DiskNeed("vdb", source="/b", shared=None))
    known = DiskNeed("vda", source="/a", shared=True, store="nfs4:nas:/x", bytes=9)
    own = HostFacts(domains=(DomainFacts("d", "web1", True, request=encode(DomainRequest(1, 1, disks=(known,)))),))
    seen = DomainRequest(1, 1, disks=disks)
    first, second = fill_disks(seen, own, "d").disks or ()
    assert first == DiskNeed("vda", source="/a", shared=True, store="nfs4:nas:/x", bytes=7)
    assert second.shared is None
    assert fill_disks(seen, own, "another") == seen
    assert fill_disks(DomainRequest(1, 1), None, "d") == DomainRequest(1, 1)


def test_hosts_with_the_same_reason_are_listed_together() -> None:
    assert group_reasons({"kvm3": "It is full.", "kvm2": "It is full.", "kvm4": "It is off."}) == "kvm2, kvm3: It is full. kvm4: It is off."


def test_facts_without_traits_leave_those_of_the_survey() -> None:
    assert fill_facts(SEEN, HostFacts(host_uuid="u2")).traits == ("A",)


def test_files_of_a_disk_that_its_host_has_not_read_are_those_of_the_survey() -> None:
    known = DiskNeed("vda", source="/a", shared=True)
    own = HostFacts(domains=(DomainFacts("d", "web1", True, request=encode(DomainRequest(1, 1, disks=(known,)))),))
    seen = DomainRequest(1, 1, disks=(DiskNeed("vda", source="/a", files=("/base",)),))
    (disk,) = fill_disks(seen, own, "d").disks or ()
    assert disk.files == ("/base",)


def test_a_domain_without_a_profile_keeps_its_group() -> None:
    plain, named = (DomainFacts(name, name, True, policy=policy, request={}) for name, policy in (("a", {}), ("b", {"profile": "web"})))
    facts = add_profile_groups(HostFacts(domains=(plain, named)), lambda name: {"group": {"name": name}})
    assert [domain.request for domain in facts.domains or ()] == [{}, {"group": {"name": "web"}}]


def test_a_domain_that_the_source_does_not_have_has_no_description() -> None:
    with pytest.raises(Internal, match="does not have the domain"):
        assert NOT_SURVEYED.source_info
