# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wherever Ansible lets a variable be set, modules and lookup use the same ledger, in real plays."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from .site import Play, Site, Task, finding

VARIABLE = "kvmfleet_ledger"
# What a module's option says counts more than any variable; a lookup has options of its own.
BY_OPTION = ("option", "module_defaults", "group_defaults")


class Places:
    """A play for each place, all of one run."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.plays: dict[str, Play] = {}
        for method in (self.in_the_inventory, self.in_the_play, self.in_tasks, self.in_roles, self.in_files, self.as_facts, self.by_option):
            method()

    def add(self, name: str, *tasks: Task, host: str = "kvm2", **play: t.Any) -> None:
        self.plays[name] = {"hosts": host, "tasks": list(tasks), **play}

    def sets(self, name: str) -> dict[str, str]:
        return {VARIABLE: self.site.ledger(name)}

    def in_the_inventory(self) -> None:
        hosts: dict[str, t.Any] = {"kvm1": self.sets("host"), "kvm2": {}, "kvm4": {}, "kvm3": {"base": str(Path(self.site.ledger("template")).parent)}}
        templated = {VARIABLE: "{{ base }}/template"}
        common = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
        groups = {"kvmfleet_hosts": {"hosts": hosts, "vars": self.sets("group")}, "templated": {"hosts": {"kvm3": {}}, "vars": templated}}
        self.site.write("inventory.json", {"all": {"children": groups, "vars": common}})
        self.add("host", *finding("host"), host="kvm1")
        self.add("group", *finding("group"))
        self.add("template", *finding("template"), host="kvm3")

    def in_the_play(self) -> None:
        self.add("play", *finding("play"), vars=self.sets("play"))
        folder = str(Path(self.site.ledger("play_template")).parent)
        self.add("play_template", *finding("play_template"), vars={"folder": folder, VARIABLE: "{{ folder }}/{{ what }}", "what": "play_template"})
        prompt = {"name": VARIABLE, "default": self.site.ledger("vars_prompt"), "private": False}
        self.add("vars_prompt", *finding("vars_prompt"), vars_prompt=[prompt])

    def in_tasks(self) -> None:
        self.add("task", *finding("task", vars=self.sets("task")))
        self.add("block", {"block": finding("block"), "vars": self.sets("block")})
        self.add("loop", *finding("loop", result="__module.results[0]", vars={VARIABLE: "{{ item }}"}, loop=[self.site.ledger("loop")]))
        self.add("once", *finding("once", run_once=True), vars=self.sets("once"))

    def in_roles(self) -> None:
        self.site.write("roles/vars/tasks/main.yml", finding("role_vars"))
        self.site.write("roles/vars/vars/main.yml", self.sets("role_vars"))
        self.add("role_vars", roles=["vars"])
        self.site.write("roles/params/tasks/main.yml", finding("role_params"))
        self.add("role_params", roles=[{"role": "params", **self.sets("role_params")}])
        self.site.write("roles/included/tasks/main.yml", finding("include_role"))
        self.add("include_role", {"ansible.builtin.include_role": {"name": "included"}, "vars": self.sets("include_role")})
        # The inventory counts more than a role's default.
        self.site.write("roles/defaults/tasks/main.yml", finding("role_defaults"))
        self.site.write("roles/defaults/defaults/main.yml", self.sets("role_defaults"))
        self.add("role_defaults", roles=["defaults"], host="localhost")

    def in_files(self) -> None:
        self.site.write("vars_file.yml", self.sets("vars_files"))
        self.add("vars_files", *finding("vars_files"), vars_files=["vars_file.yml"])
        self.site.write("include_vars.yml", self.sets("include_vars"))
        self.add("include_vars", {"ansible.builtin.include_vars": "include_vars.yml"}, *finding("include_vars"), host="kvm4")
        self.site.write("tasks.yml", finding("include_tasks"))
        self.add("include_tasks", {"ansible.builtin.include_tasks": "tasks.yml", "vars": self.sets("include_tasks")}, host="kvm1")
        self.site.write("imported.yml", finding("import_tasks"))
        self.add("import_tasks", {"ansible.builtin.import_tasks": "imported.yml", "vars": self.sets("import_tasks")}, host="kvm1")

    def as_facts(self) -> None:
        self.add("set_fact", {"ansible.builtin.set_fact": self.sets("set_fact")}, *finding("set_fact"), host="kvm3")

    def by_option(self) -> None:
        self.add("option", *finding("option", {"ledger": self.site.ledger("option")}), vars=self.sets("play"))
        defaults = {"ledger": self.site.ledger("module_defaults")}
        self.add("module_defaults", *finding("module_defaults"), vars=self.sets("play"), module_defaults={"kvmfleet.migration.ledger_info": defaults})
        defaults = {"ledger": self.site.ledger("group_defaults")}
        self.add("group_defaults", *finding("group_defaults"), vars=self.sets("play"), module_defaults={"group/kvmfleet.migration.migration": defaults})


NAMES = (
    *("host", "group", "template", "play", "play_template", "vars_prompt", "task", "block", "loop", "once", "role_vars", "role_params", "include_role"),
    *("role_defaults", "vars_files", "include_vars", "include_tasks", "import_tasks", "set_fact", *BY_OPTION),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """All places, each in a play of one run."""
    made = Site(tmp_path_factory.mktemp("site"))
    made.run(list(Places(made).plays.values()))
    return made


def test_every_level_of_variables_is_covered(tmp_path: Path) -> None:
    assert tuple(sorted(Places(Site(tmp_path)).plays)) == tuple(sorted(NAMES))


@pytest.mark.parametrize("name", NAMES)
def test_module_and_lookup_use_the_same_ledger(site: Site, name: str) -> None:
    assert site.found(name) == {"module": name, "lookup": "play" if name in BY_OPTION else name}


def test_an_extra_variable_overrides_all_others(tmp_path: Path) -> None:
    made = Site(tmp_path)
    plays = Places(made).plays
    made.run([plays["task"], plays["set_fact"]], "-e", f"{VARIABLE}={made.ledger('extra')}")
    assert made.found("task") == made.found("set_fact") == {"module": "extra", "lookup": "extra"}
