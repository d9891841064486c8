# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role with named domains and a named host: what is not named stays off, what is wrong is refused before anything is fenced, and refusals are recorded."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.evacuate.test_role import fence_tasks, pulled, stats
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import BEFORE
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site

# More memory than any machine has.
FULL: dict[str, t.Any] = {"reserved_memory_mib": 100_000_000}


@pytest.mark.long
def test_named_domains_are_started_on_the_named_host_and_bad_input_is_refused_first(site: Site, guest: Make, tmp_path: pathlib.Path) -> None:
    site.environment["ANSIBLE_SHOW_CUSTOM_STATS"] = "true"
    for name in ("web", "app", "db"):
        guest(name)
    site.protect()
    site.fencing(1, None)
    site.lose(1)
    tasks = fence_tasks(site, tmp_path)
    two, three = site.name(2), site.name(3)

    bad: list[tuple[dict[str, t.Any], str]] = [
        ({"evacuate_host_force": True}, "evacuate_host_destination is empty"),
        ({"evacuate_host_destination": "kvm99"}, "not one of the hosts of the play"),
        ({"evacuate_host_destination": site.name(1)}, "not one of the hosts of the play"),
        ({"evacuate_host_domains": []}, "evacuate_host_domains has no name"),
        ({"evacuate_host_domains": ["web", "nobody"]}, "no domain 'nobody' may be on"),
    ]
    for given, words in bad:
        code, text = site.playbook("evacuate", source=site.name(1), evacuate_host_fence_tasks=tasks, **given)
        assert (code != 0, pulled(tmp_path), words in " ".join(text.split())) == (True, 0, True), text
    site.check_end_state({2: [], 3: []})

    choice = {"evacuate_host_domains": ["web"], "evacuate_host_destination": three}
    code, text = site.playbook("evacuate", "--check", source=site.name(1), evacuate_host_fence_tasks=tasks, **choice)
    assert (pulled(tmp_path), site.record_summaries()) == (0, []), text
    code, text = site.playbook("evacuate", source=site.name(1), evacuate_host_fence_tasks=tasks, **choice)
    assert (code, pulled(tmp_path)) == (0, 1), text
    assert "NOT SELECTED app" in text
    result = stats(text)[site.name(1)]
    assert [(one["name"], one["host"]) for one in result["evacuated"]] == [("web", three)]
    assert (sorted(one["name"] for one in result["not_selected"]), result["failed"]) == (["app", "db"], [])
    site.check_end_state({2: [], 3: ["web"]}, site.line("web", "done", 1, 3))

    # Whom nobody has named is evacuated by the next run.
    code, text = site.playbook("evacuate", source=site.name(1), evacuate_host_fence_tasks=tasks, evacuate_host_destination=two)
    assert code == 0, text
    assert site.fleet() == {2: {"app", "db"}, 3: {"web"}}
    assert {line[1] for line in site.record_summaries()} == {"done"}
    site.verify_audit()


@pytest.mark.long
def test_a_domain_that_no_host_can_start_is_recorded_and_starts_by_force_on_the_named_host(site: Site, guest: Make) -> None:
    guest("web")
    site.protect()
    site.lose(1)
    for number in (2, 3):
        site.variable(number, "kvmfleet_scheduler", FULL)
    code, text = site.playbook("evacuate", source=site.name(1))
    assert (code != 0, "memory" in text) == (True, True), text
    site.check_end_state({2: [], 3: []}, site.line("web", "conflict", 1, 2))
    detail = site.only_record()["history"][-1]["detail"]
    assert [site.name(number) in detail for number in (2, 3)] == [True, True], detail
    code, text = site.playbook("evacuate", source=site.name(1), evacuate_host_destination=site.name(3), evacuate_host_force=True)
    assert code == 0, text
    site.check_end_state({2: [], 3: ["web"]}, site.line("web", "conflict", 1, 2), site.line("web", "done", 1, 3))
    (record,) = (record for record in site.records() if record["status"] == "done")
    assert (record["forced"], "memory" in str(record["history"])) == ("FORCED_REBUILD", True)


@pytest.mark.long
@pytest.mark.parametrize("by_tasks", [True, False])
def test_a_named_host_that_does_not_answer_is_recorded_and_nothing_is_fenced(site: Site, guest: Make, tmp_path: pathlib.Path, by_tasks: bool) -> None:
    guest("web")
    site.protect()
    site.lose(1)
    site.lose(3)
    given = {"evacuate_host_fence_tasks": fence_tasks(site, tmp_path)} if by_tasks else {"evacuate_host_accept_silent": [site.name(3)]}
    given |= {"evacuate_host_accept_silent": [site.name(3)], "evacuate_host_destination": site.name(3)}
    code, text = site.playbook("evacuate", source=site.name(1), **given)
    assert (code != 0, pulled(tmp_path)) == (True, 0), text
    assert f"The destination {site.name(3)} does not answer" in " ".join(text.split())
    site.check_end_state({2: []}, site.line("web", "conflict", 1, 3))
    found = site.ledger.find_host(name=site.name(1))
    assert found
    assert found.body["state"] != "fenced"


@pytest.mark.long
def test_a_survivor_without_root_is_named_and_starts_nothing(site: Site, guest: Make, tmp_path: pathlib.Path) -> None:
    """The tasks of one survivor are those of a user without rights."""
    guest("web")
    site.protect()
    site.fencing(1, None)
    site.lose(1)
    tasks = fence_tasks(site, tmp_path)
    two, three = site.name(2), site.name(3)
    site.variable(3, "ansible_user", "operator")

    code, text = site.playbook("evacuate", source=site.name(1), evacuate_host_fence_tasks=tasks, evacuate_host_destination=three)
    assert (code != 0, pulled(tmp_path)) == (True, 0), text
    assert f"The destination {three} cannot start domains: the user is not root there" in " ".join(text.split())
    site.check_end_state({2: [], 3: []}, site.line("web", "conflict", 1, 3))

    code, text = site.playbook("evacuate", source=site.name(1), evacuate_host_fence_tasks=tasks)
    words = " ".join(text.split())
    assert (code, pulled(tmp_path)) == (0, 1), text
    assert f"{three} starts no domain of {site.name(1)}: the user is not root there" in words
    assert f"Set become: true for {three}, or connect to it as root, and run this again." in words
    assert f"{three} starts no domain: the user is not root there, and only root can start domains" in words
    assert f"EVACUATED web -> {two}" in words
    site.verify_audit()


@pytest.mark.long
def test_a_domain_that_a_host_failed_to_start_is_started_on_another_one_by_the_next_run(site: Site, guest: Make) -> None:
    guest("web")
    site.protect()
    site.lose(1)
    for number in (2, 3):
        site.hooks[number].refuse(BEFORE, "web")
    for _run in range(2):
        code, text = site.playbook("evacuate", source=site.name(1))
        assert (code != 0, "refused by a test" in text) == (True, True), text
    # By facts, the first host is as suitable as before.
    assert sorted(site.record_summaries()) == [site.line("web", "failed", 1, 2), site.line("web", "failed", 1, 3)]
    for number in (2, 3):
        site.hooks[number].admit(BEFORE, "web")
    code, text = site.playbook("evacuate", source=site.name(1))
    assert (code, sorted(map(len, site.fleet().values()))) == (0, [0, 1]), text
    site.verify_audit()
