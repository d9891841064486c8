# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The answers of the survey of an evacuation reach the role, which refuses what is wrong before it asks a host."""

from __future__ import annotations

import json
import typing as t

import pytest

from .test_setup import ansible

NO_ANSWERS = {"evacuate_domains": "", "evacuate_host_destination": "", "evacuate_host_force": "false", "evacuate_host_force_down": "false"}
# This destination is refused only once the domains have been accepted.
ELSEWHERE = "evacuate_host_destination is kvm9, which is not one of the hosts of the play: kvm2, kvm3."


def evacuate(**answers: t.Any) -> str:
    """Return the output of an evacuation that was refused."""
    given = {"source": "kvm1", **NO_ANSWERS, **answers}
    done = ansible("ansible-playbook", "kvmfleet.migration.evacuate", "-i", "kvm1,kvm2,kvm3", "-e", json.dumps(given))
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0, text
    assert "changed=0" in text
    assert "unreachable=1" not in text
    return text


ANSWERS = [
    ({"evacuate_host_force": "true"}, "evacuate_host_force is true, but evacuate_host_destination is empty"),
    ({"evacuate_domains": " web1, db1 ", "evacuate_host_destination": "kvm9"}, ELSEWHERE),
    ({"evacuate_domains": False, "evacuate_host_domains": ["db1"]}, "evacuate_domains and evacuate_host_domains"),
    ({"evacuate_domains": "web1,,db1"}, "evacuate_host_domains has no name, or an empty one."),
    # The dead host of this playbook is its source.
    ({"evacuate_host_source": "kvm2", "evacuate_host_destination": "kvm9"}, ELSEWHERE),
]
MORE_ANSWERS = [
    ({"evacuate_host_destination": "kvm9"}, ELSEWHERE),
    ({"evacuate_domains": ["web1", "db1"], "evacuate_host_destination": "kvm9"}, ELSEWHERE),
    # Texts of a job that are empty arrive as null.
    ({"evacuate_domains": None, "evacuate_host_destination": "kvm9"}, ELSEWHERE),
    (
        {"evacuate_domains": None, "evacuate_host_destination": None, "evacuate_host_force": "true"},
        "evacuate_host_force is true, but evacuate_host_destination is empty",
    ),
    ({"evacuate_domains": []}, "evacuate_host_domains has no name, or an empty one."),
    ({"evacuate_domains": None, "evacuate_host_domains": ["db1"], "evacuate_host_destination": "kvm9"}, ELSEWHERE),
    ({"evacuate_domains": ","}, "evacuate_host_domains has no name, or an empty one."),
    # A job without an answer to a question of its own.
    ({"evacuate_domains": "web1,,db1", "evacuate_host_domains": None}, "evacuate_host_domains has no name, or an empty one."),
    ({"evacuate_host_domains": ""}, "evacuate_host_domains has no name, or an empty one."),
    ({"evacuate_domains": "web1", "evacuate_host_domains": ["db1"]}, "evacuate_domains and evacuate_host_domains"),
]


@pytest.mark.parametrize(("answers", "words"), [*ANSWERS, *(pytest.param(*case, marks=pytest.mark.long) for case in MORE_ANSWERS)])
def test_wrong_answers_are_refused_before_a_host_is_asked(answers: dict[str, t.Any], words: str) -> None:
    text = evacuate(**answers)
    assert words in text
    assert '"error_code": "invalid_argument"' in text
