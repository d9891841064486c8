# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ad hoc tasks without the command C(ansible): the collection's own action plugins run in a child of this process, its modules on the lab's hosts.

A story has some fifty tasks, and on a busy machine most of their time is Ansible's own start. What is run here is what Ansible runs: the action plugin's
C(act), and each phase of its module in a Python of its own on the host. Playbooks are still Ansible's.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import subprocess
import sys
import traceback
import types
import typing as t

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.action import ActionBase

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab import host as hosts

Document = t.Dict[str, t.Any]

PACKAGE = "ansible_collections.kvmfleet.migration.plugins"
MODULE = """\
import runpy, sys
from ansible.module_utils import basic
basic._ANSIBLE_ARGS = sys.stdin.buffer.read()
basic._ANSIBLE_PROFILE = "legacy"
runpy.run_module("ansible_collections.kvmfleet.migration.plugins.modules." + sys.argv[1], run_name="__main__", alter_sys=True)
"""


class Child:
    """A task in a child process, which is asked as C(subprocess.Popen) is."""

    def __init__(self, work: t.Callable[[], t.Tuple[int, str]]) -> None:
        reader, writer = os.pipe()
        self.returncode: t.Optional[int] = None
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            code, text = 250, ""
            try:
                code, text = work()
            except BaseException:  # noqa: BLE001 - nothing of this child may go on in the parent's code
                text = traceback.format_exc()
            finally:
                with os.fdopen(writer, "w") as stream:
                    stream.write(text)
                os._exit(code)
        os.close(writer)
        self._reader = os.fdopen(reader)

    def communicate(self, timeout: float = 0) -> t.Tuple[str, None]:
        """Return what the task told when it has ended."""
        with self._reader:
            text = self._reader.read()
        _pid, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        return text, None


class HostVars(t.Dict[str, Document]):
    """The variables of all hosts. Nothing in them is a template."""

    def raw_get(self, host: str) -> Document:
        """Return the variables of a host as C(ansible.vars.hostvars.HostVars) does: not templated."""
        return self[host]


class QuickSite(Site):
    """A site whose ad hoc tasks are run here.

    :arg record: takes what was said: its kind and a document.
    """

    record: t.Callable[[str, Document], None]

    def popen(self, command: t.List[str]) -> t.Any:
        if command[0] != "ansible" or command[3] == "localhost":
            return super().popen(command)
        host, module, arguments = command[3], command[5].rpartition(".")[2], json.loads(command[7])
        return Child(lambda: self._work(host, module, arguments, command[8:]))

    def _work(self, host: str, module: str, arguments: Document, options: t.Sequence[str]) -> t.Tuple[int, str]:
        result = self._ended(host, module, arguments, options)
        self.record("task", {"module": module, "arguments": arguments, "result": result})
        word = "FAILED!" if result.get("failed") else "CHANGED" if result.get("changed") else "SUCCESS"
        return (2 if result.get("failed") else 0), f"{host} | {word} => {json.dumps({'changed': False, **result}, default=str)}\n"

    def _ended(self, host: str, module: str, arguments: Document, options: t.Sequence[str]) -> Document:
        variables = self._task_vars(host, options)
        try:
            plugin = importlib.import_module(f"{PACKAGE}.action.{module}")
        except ModuleNotFoundError:
            return self._on_host(host, module, arguments)
        action = self._action(plugin.ActionModule, arguments, host, "--check" in options)
        try:
            validated = ArgumentSpecValidator(action.argument_spec()).validate(arguments)
            assert not validated.error_messages, validated.error_messages
            return t.cast(Document, action.run_task(validated.validated_parameters, variables))
        except KvmfleetError as error:
            return {"failed": True, "changed": False, **error.as_result()}

    def _action(self, plugin: t.Any, arguments: Document, host: str, check: bool) -> t.Any:
        action = plugin.__new__(plugin)
        play = types.SimpleNamespace(strategy="linear")
        task = types.SimpleNamespace(check_mode=check, diff=False, no_log=False, delegate_to=None, async_val=0, args=arguments, get_play=lambda: play)
        context = types.SimpleNamespace(no_log=False)
        action._task, action._play_context, action._loader = task, context, DataLoader()
        action._connection = types.SimpleNamespace(_play_context=context)
        action._low_level_execute_command = lambda command: self._shell(host, command)
        ActionBase._execute_module = lambda _self, **given: self._phase(host, given["module_name"].rpartition(".")[2], given["module_args"])
        return action

    def _phase(self, host: str, module: str, arguments: Document) -> Document:
        answer = self._on_host(host, module, arguments)
        work = dict(arguments.get("_work") or {})
        self.record("phase", {"module": module, "phase": work.pop("phase", None), "work": work, "answer": answer})
        return answer

    def _on_host(self, host: str, module: str, arguments: Document) -> Document:
        """Run a module on a host, as Ansible's wrapper does."""
        paths = f"{os.environ['PYTHONPATH']}:{self._only_ansible()}"
        command = ("env", f"PYTHONPATH={paths}", f"PYTHONPYCACHEPREFIX={self._only_ansible()}/pycache", "/usr/bin/python3", "-c", MODULE, module)
        given = json.dumps({"ANSIBLE_MODULE_ARGS": {**arguments, "_ansible_remote_tmp": "/tmp", "_ansible_check_mode": False}})
        done = subprocess.run(hosts.command_on(self.lab.layout, host, *command), input=given, capture_output=True, text=True, check=False, timeout=900)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return t.cast(Document, json.loads(lines[-1])) if lines else {"failed": True, "rc": done.returncode, "msg": done.stderr, "module_stderr": done.stderr}

    def _shell(self, host: str, command: str) -> Document:
        done = subprocess.run(hosts.command_on(self.lab.layout, host, "sh", "-c", command), capture_output=True, text=True, check=False, timeout=300)
        return {"rc": done.returncode, "stdout": done.stdout, "stderr": done.stderr}

    def _only_ansible(self) -> str:
        """Return a folder through which the hosts' Python sees ansible.module_utils and no other package of the control node.

        It is beside the collection, for hosts have a /run of their own.
        """
        folder = pathlib.Path(os.environ["PYTHONPATH"]) / "only-ansible"
        folder.mkdir(exist_ok=True)
        link = folder / "ansible"
        if not link.is_symlink():
            link.symlink_to(pathlib.Path(t.cast(str, sys.modules["ansible"].__file__)).parent)
        return str(folder)

    def _task_vars(self, host: str, options: t.Sequence[str]) -> Document:
        """Return the variables of a task, as the inventory has them; extra variables are every host's."""
        inventory = pathlib.Path(self.inventory)
        group = yaml.safe_load((inventory / "hosts.yml").read_text(encoding="utf-8"))["all"]["children"]["kvmfleet_hosts"]
        extra = self._extra(options)
        found = {}
        for name, own in group["hosts"].items():
            file = inventory / "host_vars" / f"{name}.json"
            more = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
            found[name] = {**group.get("vars", {}), **(own or {}), **more, **extra, "inventory_hostname": name}
        names = list(found)
        return {**found[host], "hostvars": HostVars(found), "groups": {"all": names, "kvmfleet_hosts": names}}

    def _extra(self, options: t.Sequence[str]) -> Document:
        found: Document = {}
        for flag, value in zip(options, options[1:]):
            if flag == "-e":
                text = (pathlib.Path(self.folder) / value[1:]).read_text(encoding="utf-8") if value.startswith("@") else value
                found.update(json.loads(text))
        return found
