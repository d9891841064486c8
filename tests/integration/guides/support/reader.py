# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A reader who does what a guide says, on hosts of a lab.

What stands in a guide becomes true of the lab by these rules: C(kvm1) to C(kvm3) are its hosts, C(10.0.0.11) to C(10.0.0.13) their addresses, and a fence agent
is the lab's. How its hosts are reached by SSH, and that their libvirts speak TCP, stands in C(group_vars/all.json) of the reader's folder.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import typing as t

import yaml

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.tests.integration.support import agents
from ansible_collections.kvmfleet.migration.tests.integration.support.control import BUILD
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

from . import guide as g

LIMIT_SECONDS = 540
FENCING = "kvmfleet_fencing"
_HOST = re.compile(r"\bkvm(?=[123…])")
# A folder that the hosts share: in the lab, the one of its images.
_FOLDER = "/srv/images/memory"
_ADDRESS = re.compile(r"\b10\.0\.0\.1([123])\b")


class Reader:
    """Root on a control node, in a folder of its own."""

    def __init__(self, lab: Lab, folder: pathlib.Path) -> None:
        self.lab = lab
        self.folder = folder
        self.guests: list[str] = []
        self.printed = ""
        self._beside: subprocess.Popen[str] | None = None
        inventory = yaml.safe_load(pathlib.Path(lab("inventory").strip()).read_text(encoding="utf-8"))["all"]["children"]["kvmfleet_hosts"]
        self._addresses = {name[-1]: host["ansible_host"] for name, host in inventory["hosts"].items()}
        self.write("group_vars/all.json", json.dumps(inventory["vars"]))
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "ANSIBLE_CONFIG"},
            "ANSIBLE_COLLECTIONS_PATH": str(BUILD),
            "ANSIBLE_HOME": str(folder / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def follow(self, steps: t.Iterable[g.Step]) -> None:
        """Take one step after the other. Fails where something does not go as the guide says."""
        for step in steps:
            self._acts[step.kind](self, step)

    def files_of(self, guide: str) -> None:
        """Write the files of another guide, which this one begins with."""
        self.follow(step for step in g.steps_of(g.GUIDES / guide) if step.kind == g.FILE)

    def run(self, command: str) -> int:
        """Run a command in the reader's shell, keep what it prints, and return its exit code."""
        self.printed, code = self._ended(self._begin(self._translated(command)))
        return code

    def guest(self, name: str, host: str, *options: str) -> None:
        """Make a guest that is gone when the guide has been read."""
        self.guests.append(name)
        self.lab("guest", name, "--host", self._translated(host), *options)

    def write(self, name: str, text: str) -> None:
        """Write a file into the reader's folder."""
        path = self.folder / self._translated(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._translated(text), encoding="utf-8")

    def verify_audit(self) -> None:
        ledger = open_if_any(str(self.folder / "state" / "kvmfleet" / "ledger"))
        assert ledger is None or ledger.verify_audit() == []

    def close(self) -> None:
        """End a command that a step left behind."""
        if self._beside:
            self._beside.kill()
            self._beside.communicate(timeout=LIMIT_SECONDS)
            self._beside = None

    # The steps

    def _file(self, step: g.Step) -> None:
        text = step.text
        if FENCING in text:
            options = {"plug": pathlib.PurePath(step.argument).stem}
            text = json.dumps({**yaml.safe_load(text), FENCING: {"agent": agents.of_the_lab(self.folder), "options": options}})
        self.write(step.argument, text)

    def _run(self, step: g.Step) -> None:
        if step.argument == g.BACKGROUND:
            self._beside = self._begin(self._translated(step.text))
            return
        code = self.run(step.text)
        assert (code != 0) == (step.argument == g.FAILS), f"line {step.line} ended with {code}: {step.text}\n{self.printed}"

    def _sees(self, step: g.Step) -> None:
        lines = [" ".join(line.split()) for line in self.printed.splitlines()]
        for expected in self._translated(step.text).splitlines():
            pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("…"))
            assert any(re.search(pattern, line) for line in lines), f"line {step.line}: nothing like {expected!r} in\n{self.printed}"

    def _lab(self, step: g.Step) -> None:
        verb, *rest = self._translated(step.argument).split()
        if verb == "guest":
            self.guests.append(rest[0])
            self.lab(verb, *rest)
        elif verb == "moving":
            uuid, number = self.lab.uuid(rest[0], int(rest[1][-1])), int(rest[1][-1])
            eventually(lambda: (self.lab.state_file(uuid, number) or {}).get("status") == "running", f"{rest[0]} is moving", LIMIT_SECONDS)
        elif verb == "wait":
            assert self._beside
            self.printed, code = self._ended(self._beside)
            self._beside = None
            assert code == 0, self.printed
        elif verb == "answers":
            eventually(lambda: all(row["libvirtd"] for row in self.lab.rows().values()), "every libvirt answers")
        else:
            self.lab(verb, *rest)

    def _nothing(self, step: g.Step) -> None:
        """What a test cannot do, or what is only to be read."""

    _acts: t.ClassVar[dict[str, t.Callable[[Reader, g.Step], None]]] = {
        g.FILE: _file,
        g.RUN: _run,
        g.SEES: _sees,
        g.LAB: _lab,
        g.NOT_RUN: _nothing,
        g.UNMARKED: _nothing,
    }

    # The shell

    def _begin(self, command: str) -> subprocess.Popen[str]:
        shell = ["sh", "-e", "-c", command]
        return subprocess.Popen(
            shell, env=self._environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    @staticmethod
    def _ended(process: subprocess.Popen[str]) -> tuple[str, int]:
        text, dummy = process.communicate(timeout=LIMIT_SECONDS)
        return text, process.returncode

    def _translated(self, text: str) -> str:
        here = text.replace(_FOLDER, str(self.lab.layout.shared))
        return _ADDRESS.sub(lambda found: self._addresses[found[1]], _HOST.sub(self.lab.prefix, here))
