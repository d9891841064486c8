# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real etcd cluster on the loopback interface: unprivileged ports, a folder of its own, members that can be killed and come back."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import ssl
import subprocess
import time
import typing as t
import urllib.error
import urllib.request

from .certificates import Authority
from .errors import LabError, UsageError

ADDRESS = "127.0.0.1"
USER = "fleet"
PREFIX = "/fleet"
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGTERM, "freeze": signal.SIGSTOP, "thaw": signal.SIGCONT}
# Which members an action may be about, beside the number of one.
LEADER, ALL = "leader", "all"
START_SECONDS = 300.0
_SETTINGS = "cluster.json"
_PORTS = (20000, 32000)


class Cluster:
    """:arg folder: where everything of it is, pids included, so that another process can deal with it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    # -- making and ending -------------------------------------------------------------------------------------------

    def up(self, members: int = 3, tls: bool = False, prefix: t.Optional[str] = None, more: t.Sequence[str] = (), address: str = ADDRESS) -> None:
        """Make and start it; begin a cluster that is there already anew where members of it do not run.

        :arg tls: members and clients show certificates of one authority.
        :arg prefix: with one, a user L(USER) is made who may use only its keys, and nobody else may anything.
        :arg more: further options of each member.
        :arg address: of this machine, where clients reach the members.
        """
        if not self._settings_file.exists():
            self._make(members, tls, prefix, more, address)
        for number in self.members:
            if not self.is_running(number):
                self.start(number)
        self.wait(self.members)
        if prefix and not self.settings.get("password"):
            self._add_user(prefix)

    def _make(self, members: int, tls: bool, prefix: t.Optional[str], more: t.Sequence[str], address: str) -> None:
        if not shutil.which("etcd"):
            raise LabError("etcd is missing. Install it with: apt install -y --no-install-recommends etcd-server")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ports = _free_ports(2 * members)
        settings = {"tls": tls, "prefix": prefix, "clients": ports[:members], "peers": ports[members:], "more": list(more), "token": os.urandom(8).hex()}
        settings["address"] = address
        if tls:
            authority = Authority.made(self.folder / "tls")
            authority.issue("member", address=address)
            authority.issue("client")
        self._settings_file.write_text(json.dumps(settings))

    def down(self) -> None:
        """Kill what runs of it and remove its folder."""
        if self._settings_file.exists():
            for number in self.members:
                self.signal(number, "kill")
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait(self, members: t.Sequence[int]) -> None:
        """Wait until these members serve with a leader. Raises L(LabError) with the end of a member's log."""
        deadline = time.monotonic() + START_SECONDS
        for number in members:
            while not self.is_healthy(number):
                if time.monotonic() > deadline or not self.is_running(number):
                    raise LabError(f"Member {number} of etcd does not serve: {self._log(number).read_text()[-2000:]}")
                time.sleep(0.05)

    # -- members -------------------------------------------------------------------------------------------------------

    def start(self, number: int) -> None:
        """Start a member that does not run."""
        with open(self._log(number), "ab") as log:
            process = subprocess.Popen(
                self._command(number), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env={"PATH": os.defpath}
            )
        # For a moment a new process has no command line, and could not be told from one that has ended.
        while process.poll() is None and not pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes():
            time.sleep(0.001)
        self._pid_file(number).write_text(str(process.pid))

    def signal(self, number: int, action: str) -> None:
        """C(kill) a member without any warning, C(stop) it as an operator does, C(freeze) it so that it answers nobody, or C(thaw) it."""
        pid = self._pid(number)
        if pid is None:
            return
        os.kill(pid, SIGNALS[action])
        if action in ("kill", "stop"):
            wait_for_end(pid)
        if action == "freeze":
            wait_until_stopped(pid)

    def is_running(self, number: int) -> bool:
        """Whether the member's process is there."""
        return self._pid(number) is not None

    def is_healthy(self, number: int) -> bool:
        """Whether the member says that it serves with a leader."""
        with contextlib.suppress(OSError, ValueError), self._open(number, "/health", None, timeout=2) as answer:
            return json.load(answer).get("health") in ("true", True)
        return False

    def leader(self) -> int:
        """Return the number of the leader. Raises L(LabError) where there is none."""
        found = next(filter(self.is_leader, self.members), None)
        if found is None:
            raise LabError("No member of etcd is its leader.")
        return found

    def is_leader(self, number: int) -> bool:
        """Whether the member says that it leads."""
        if not self.is_running(number):
            return False
        with contextlib.suppress(OSError, LabError):
            status = self.call("maintenance/status", {}, number)
            return bool(status.get("leader")) and status["leader"] == status["header"]["member_id"]
        return False

    def act(self, action: str, which: t.Optional[str]) -> None:
        """Start members, or do one of L(SIGNALS) to them.

        :arg which: the number of one, L(LEADER) or L(ALL).
        :raises UsageError: there is no such member.
        """
        for number in self._named(which):
            if action != "start":
                self.signal(number, action)
            elif not self.is_running(number):
                self.start(number)

    def _named(self, which: t.Optional[str]) -> t.List[int]:
        if which == ALL:
            return self.members
        if which == LEADER:
            return [self.leader()]
        if which is None or which not in map(str, self.members):
            raise UsageError(f"Say which member: one of {', '.join(map(str, self.members))}, {LEADER} or {ALL}.")
        return [int(which)]

    # -- as a client sees it -------------------------------------------------------------------------------------------

    @property
    def endpoints(self) -> t.List[str]:
        return [f"{self.settings['address']}:{port}" for port in self.settings["clients"]]

    def location(self, prefix: t.Optional[str] = None) -> str:
        """Return the value of C(kvmfleet_ledger) for this cluster."""
        return f"etcd://{','.join(self.endpoints)}{prefix or PREFIX}"

    @property
    def options(self) -> t.Dict[str, t.Any]:
        """The value of C(kvmfleet_etcd) for this cluster."""
        options = {}
        if self.settings["tls"]:
            tls = Authority(self.folder / "tls")
            options = {"ca_file": tls.certificate("ca"), "cert_file": tls.certificate("client"), "key_file": tls.key("client")}
        if self.settings.get("password"):
            options.update(user=USER, password=self.settings["password"])
        return options

    def variables(self) -> str:
        """Return what a play needs to know of it, as a JSON file of extra variables."""
        return json.dumps({"kvmfleet_ledger": self.location(), "kvmfleet_etcd": self.options}, indent=2)

    def table(self) -> str:
        """Return a line a member: its number, where it listens, and whether it is off, does not serve, serves, or leads."""
        return "\n".join(f"{number}  {self.endpoints[number - 1]}  {self._state(number)}" for number in self.members)

    def _state(self, number: int) -> str:
        if not self.is_running(number):
            return "off"
        if not self.is_healthy(number):
            return "does not serve"
        return "leads" if self.is_leader(number) else "serves"

    def call(self, name: str, payload: t.Dict[str, t.Any], number: int = 1, token: t.Optional[str] = None) -> t.Dict[str, t.Any]:
        """Ask a member through its gateway."""
        try:
            with self._open(number, f"/v3/{name}", json.dumps(payload).encode(), token) as answer:
                reply: t.Dict[str, t.Any] = json.load(answer)
                return reply
        except urllib.error.HTTPError as exc:
            raise LabError(f"etcd refused {name}: {exc.read().decode('utf-8', 'replace')}") from exc

    def root_token(self, number: int = 1) -> t.Optional[str]:
        """Return a token of the user root, by a member; None where users are not asked for."""
        password = self.settings.get("root_password")
        return self.call("auth/authenticate", {"name": "root", "password": password}, number)["token"] if password else None

    def add_writer(self, user: str, key: str) -> str:
        """Make a user that may write one key and read nothing, and return its password.

        :raises LabError: the cluster asks for no users.
        """
        token = self.root_token()
        if token is None:
            raise LabError("This etcd asks for no users. Start one with: lab etcd up --users")
        password = os.urandom(12).hex()
        for name, payload in (
            ("auth/role/add", {"name": user}),
            ("auth/role/grant", {"name": user, "perm": {"permType": "WRITE", "key": coded(key)}}),
            ("auth/user/add", {"name": user, "password": password}),
            ("auth/user/grant", {"user": user, "role": user}),
        ):
            self.call(name, payload, token=token)
        return password

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def members(self) -> t.List[int]:
        return list(range(1, len(self.settings["clients"]) + 1))

    @property
    def settings(self) -> t.Dict[str, t.Any]:
        """What was decided when it was made.

        :raises UsageError: it is not there.
        """
        try:
            settings: t.Dict[str, t.Any] = json.loads(self._settings_file.read_text())
            return settings
        except FileNotFoundError:
            raise UsageError(f"There is no etcd in {self.folder}. Start one with: lab etcd up") from None

    @property
    def _settings_file(self) -> pathlib.Path:
        return self.folder / _SETTINGS

    def _pid_file(self, number: int) -> pathlib.Path:
        return self.folder / f"member{number}.pid"

    def _log(self, number: int) -> pathlib.Path:
        return self.folder / f"member{number}.log"

    def data(self, number: int) -> pathlib.Path:
        """Return the folder of a member's database."""
        return self.folder / f"member{number}"

    def _pid(self, number: int) -> t.Optional[int]:
        """Return the process of a member, if it is still that."""
        try:
            pid = int(self._pid_file(number).read_text())
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ValueError, ProcessLookupError):
            return None
        return pid if str(self.data(number)).encode() in command.split(b"\0") else None

    def founding(self, number: int) -> t.Dict[str, str]:
        """Return the options that make a data folder that member's of this cluster; the cluster's own id comes of them."""
        settings = self.settings
        everyone = ",".join(f"member{one}=http://{ADDRESS}:{port}" for one, port in enumerate(settings["peers"], 1))
        return {
            "name": f"member{number}",
            "data-dir": str(self.data(number)),
            "initial-advertise-peer-urls": f"http://{ADDRESS}:{settings['peers'][number - 1]}",
            "initial-cluster": everyone,
            "initial-cluster-token": settings["token"],
        }

    def _command(self, number: int) -> t.List[str]:
        settings, founding = self.settings, self.founding(number)
        client = f"{'https' if settings['tls'] else 'http'}://{self.endpoints[number - 1]}"
        options = {
            **founding,
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": founding["initial-advertise-peer-urls"],
            "logger": "zap",
        }
        if settings["tls"]:
            tls = Authority(self.folder / "tls")
            options.update({"cert-file": tls.certificate("member"), "key-file": tls.key("member"), "trusted-ca-file": tls.certificate("ca")})
        return ["etcd", *as_words(options), *(["--client-cert-auth"] if settings["tls"] else []), *settings["more"]]

    def _open(self, number: int, path: str, data: t.Optional[bytes], token: t.Optional[str] = None, timeout: float = 10) -> t.Any:
        scheme, context = "http", None
        if self.settings["tls"]:
            tls = Authority(self.folder / "tls")
            scheme, context = "https", ssl.create_default_context(cafile=tls.certificate("ca"))
            context.load_cert_chain(tls.certificate("client"), tls.key("client"))
        request = urllib.request.Request(f"{scheme}://{self.endpoints[number - 1]}{path}", data, {"Authorization": token} if token else {})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        return opener.open(request, timeout=timeout)

    def renew_token(self) -> None:
        """Make it another cluster, with another id, from the next founding of its members on."""
        self._settings_file.write_text(json.dumps({**self.settings, "token": os.urandom(8).hex()}))

    def _add_user(self, prefix: str) -> None:
        """Make root and L(USER), and have everyone asked who he is from here on."""
        settings = {**self.settings, "password": os.urandom(12).hex(), "root_password": os.urandom(12).hex()}
        keys = {"key": coded(f"{prefix}/"), "range_end": coded(f"{prefix}0")}
        for name, payload in (
            ("auth/user/add", {"name": "root", "password": settings["root_password"]}),
            ("auth/user/grant", {"user": "root", "role": "root"}),
            ("auth/role/add", {"name": USER}),
            ("auth/role/grant", {"name": USER, "perm": {"permType": "READWRITE", **keys}}),
            ("auth/user/add", {"name": USER, "password": settings["password"]}),
            ("auth/user/grant", {"user": USER, "role": USER}),
            ("auth/enable", {}),
        ):
            self.call(name, payload)
        self._settings_file.write_text(json.dumps(settings))


def as_words(options: t.Mapping[str, str]) -> t.List[str]:
    """Return options as a command line has them."""
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def coded(text: str) -> str:
    """Return a text as etcd's gateway has keys and values."""
    return base64.b64encode(text.encode()).decode()


def _free_ports(count: int) -> t.List[int]:
    """Return ports that nobody listens on, below those that the system gives to connections: such a one may be taken at any moment."""
    found: t.List[int] = []
    while len(found) < count:
        port = random.randrange(*_PORTS)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind((ADDRESS, port))
            found += [] if port in found else [port]
    return found


def wait_for_end(pid: int) -> None:
    """Wait for a process to be gone with all its threads, a child of this one or not.

    The first thread may be a zombie while others still hold the process's sockets and locks.
    """
    folder = pathlib.Path(f"/proc/{pid}")
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        try:
            state = _read_state(folder)
            threads = os.listdir(folder / "task")
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z" and len(threads) <= 1:
            return
        time.sleep(0.01)
    raise LabError(f"The process {pid} of etcd does not end.")


def wait_until_stopped(pid: int) -> None:
    """Wait until no thread of a process that got SIGSTOP runs any more; on a busy machine it may still answer for a while."""
    deadline = time.monotonic() + START_SECONDS
    while not _is_stopped(pathlib.Path(f"/proc/{pid}")):
        if time.monotonic() > deadline:
            raise LabError(f"The process {pid} of etcd does not stop.")
        time.sleep(0.01)


def _is_stopped(folder: pathlib.Path) -> bool:
    try:
        return all(_read_state(thread) == "T" for thread in (folder / "task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return False  # A thread ended meanwhile, so they run.


def _read_state(folder: pathlib.Path) -> str:
    return (folder / "stat").read_text().rpartition(")")[2].split()[0]
