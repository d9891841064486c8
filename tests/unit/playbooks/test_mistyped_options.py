# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables that Ansible ignores because the role has no such option: the roles warn of them when they begin."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import Stage, build_collection


@pytest.mark.parametrize(
    ("role", "variables", "mistyped", "meant"),
    [
        # It is refused before a host is asked.
        ("drain_host", {"__drain_host_refusal": "Not now."}, "drain_host_candidate", "drain_host_candidates"),
        ("evacuate_host", {"evacuate_host_source": "kvm1"}, "evacuate_host_domain", "evacuate_host_domains"),
    ],
)
def test_a_role_warns_of_a_mistyped_option(tmp_path: pathlib.Path, role: str, variables: dict[str, t.Any], mistyped: str, meant: str) -> None:
    stage = Stage(build_collection(tmp_path / "collections"), tmp_path)
    path = tmp_path / "play.yml"
    steps = [{"ansible.builtin.include_role": {"name": f"kvmfleet.migration.{role}"}}]
    path.write_text(json.dumps([{"hosts": "kvm1", "gather_facts": False, "tasks": steps}]))
    done = stage.play(str(path), **variables, **{mistyped: "web1"})
    assert done.error_codes == {"invalid_argument"}
    assert f"{mistyped} is not an option of the role {role} and has no effect. Is {meant} meant?" in " ".join(done.text.split())
