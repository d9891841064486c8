# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts can do: a QEMU that does not run as root may not use userfaultfd unless the host's kernel lets everybody."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.policy.support.operator import Operator, extra, set_qemu_user, told
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

SETTING = pathlib.Path("/proc/sys/vm/unprivileged_userfaultfd")
AUTO_CONVERGE, POST_COPY = "COMPUTE_MIGRATE_AUTO_CONVERGE", "COMPUTE_MIGRATE_POST_COPY"

pytestmark = pytest.mark.skipif(not SETTING.exists() or SETTING.read_text().strip() != "0", reason="every user of this machine may use userfaultfd")

AsUser = t.Callable[[int], None]


@pytest.fixture
def without_root(lab: Lab) -> t.Iterator[AsUser]:
    """Return a function that lets a host's QEMU run without root; it runs as root again after the test."""
    hosts: list[int] = []

    def change(host: int) -> None:
        hosts.append(host)
        set_qemu_user(lab, host, "libvirt-qemu")

    yield change
    for host in hosts:
        set_qemu_user(lab, host, "root")


@pytest.mark.long
def test_facts_report_the_traits_of_a_host_and_why_one_is_missing(operator: Operator, without_root: AsUser) -> None:
    assert operator.facts(1)["traits"] == [AUTO_CONVERGE, POST_COPY]
    without_root(1)
    facts = operator.facts(1)
    assert facts["traits"] == [AUTO_CONVERGE]
    assert "vm.unprivileged_userfaultfd" in facts["missing_traits"][POST_COPY]
    from_afar = operator.facts(2, uri=f"qemu+tcp://{operator.lab.host(1)}/system")
    assert from_afar["traits"] == [AUTO_CONVERGE]
    assert POST_COPY in from_afar["unverified"]


@pytest.mark.long
def test_a_source_without_the_trait_refuses_a_post_copy_move(lab: Lab, operator: Operator, web: str, without_root: AsUser) -> None:
    without_root(1)
    done = operator.move(web, post_copy=True)
    assert done.refused() == "not_supported"
    assert POST_COPY in done.msg
    assert "vm.unprivileged_userfaultfd" in done.msg
    assert operator.only_record() == done.record
    assert done.ended() == ("conflict", None)
    assert operator.move(web).ended() == ("completed", None)


@pytest.mark.long
def test_a_destination_whose_facts_lack_the_trait_is_refused(lab: Lab, operator: Operator, web: str, without_root: AsUser) -> None:
    without_root(2)
    done = operator.move_after_facts(web, post_copy=True)
    assert done["error_code"] == "conflict", done
    assert lab.host(2) in done["msg"]
    assert operator.only_record()["status"] == "conflict"
    assert lab.places(web) == {1: "running"}


@pytest.mark.long
def test_a_destination_without_facts_is_a_warning_and_qemu_refuses_post_copy(lab: Lab, operator: Operator, web: str, without_root: AsUser) -> None:
    without_root(2)
    done = operator.move(web, post_copy=True)
    assert f"unverified on {lab.host(2)}" in told(done)
    assert done.code != 0
    assert done.record["status"] == "failed"
    assert lab.places(web) == {1: "running"}


@pytest.mark.long
@pytest.mark.parametrize("unable", [1, 2])
def test_two_defaults_of_the_host_mean_auto_converge_where_one_host_cannot_do_post_copy(
    lab: Lab, operator: Operator, web: str, without_root: AsUser, unable: int
) -> None:
    without_root(unable)
    both = {"kvmfleet_migration_policy": {"auto_converge": True, "post_copy": True}}
    (done,) = operator.play(1, [("live_migrate", {"name": web, "destination": lab.host(2)})], *extra(both), facts=True)
    (record,) = done["migrations"]
    assert record["status"] == "completed", done
    assert (record["policy"]["post_copy"], record["policy"]["auto_converge"]) == ({"value": False, "source": "host"}, {"value": True, "source": "host"})
    assert lab.places(web) == {2: "running"}


@pytest.mark.long
def test_facts_of_the_destination_in_this_run_prevent_the_warning(lab: Lab, operator: Operator, web: str) -> None:
    done = operator.move_after_facts(web, post_copy=True)
    assert done["migrations"][0]["status"] == "completed", done
    assert "warnings" not in done
