# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A reader who does what a guide says.

What stands in a guide becomes true of the hosts that are there by these rules: C(kvm1) to C(kvm3) are the hosts, C(10.0.0.11) to C(10.0.0.13) their addresses,
and a fence agent is theirs. The reader's folder has what the inventory needs to say of them, such as how SSH reaches them.
"""

from __future__ import annotations

import abc
import json
import os
import pathlib
import re
import signal
import subprocess
import typing as t

import yaml

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.tests.integration.support import agents
from ansible_collections.kvmfleet.migration.tests.integration.support.control import BUILD
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

from . import guide as g

FENCING = "kvmfleet_fencing"
_HOST = re.compile(r"\bkvm(?=[123…])")
# A folder that the hosts share: in the lab, the one of its images.
_FOLDER = "/srv/images/memory"
_ADDRESS = re.compile(r"\b10\.0\.0\.1([123])\b")


class Reader(abc.ABC):
    """Root on a control node, in a folder of its own.

    :arg hosts: how the hosts are called here: their prefix before C(1), C(2) and C(3).
    :arg addresses: of the hosts, by their number.
    """

    place: t.ClassVar[str]
    limit_seconds: t.ClassVar[int]

    def __init__(self, folder: pathlib.Path, hosts: str, addresses: t.Mapping[str, str]) -> None:
        self.folder, self._hosts, self._addresses = folder, hosts, addresses
        self.guests: list[str] = []
        self.printed = ""
        self._beside: subprocess.Popen[str] | None = None
        self._output = folder / "beside.log"
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "ANSIBLE_CONFIG"},
            "ANSIBLE_COLLECTIONS_PATH": str(BUILD),
            "ANSIBLE_HOME": str(folder / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "XDG_STATE_HOME": str(folder / "state"),
        }

    @abc.abstractmethod
    def act(self, verb: str, *arguments: str) -> None:
        """Let something happen to the hosts, in words of the lab."""

    @abc.abstractmethod
    def adapt(self, path: str, values: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return what the variables of a file are here."""

    def translate(self, text: str) -> str:
        """Return a text with the names and addresses of the hosts that are here."""
        return _ADDRESS.sub(lambda found: self._addresses[found[1]], _HOST.sub(self._hosts, text))

    def follow(self, steps: t.Iterable[g.Step]) -> None:
        """Take one step after the other, but those that a test cannot take or that are only to be read. Fails where something does not go as the guide says."""
        for step in steps:
            if step.kind in self._acts and step.place in ("", self.place):
                self._acts[step.kind](self, step)

    def files_of(self, guide: str) -> None:
        """Write the files of another guide, which this one begins with."""
        self.follow(step for step in g.steps_of(g.GUIDES / guide) if step.kind == g.FILE)

    def run(self, command: str) -> int:
        """Run a command in the reader's shell, keep what it prints, and return its exit code."""
        self.printed, code = self._ended(self._begin(self.translate(command)))
        return code

    def write(self, name: str, text: str) -> None:
        """Write a file into the reader's folder."""
        path = self.folder / self.translate(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.translate(text), encoding="utf-8")

    def close(self) -> None:
        """End a command that a step left behind, and what it has begun."""
        if self._beside:
            os.killpg(self._beside.pid, signal.SIGKILL)
            self._beside.wait(self.limit_seconds)
            self._beside = None

    def wait(self) -> None:
        """Wait until the command that a step left behind has ended well."""
        assert self._beside
        code = self._beside.wait(self.limit_seconds)
        self._beside, self.printed = None, self.read_beside()
        assert code == 0, self.printed

    def read_beside(self) -> str:
        """Return what the command has printed that a step left behind."""
        return self._output.read_text(encoding="utf-8")

    # The steps

    def _file(self, step: g.Step) -> None:
        values = yaml.safe_load(step.text) if pathlib.PurePath(step.argument).suffix == ".yml" else None
        adapted = self.adapt(step.argument, values) if isinstance(values, dict) else values
        self.write(step.argument, step.text if adapted == values else json.dumps(adapted, indent=2))

    def _run(self, step: g.Step) -> None:
        if step.argument == g.BACKGROUND:
            with self._output.open("w", encoding="utf-8") as output:
                self._beside = self._begin(self.translate(step.text), output)
            return
        code = self.run(step.text)
        assert (code != 0) == (step.argument == g.FAILS), f"line {step.line} ended with {code}: {step.text}\n{self.printed}"

    def _sees(self, step: g.Step) -> None:
        lines = [" ".join(line.split()) for line in self.printed.splitlines()]
        for expected in self.translate(step.text).splitlines():
            pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("…"))
            assert any(re.search(pattern, line) for line in lines), f"line {step.line}: nothing like {expected!r} in\n{self.printed}"

    def _lab(self, step: g.Step) -> None:
        self.act(*self.translate(step.argument).split())

    _acts: t.ClassVar[dict[str, t.Callable[[Reader, g.Step], None]]] = {
        g.FILE: _file,
        g.RUN: _run,
        g.SEES: _sees,
        g.LAB: _lab,
    }

    # The shell

    def _begin(self, command: str, output: int | t.TextIO = subprocess.PIPE) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", "-e", "-c", command],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _ended(self, process: subprocess.Popen[str]) -> tuple[str, int]:
        text, dummy = process.communicate(timeout=self.limit_seconds)
        return text, process.returncode


class LabReader(Reader):
    """A reader whose hosts are those of a lab."""

    place = g.IN_THE_LAB
    limit_seconds = 540

    def __init__(self, lab: Lab, folder: pathlib.Path) -> None:
        self.lab = lab
        inventory = yaml.safe_load(pathlib.Path(lab("inventory").strip()).read_text(encoding="utf-8"))["all"]["children"]["kvmfleet_hosts"]
        super().__init__(folder, lab.prefix, {name[-1]: host["ansible_host"] for name, host in inventory["hosts"].items()})
        # A reader has the default transport, or what the page says.
        self.write("inventory/group_vars/all.json", json.dumps({name: value for name, value in inventory["vars"].items() if name != "kvmfleet_transport"}))

    def translate(self, text: str) -> str:
        return super().translate(text.replace(_FOLDER, str(self.lab.layout.shared)))

    def adapt(self, path: str, values: dict[str, t.Any]) -> dict[str, t.Any]:
        if FENCING not in values:
            return values
        return {**values, FENCING: {"agent": agents.of_the_lab(self.folder), "options": {"plug": pathlib.PurePath(path).stem}}}

    def guest(self, name: str, host: str, *options: str) -> None:
        """Make a guest that is gone when the guide has been read."""
        self.guests.append(name)
        self.lab("guest", name, "--host", self.translate(host), *options)

    def act(self, verb: str, *arguments: str) -> None:
        if verb == "guest":
            self.guests.append(arguments[0])
            self.lab(verb, *arguments)
        elif verb == "moving":
            name, number = arguments[0], int(arguments[1][-1])
            uuid = self.lab.uuid(name, number)
            eventually(lambda: (self.lab.state_file(uuid, number) or {}).get("status") == "running", f"{name} is moving", self.limit_seconds)
        elif verb == "wait":
            self.wait()
        elif verb == "answers":
            eventually(lambda: all(row["libvirtd"] for row in self.lab.rows().values()), "every libvirt answers")
        else:
            self.lab(verb, *arguments)

    def verify_audit(self) -> None:
        ledger = open_if_any(str(self.folder / "state" / "kvmfleet" / "ledger"))
        assert ledger is None or ledger.verify_audit() == []
