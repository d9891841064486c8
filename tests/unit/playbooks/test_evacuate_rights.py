# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A play of which some hosts answer to root and others to another user: who shares the work of an evacuation, and who is named."""

from __future__ import annotations

import pathlib

from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import Stage, build_collection

REASON = "the user is not root there, and only root can start domains"
# The role asks the hosts twice: before the dead host is fenced, and after it.
PLAY = """\
- hosts: kvmfleet_hosts
  gather_facts: false
  vars:
    evacuate_host_source: kvm9
  tasks:
    - ansible.builtin.include_role:
        name: kvmfleet.migration.evacuate_host
        tasks_from: gather.yml
        public: true
      loop: [before, after]
    - ansible.builtin.debug:
        msg: "{{ inventory_hostname }} shares with {{ __evacuate_host_gathered.survivors }}, without {{ __evacuate_host_gathered.excluded }}"
      run_once: true
"""


def test_hosts_without_root_leave_the_play_with_a_warning_and_stay_named(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "host_facts"), tmp_path)
    facts = {name: f.host(name) for name in ("kvm1", "kvm2", "kvm3")}
    facts["kvm1"]["unverified_reasons"] = {"paths": "libvirt withholds it"}
    stage.answers["host_facts"] = {name: {"changed": False, "ansible_facts": {"kvmfleet_host": facts[name]}} for name in facts}
    (tmp_path / "play.yml").write_text(PLAY)
    done = stage.play(str(tmp_path / "play.yml"))
    text = " ".join(done.text.split())
    assert done.code == 0, done.text
    assert sorted(host for host, _args in done.calls_of("host_facts")) == ["kvm1", "kvm2", "kvm2", "kvm3", "kvm3"]
    assert text.count(f"kvm1 starts no domain of kvm9: {REASON}. Set become: true for kvm1, or connect to it as root, and run this again.") == 1
    assert f"kvm2 shares with ['kvm2', 'kvm3'], without {{'kvm1': '{REASON}'}}" in text
