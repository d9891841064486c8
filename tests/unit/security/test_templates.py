# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text that hosts, guests' owners and ledgers bring is data: in real plays, through our filters and lookups, no template in it is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import with_receipt
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

LOOKUP = "kvmfleet.migration.ledger"
# A module of the test's own, for what a host answers: only a real module's result is marked by Ansible as one.
SAYS = """\
import json
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({"file": {"type": "str"}})
with open(module.params["file"], encoding="utf-8") as stream:
    module.exit_json(**json.load(stream))
"""


class Site:
    """Two hosts whose answers are written by somebody hostile; C(mark) is what would be made if a template of theirs ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = folder / "mark"
        self.evil = f"{{{{ lookup('pipe', 'touch {self.mark}') }}}}"
        (folder / "library").mkdir()
        (folder / "library/says.py").write_text(SAYS)
        guests = [f.domain(self.evil, 512), f.domain(f"huge {self.evil}", 90000), f.domain(f"left {self.evil}", drain="leave")]
        self._answers("kvm1", f.host("kvm1", domains=guests, host_id=f.uuid_of("ID of kvm1")))
        self._answers("kvm2", f.host("kvm2", 4096))
        domain = DomainRef("55555555-0000-4000-8000-000000000001", self.evil)
        ledger = open_ledger(str(folder / "ledger"))
        ledger.open_record(new_record(s.LIVE_MIGRATION, domain, HostRef("kvm1", None, None), HostRef(self.evil, None, None), {}, self.evil, detail=self.evil))

    def _answers(self, host: str, facts: dict[str, t.Any]) -> None:
        answer = {"ansible_facts": {"kvmfleet_host": with_receipt(facts)}, "msg": self.evil}
        (self.folder / f"{host}.json").write_text(json.dumps(answer))

    def play(self, *tasks: dict[str, t.Any], **variables: t.Any) -> str:
        """Run the tasks on kvm1, after both hosts have answered; return all that was written."""
        ask: dict[str, t.Any] = {"says": {"file": f"{self.folder}/{{{{ inventory_hostname }}}}.json"}, "register": "said"}
        common = {"gather_facts": False, "connection": "local"}
        values = {"ansible_python_interpreter": sys.executable, "kvmfleet_ledger": "{{ playbook_dir }}/ledger", **variables}
        plays = [{"hosts": "all", **common, "tasks": [ask], "vars": values}, {"hosts": "kvm1", **common, "tasks": list(tasks), "vars": values}]
        (self.folder / "play.yml").write_text(json.dumps(plays))
        root = next(parent.parent for parent in Path(__file__).resolve().parents if parent.name == "ansible_collections")
        environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(root), "HOME": str(self.folder), "ANSIBLE_NOCOLOR": "1", "COLUMNS": "1000"}
        argv = [sys.executable, "-m", "ansible", "playbook", "-vvv", "-i", "kvm1,kvm2,", str(self.folder / "play.yml")]
        done = subprocess.run(argv, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def site(tmp_path: Path) -> t.Iterator[Site]:
    site = Site(tmp_path)
    yield site
    assert not site.mark.exists()


def debug(expression: str) -> dict[str, t.Any]:
    return {"ansible.builtin.debug": {"msg": "{{ " + expression + " }}"}}


def test_a_template_written_by_the_operator_is_rendered(tmp_path: Path) -> None:
    """The same text, written by the operator, is a template."""
    site = Site(tmp_path)
    site.play({"ansible.builtin.debug": {"msg": site.evil}})
    assert site.mark.exists()


def test_templates_in_names_of_guests_are_not_rendered_in_a_drain(site: Site) -> None:
    plan = {"name": "kvmfleet.migration.drain_host"}
    made = {
        "drain_host_candidates": ["kvm2"],
        "drain_host_plan_only": True,
        "drain_host_plan_file": f"{site.folder}/plan.json",
        "__drain_host_just_asked": True,
        # A host whose facts have no dirty rates would be asked again.
        "drain_host_dirty_rate_seconds": 0,
    }
    check = {"sources": ["kvm1"], "candidates": ["kvm2"], "check_saved": True}
    output = site.play(
        # It fails, for one guest finds no place.
        {"block": [{"ansible.builtin.include_role": plan, "vars": made}], "rescue": [debug("ansible_failed_result.msg")]},
        {"kvmfleet.migration.drain_plan": {**check, "file": f"{site.folder}/plan.json"}, "register": "again"},
        {"kvmfleet.migration.drain_plan": {**check, "plan": "{{ again.plan }}", "publish_as": "packed"}},
        {"kvmfleet.migration.drain_verify": {"plan": "{{ again.plan }}", "publish_as": "drained"}, "register": "verified"},
        debug("lazy"),
        {"ansible.builtin.set_fact": {"drained": "{{ verified.result }}"}},
        {"ansible.builtin.fail": {"msg": "{{ verified.problems.kvm1 }}"}, "ignore_errors": True, "register": "failed"},
        {"ansible.builtin.set_fact": {"why": "{{ failed.msg }}"}},
        debug("why"),
        {
            "ansible.builtin.debug": {"msg": "{{ item.name }}"},
            "loop": "{{ again.plan.moves + again.plan.unplaced }}",
            "loop_control": {"label": "{{ item.name }}"},
        },
        lazy="{{ drain_host_result }}",
        kvmfleet_ledger=f"{site.folder}/empty",
    )
    assert output.count("lookup('pipe'") > 10


def test_a_template_in_an_error_message_is_not_rendered_in_a_rescue(site: Site) -> None:
    output = site.play(
        {
            "block": [{"ansible.builtin.fail": {"msg": "It failed. {{ said.msg }}"}}],
            "rescue": [{"ansible.builtin.set_fact": {"problem": "{{ ansible_failed_result.msg | default('') }}"}}, debug("problem ~ ' ' ~ said.msg")],
        },
        {"ansible.builtin.assert": {"that": "false", "fail_msg": "No: {{ problem }}"}, "ignore_errors": True},
    )
    assert output.count("It failed. {{ lookup(") >= 2


def test_templates_in_a_ledger_are_not_rendered_by_the_lookup(site: Site) -> None:
    name = "hostvars.kvm1.kvmfleet_host.domains[0].name"
    output = site.play(
        debug(f"lookup('{LOOKUP}', 'migrations') | map(attribute='history') | list"),
        debug(f"lookup('{LOOKUP}', 'migrations', domain={name})"),
        debug(f"lookup('{LOOKUP}', 'migrations', domain={name} ~ '')"),
        {**debug(f"lookup('{LOOKUP}', 'migrations', query=\"[?destination.host==`\" ~ {name} ~ \"`].domain.name\")"), "ignore_errors": True},
        {**debug(f"lookup('{LOOKUP}', 'migrations', since='2024-01-01' ~ {name})"), "ignore_errors": True},
    )
    assert "lookup('pipe'" in output
