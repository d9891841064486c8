# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab of these scenarios, and what its hosts say of their guests.

What is asked often is asked in this process: a scenario that waits would else take the processors from what it waits for.
"""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import subprocess
import time
import typing as t

from ansible_collections.kvmfleet.migration.tests.lab.kvmlab import cli, questions, status
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab import guest as guests
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab import host as hosts
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.errors import LabError
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.layout import Lab as Layout

COMMAND = pathlib.Path(__file__).resolve().parents[2] / "lab/lab"
# How long anything is waited for: what has not come by then hangs. A machine that is slow, or busy with something else, may take most of it.
PATIENCE_SECONDS = 300
# A cap that holds a move where it is: what a guest has written comes over at a MiB a second, until the scenario hurries, aborts or forces it.
HELD = {"bandwidth_mib": 1}
# Verbs that start nothing that would be this process's child.
IN_THIS_PROCESS = ("guest", "rmguest", "inventory")
# What the collection leaves on a host. A boot guard whose programs alone remain counts as damaged, and holds the boot.
LEFT_BY_COLLECTION = (
    "/var/lib/kvmfleet/*",
    "/run/kvmfleet",
    "/etc/kvmfleet/*",
    "/etc/systemd/system/*kvmfleet*",
    "/etc/systemd/system/*/*kvmfleet*",
    "/usr/local/lib/kvmfleet/*",
)

Answer = t.TypeVar("Answer")


def eventually(ask: t.Callable[[], Answer | None], what: str, seconds: float = PATIENCE_SECONDS) -> Answer:
    """Return the first answer that is true in a test; fail the test when there is none in time."""
    begun = time.monotonic()
    while not (answer := ask()):
        passed = time.monotonic() - begun
        assert passed < seconds, f"not within {seconds} s: {what}"
        # To ask costs others processor time: what does not come soon is asked for less often.
        time.sleep(0.2 if passed < 2 else 0.5)
    return answer


class Lab:
    """The command C(lab) for one prefix. Hosts are named by their number."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    @property
    def layout(self) -> Layout:
        """Where the lab keeps what, by the settings that it has now."""
        return Layout.named(self.prefix)

    def try_(self, *arguments: str, stdin: str = "", timeout: float = PATIENCE_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run the command, whatever comes of it."""
        if arguments[0] in IN_THIS_PROCESS and not stdin:
            return self._here(arguments)
        try:
            command = self._on_host(*arguments) or [str(COMMAND), "--prefix", self.prefix, *arguments]
        except LabError as exc:
            return subprocess.CompletedProcess(arguments, 1, "", f"lab: {exc}\n")
        return subprocess.run(command, capture_output=True, text=True, input=stdin, timeout=timeout, check=False)

    def _here(self, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        printed, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
            try:
                code = cli.main(["--prefix", self.prefix, *arguments])
            except SystemExit as exc:
                code = int(exc.code or 0)
        return subprocess.CompletedProcess(arguments, code, printed.getvalue(), said.getvalue())

    def _on_host(self, verb: str, *arguments: str) -> list[str] | None:
        """Return what C(lab exec) and C(lab virsh) would run on a host; none for other commands."""
        if verb == "virsh":
            return hosts.virsh_on(self.layout, *arguments)
        return hosts.command_on(self.layout, arguments[0], *arguments[2:]) if verb == "exec" else None

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        done = self.try_(*arguments, stdin=stdin)
        assert done.returncode == 0, f"lab {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def host(self, number: int) -> str:
        return f"{self.prefix}{number}"

    def make_guest(self, name: str, wish: t.Mapping[str, t.Any]) -> None:
        """Make a guest: C(host) is a number, and what else is given are options of C(lab guest); a true one has no value."""
        options = {key.replace("_", "-"): value for key, value in wish.items() if key != "host" and value is not False}
        words = [word for key, value in options.items() for word in ([f"--{key}"] if value is True else [f"--{key}", str(value)])]
        self("guest", name, "--host", self.host(wish["host"]), *words)

    def virsh(self, number: int, *arguments: str) -> str:
        return self("virsh", self.host(number), *arguments)

    def on(self, number: int, *command: str) -> str:
        """Run a command on a host."""
        return self("exec", self.host(number), "--", *command)

    def path(self, number: int, path: str) -> pathlib.Path:
        """Return where a file of a host that is on is found from here."""
        return pathlib.Path(f"/proc/{hosts.require_pid(self.layout, self.host(number))}/root{path}")

    def rows(self) -> dict[str, dict[str, t.Any]]:
        return {row["host"]: row for row in status.read(self.layout)}

    def places(self, guest: str) -> dict[int, str]:
        """Return the hosts that know a guest, with its state there."""
        known = guests.on_hosts(self.layout)
        return {int(host[-1]): one["state"] for host, listed in known.items() for one in listed if one["name"] == guest}

    def uuid(self, guest: str, number: int = 1) -> str:
        return str(hosts.ask(self.layout, self.host(number), lambda connection: connection.lookupByName(guest).UUIDString()))

    def info(self, guest: str, number: int) -> dict[str, str]:
        """Return what C(virsh dominfo) says, by its own words."""
        lines = (line.partition(":") for line in self.virsh(number, "dominfo", guest).splitlines() if ":" in line)
        return {key.strip(): value.strip() for key, dummy, value in lines}

    def has_job(self, guest: str, number: int = 1) -> bool:
        try:
            return hosts.ask(self.layout, self.host(number), lambda connection: questions.has_job(connection, guest))
        except LabError:
            return False

    def check(self, guest: str) -> dict[str, t.Any]:
        """Return the verdict over a guest's memory; C(intact) says that nothing was lost."""
        return t.cast("dict[str, t.Any]", json.loads(self("check", guest)))

    def state_file(self, uuid: str, number: int = 1) -> dict[str, t.Any] | None:
        """Return what the watcher of a domain has written on its source host."""
        try:
            text = self.path(number, f"/run/kvmfleet/{uuid}.json").read_text()
        except (LabError, FileNotFoundError):
            return None
        return t.cast("dict[str, t.Any]", json.loads(text))

    def under_way(self, uuid: str, number: int = 1) -> dict[str, t.Any]:
        """Wait until memory of a domain is being moved; return its state file."""

        def moving() -> dict[str, t.Any] | None:
            state = self.state_file(uuid, number)
            return state if state and state["status"] == "running" and state["progress"]["memory_processed_bytes"] else None

        return eventually(moving, f"{uuid} is being moved")

    def runs(self) -> set[str]:
        """Return the heartbeat files on the first host: one for each run that follows, or followed, moves from there."""
        return {path.name for path in self.path(1, "/run/kvmfleet").glob("*.heartbeat")}

    def hurry(self, guest: str, *options: str, number: int = 1) -> None:
        """Lift the cap of a move under way, so that a scenario that has seen enough need not wait for its end; with C(--postcopy) that of post-copy."""
        done = self.try_("virsh", self.host(number), "migrate-setspeed", guest, "1000", *options)
        # On a busy machine the move may have ended before.
        assert done.returncode == 0 or number not in self.places(guest), f"{guest} is not hurried: {done.stderr}"


def end_what_moves(lab: Lab, name: str) -> None:
    """Abort a job that a failed scenario left: a guest with a job cannot be removed."""
    if lab.has_job(name):
        lab.try_("virsh", lab.host(1), "domjobabort", name)


@contextlib.contextmanager
def fresh_lab(prefix: str, hosts: int) -> t.Iterator[Lab]:
    """Give a lab of so many hosts; afterwards it is gone."""
    lab = Lab(prefix)
    lab("down")
    try:
        lab("up", "--hosts", str(hosts))
        yield lab
    finally:
        lab("down")


def forget_collection(lab: Lab, hosts: int) -> None:
    """Bring all hosts up, and take away what the collection has left on them."""
    lab("up", "--hosts", str(hosts))
    for number in range(1, hosts + 1):
        lab.on(number, "sh", "-c", f"rm -rf {' '.join(LEFT_BY_COLLECTION)}")
