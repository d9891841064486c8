# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The answers of other hosts: their domains, over libvirt, all hosts at the same time; and whether anything answers at the SSH port of a host."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import errno
import functools
import socket
import subprocess
import threading
import time
import typing as t
import urllib.parse

from .._logins import draw_slots
from .._model.clock import BootMoment, boot_moment
from .._model.errors import Internal, KvmfleetError, Unreachable
from .._model.evidence import SshEndpoint
from .._model.references import DomainPresence, HostAnswer, silent_answer
from .._model.saved_domains import PeerAnswers
from .._time_limits import PendingAnswer, answer_within, own_time_limit

if t.TYPE_CHECKING:
    from .._libvirt.interface import Host

SSH_ANSWERS, SSH_REFUSED, SSH_SILENT, SSH_UNKNOWN = "answers", "refused", "silent", "unknown"
SSH_SECONDS = 5.0

MAX_AT_ONCE = 64
# Of one host. A libvirt daemon answers five calls of one client at the same time.
DOMAINS_AT_ONCE = 4
# A busy host may take 60 s to open a connection, and a daemon that is starting a domain answers nothing until that domain runs. Such a connection stays alive.
PATIENCE_SECONDS = 90.0


def ask_fleet(
    uris: t.Mapping[str, str],
    open_host: t.Callable[[str], Host],
    uuids: t.Optional[t.Collection[str]] = None,
    patience_seconds: float = PATIENCE_SECONDS,
    identify: bool = True,
    dead: t.Collection[str] = (),
    spread: bool = False,
) -> t.Dict[str, HostAnswer]:
    """Return the answer of each host by its name.

    :arg uris: name of each host to its URI.
    :arg dead: the names of hosts that are probably dead: they are asked with L(ask_dead_host).
    :arg uuids: the domains to query, each with a call of its own: a list of all domains waits for every domain that the host is starting. None means all.
    :arg identify: whether to read each host's own ID; otherwise C(host_id) is null.
    :arg patience_seconds: a host that has not answered by then is silent.
    :arg spread: whether other hosts ask the same ones at this moment, so that each is asked in a slot of its own, see L(draw_slots).
    """
    begun, slots = time.monotonic(), draw_slots(uris.values()) if spread else {}
    # Dead hosts first, because they take the longest.
    turns = {name: -1.0 if name in dead else slots.get(uri, 0.0) for name, uri in uris.items()}
    names = sorted(uris, key=lambda name: (turns[name], name))

    def ask_one(name: str) -> HostAnswer:
        uri = uris[name]
        ask_in_time = ask_dead_host if name in dead else _ask_in_time
        return ask_in_time(uri, lambda: _ask_host(uri, open_host, uuids, identify), patience_seconds)

    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, min(MAX_AT_ONCE, len(names)))) as pool:
        pending = {}
        for name in names:
            time.sleep(max(0.0, turns[name] - (time.monotonic() - begun)))
            pending[name] = pool.submit(ask_one, name)
        return {name: answer.result() for name, answer in pending.items()}


def _ask_in_time(uri: str, ask: t.Callable[[], HostAnswer], seconds: float) -> HostAnswer:
    return answer_within(seconds, ask) or _late_answer(uri, seconds)


def _late_answer(uri: str, seconds: float) -> HostAnswer:
    return silent_answer(Unreachable(f"libvirt at {uri} did not answer within {seconds:.0f} s."))


def ask_dead_host(
    uri: str, ask: t.Callable[[], HostAnswer], seconds: float, is_silent: t.Optional[t.Callable[[str], bool]] = None, least_seconds: float = SSH_SECONDS
) -> HostAnswer:
    """Return the answer of a host that is probably dead.

    It is asked for C(seconds) as any other host, unless its port is silent. Libvirt needs 20 s and more to report that, so a host whose port is silent has
    C(least_seconds), the time of one connection attempt.

    :arg is_silent: whether the port of the URI is silent, L(is_port_silent) by default.

    Raises C(RuntimeError) if this host has no process or memory left to ask it: that is no silence of the other one.
    """
    answer: t.List[t.Union[HostAnswer, RuntimeError]] = []

    def run() -> None:
        with own_time_limit():
            try:
                answer.append(ask())
            except RuntimeError as error:
                answer.append(error)

    begun = time.monotonic()
    thread = threading.Thread(target=run, name="dead-host", daemon=True)
    thread.start()
    limit = least_seconds if (is_silent or is_port_silent)(uri) else seconds
    thread.join(max(0.0, limit - (time.monotonic() - begun)))
    if not answer:
        return _late_answer(uri, limit)
    if isinstance(answer[0], RuntimeError):
        raise answer[0]
    return answer[0]


def _ask_host(uri: str, open_host: t.Callable[[str], Host], uuids: t.Optional[t.Collection[str]], identify: bool) -> HostAnswer:
    try:
        host = open_host(uri)
    except KvmfleetError as error:
        return silent_answer(error)
    try:
        domains = {uuid: DomainPresence(active) for uuid, active in _read_domains(host, uuids).items()}
        return HostAnswer(True, host.host_id() if identify else None, host.host_uuid(), domains)
    except KvmfleetError as error:
        return silent_answer(error)
    finally:
        host.close()


def _read_domains(host: Host, uuids: t.Optional[t.Collection[str]]) -> t.Dict[str, bool]:
    """Return the domains of the host, or only the given ones, and whether they are active."""
    if uuids is None:
        return host.list_presence()
    wanted = sorted(uuids)
    pending = [PendingAnswer(functools.partial(_read_share, host, wanted[first::DOMAINS_AT_ONCE])) for first in range(min(DOMAINS_AT_ONCE, len(wanted)))]
    found: t.Dict[str, bool] = {}
    # All of them: the caller closes the connection after an error, and none of these threads may be using it then.
    for share in [query.wait(None) for query in pending]:
        if not isinstance(share, dict):
            raise share or Unreachable("libvirt's answer about some domains could not be read.")
        found.update(share)
    return found


def _read_share(host: Host, uuids: t.Sequence[str]) -> t.Union[t.Dict[str, bool], KvmfleetError]:
    """Return which of these domains the host has, and whether they are active; or the error that a query failed with."""
    try:
        return {uuid: view.active for uuid, view in ((uuid, host.view_domain(uuid)) for uuid in uuids) if view.present}
    except KvmfleetError as error:
        return error


# Errors that come from a machine that is on and has the address.
SSH_ALIVE = (SSH_ANSWERS, SSH_REFUSED)
# Errors of an attempt that has left no host: it has no way to that address, or no such kind of address.
_NOT_SENT = (errno.ENETUNREACH, errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EINVAL)
# Errors of a machine that has no file or memory left for an attempt.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
_LIBVIRT_PORTS = {"tcp": 16509, "tls": 16514}


class _ErrorQueue(t.NamedTuple):
    """How Linux passes on who has reported an error: the option of a socket (IP_RECVERR in ip(7)), and where the address is in the message.

    :arg forbidden: the codes of ICMP with which a firewall rejects.
    """

    level: int
    option: int
    begin: int
    end: int
    forbidden: t.Tuple[int, ...]


# firewalld rejects with a message that looks like that of a router about a host that is off. A router that translates addresses sends the latter in the name
# of that host, but no host says of itself that it cannot be reached: only codes that forbid count.
_ERROR_QUEUES = {
    socket.AF_INET: _ErrorQueue(socket.IPPROTO_IP, 11, 20, 24, (9, 10, 13)),
    socket.AF_INET6: _ErrorQueue(socket.IPPROTO_IPV6, 25, 24, 40, (1, 5, 6)),
}
_CODE_AT = 6
_QUEUED_BYTES = 512


def probe_ssh(address: str, port: int, seconds: float = SSH_SECONDS) -> str:
    """Return L(SSH_ANSWERS) if a connection was accepted, L(SSH_REFUSED), L(SSH_SILENT) without an answer, L(SSH_UNKNOWN) if the name is not known or nothing
    could be sent to it. Of a name with several addresses, this is the strongest sign of life.

    :arg seconds: for each address.

    Raises L(Internal) if this machine has no file or memory left for a connection.
    """
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        return SSH_UNKNOWN
    answers = set()
    for family, _type, protocol, _name, where in found:
        answers.add(_try_address(family, protocol, where, seconds))
        if answers.intersection(SSH_ALIVE):
            break
    return next((says for says in (*SSH_ALIVE, SSH_SILENT) if says in answers), SSH_UNKNOWN)


def _try_address(family: int, protocol: int, address: t.Any, seconds: float) -> str:
    try:
        with socket.socket(family, socket.SOCK_STREAM, protocol) as attempt:
            attempt.settimeout(seconds)
            return _connect(attempt, address)
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise Internal(
                f"{address[0]} port {address[1]} cannot be tried from this machine: {error.strerror}.", "Correct this, and run the task again."
            ) from error
        return SSH_UNKNOWN if error.errno in _NOT_SENT else SSH_SILENT


def _connect(attempt: socket.socket, address: t.Any) -> str:
    """Return L(SSH_ANSWERS) or L(SSH_REFUSED). Raises C(OSError) if the machine with that address has sent nothing."""
    try:
        keep_errors(attempt)
        attempt.connect(address)
    except ConnectionRefusedError:
        return SSH_REFUSED
    except OSError:
        if is_rejected_by(attempt, address[0]):
            return SSH_REFUSED
        raise
    return SSH_ANSWERS


def keep_errors(attempt: socket.socket) -> None:
    """Let Linux keep who reports an error, for L(is_rejected_by). Call this before the attempt to connect."""
    queue = _ERROR_QUEUES.get(attempt.family)
    if queue:
        attempt.setsockopt(queue.level, queue.option, 1)


def is_rejected_by(attempt: socket.socket, address: str) -> bool:
    """Whether the machine with that address has itself forbidden the attempt; false for a message of a router, and without one."""
    queue = _ERROR_QUEUES.get(attempt.family)
    if queue is None:
        return False
    # Python would wait for an answer first.
    attempt.setblocking(False)
    try:
        messages = attempt.recvmsg(_QUEUED_BYTES, _QUEUED_BYTES, socket.MSG_ERRQUEUE)[1]
    except OSError:
        return False
    wanted = socket.inet_pton(attempt.family, address.partition("%")[0])
    found = [data for level, option, data in messages if (level, option) == (queue.level, queue.option)]
    return any(data[queue.begin : queue.end] == wanted and data[_CODE_AT] in queue.forbidden for data in found)


def is_port_silent(uri: str) -> bool:
    """Whether the port to which a libvirt URI leads has not answered. False if the port is not known, as that of a host behind a jump host."""
    endpoint = _find_endpoint(uri)
    return endpoint is not None and probe_ssh(*endpoint) == SSH_SILENT


def _find_endpoint(uri: str) -> t.Optional[t.Tuple[str, int]]:
    """Return address and port of a libvirt URI; null if it has none, or if they are not known."""
    parts = urllib.parse.urlsplit(uri)
    transport = parts.scheme.partition("+")[2]
    if not parts.hostname or transport == "unix":
        return None
    if transport.endswith(("ssh", "ssh2")):
        return read_ssh_endpoint(parts.hostname, parts.port)
    return parts.hostname, parts.port or _LIBVIRT_PORTS.get(transport, _LIBVIRT_PORTS["tls"])


def read_ssh_endpoint(address: str, port: t.Optional[int], program: str = "ssh") -> t.Optional[t.Tuple[str, int]]:
    """Return where the SSH client of this user connects to for that address; null if it does so through another host, or if its configuration is unknown."""
    command = [program, "-G", *(["-p", str(port)] if port else []), "--", address]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=SSH_SECONDS, check=True)
        options = dict(line.lower().split(None, 1) for line in done.stdout.splitlines() if " " in line)
        has_jump_host = any(options.get(name, "none").strip() != "none" for name in ("proxyjump", "proxycommand"))
        return None if has_jump_host else (options["hostname"].strip(), int(options["port"]))
    except (OSError, ValueError, KeyError, subprocess.SubprocessError):
        return None


def probe_ssh_endpoints(doors: t.Sequence[SshEndpoint], ask: t.Callable[[str, int], str] = probe_ssh) -> t.Tuple[SshEndpoint, ...]:
    """Return the addresses with their answers. All are tried at once, so that a silent one does not delay the others."""
    with concurrent.futures.ThreadPoolExecutor(max(1, len(doors))) as pool:
        answers = pool.map(lambda door: ask(door.address, door.port), doors)
        return tuple(dataclasses.replace(door, says=says) for door, says in zip(doors, answers))


# Slow hosts may take longer to answer than the proof of a silent source is valid. Answers are valid longer: the ledger's records keep every other task
# from starting these domains meanwhile.
ANSWERS_VALID_SECONDS = 120.0

Uuids = t.AbstractSet[str]


def ask_peers(uris: t.Mapping[str, str], uuids: Uuids, open_host: t.Callable[[str], Host]) -> PeerAnswers:
    """Return what the other hosts answer about these domains. Each survivor of an evacuation asks all others at this moment, so the logins are spread.

    :arg uris: name of each host to its URI.
    """
    asked_at = boot_moment()
    answers = ask_fleet(uris, open_host, uuids, identify=False, spread=True)
    active = {uuid: name for name, answer in answers.items() for uuid in answer.active_uuids}
    silent = tuple(f"{name}: {answer.msg}" for name, answer in answers.items() if not answer.answered)
    return PeerAnswers(active, silent, tuple(sorted(uuids)), asked_at)


def are_answers_valid(answers: t.Optional[PeerAnswers], uuids: Uuids, now: BootMoment) -> bool:
    """Whether answers of an earlier call are still valid for these domains: every host had answered, in this boot and not too long ago."""
    if answers is None or answers.silent or not uuids <= set(answers.uuids):
        return False
    return is_recent_answer(answers.moment, now)


def is_recent_answer(moment: BootMoment, now: BootMoment) -> bool:
    """Whether answers to a question that was asked at that moment still count: it was in this boot and not too long ago."""
    age = now.seconds_since(moment)
    return age is not None and 0 <= age < ANSWERS_VALID_SECONDS
