# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One call of a fence agent: a process with a time limit, its output without secrets, and the power status that it reports.

Exit codes and texts are interpreted by the ClusterLabs fence agent API (FenceAgentAPI.md).
"""

from __future__ import annotations

import base64
import enum
import functools
import html
import json
import os
import re
import selectors
import shlex
import signal
import subprocess
import time
import typing as t
import unicodedata
import urllib.parse
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument

from .fence_config import AGENT_SEARCH_PATH, VARIABLE, FenceDevice, format_options

SHOWN_OUTPUT_BYTES = 4096
MASK = "***"
# Encodings of shorter texts would be found everywhere.
_SHORTEST_ENCODED = 4
# Never in a text whose control characters were removed.
_HIDDEN = "\0"
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")


def plain_text(output: bytes) -> str:
    """Return the text of an output: newlines and printable characters."""
    text = _ESCAPE_SEQUENCE.sub("", output.decode("utf-8", "replace").replace("\r\n", "\n").replace("\t", " "))
    return "".join(character for character in text if character == "\n" or not unicodedata.category(character).startswith("C"))


def redact_secrets(text: str, secrets: t.Iterable[str], torn: bool = False, killed: bool = False) -> str:
    """Return the last L(SHOWN_OUTPUT_BYTES) of a plain text, with each secret, as it is or in an obvious encoding, replaced by L(MASK).

    :arg torn: the text is the end of a longer one, so that it may begin inside a secret.
    :arg killed: the writer was killed, so that the text may end inside a secret.
    """
    forms = _all_forms(frozenset(secrets))
    if forms:
        text = re.compile("|".join(map(re.escape, forms)), re.IGNORECASE).sub(lambda found: _HIDDEN * len(found.group()), text)
    if killed:
        text = _drop_partial_secret(text, forms)
    if torn:
        text = text[len(forms[0]) if forms else 0 :]
    return _last_bytes(re.sub(f"{_HIDDEN}+", MASK, text).strip())


def _drop_partial_secret(text: str, forms: list[str]) -> str:
    """Return the text without the beginning of a secret at its end."""
    lowered = [form.lower() for form in forms]
    for length in range(min(len(text), len(forms[0]) if forms else 0), 0, -1):
        end = text[-length:].lower()
        if any(form.startswith(end) for form in lowered):
            return text[:-length] + _HIDDEN
    return text


def _last_bytes(text: str) -> str:
    return text.encode("utf-8", "replace")[-SHOWN_OUTPUT_BYTES:].decode("utf-8", "ignore")


@functools.lru_cache(maxsize=16)
def _all_forms(secrets: frozenset[str]) -> list[str]:
    """Return all forms that a secret may have, the longest first."""
    forms = {form for secret in secrets if secret for form in (plain_text(secret.encode()), *_encoded_forms(secret)) if form}
    return sorted(forms, key=lambda form: (-len(form), form))


def _encoded_forms(secret: str) -> list[str]:
    quoted = [urllib.parse.quote(secret, safe=safe) for safe in ("", "/", "/:@!$&'()*+,;=~")] + [urllib.parse.quote_plus(secret)]
    escaped = [json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1], ascii(secret)[1:-1], repr(secret.encode())[2:-1]]
    shell = [shlex.quote(secret), secret.replace("'", "'\"'\"'"), secret.replace("'", "'\\''"), re.sub(r"([^A-Za-z0-9_.-])", r"\\\1", secret)]
    marked_up = [html.escape(secret), html.escape(secret, quote=False), secret.replace("&", "&amp;").replace("'", "&apos;").replace('"', "&quot;")]
    forms = [*quoted, *escaped, *shell, *marked_up, secret.encode().hex(), secret.encode().hex(" "), secret.encode().hex(":"), *_base64_forms(secret.encode())]
    return [form for form in forms if len(form) >= _SHORTEST_ENCODED]


def _base64_forms(secret: bytes) -> list[str]:
    """Return the characters that the secret alone decides, wherever it begins in an encoded text (as in C(user:password))."""
    forms = []
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + secret).rstrip(b"=").decode()
        first = (before * 8 + 5) // 6
        last = (before + len(secret)) * 8 // 6
        forms += [encoded[first:last], encoded[first:last].replace("+", "-").replace("/", "_")]
    return forms


KEPT_OUTPUT_BYTES = 64 * 1024
_PIECE_BYTES = 64 * 1024
_TICK_SECONDS = 0.05
_REAP_SECONDS = 5
_PIECES_AFTER_THE_END = 64


@dataclass
class ProgramResult:
    """The end of a program.

    :arg exit_code: None when it was killed at the limit; negative for a signal from another process.
    :arg output: the end of its output, both streams.
    :arg torn: whether the beginning of the output is missing.
    """

    exit_code: int | None = None
    output: bytes = field(default=b"", repr=False)
    torn: bool = False

    def add(self, piece: bytes) -> None:
        """Add its next output."""
        kept = self.output + piece
        self.torn = self.torn or len(kept) > KEPT_OUTPUT_BYTES
        self.output = kept[-KEPT_OUTPUT_BYTES:]


def run_program(program: str, stdin: bytes, limit_seconds: float, arguments: t.Sequence[str] = ()) -> ProgramResult:
    """Run a program with an environment of its own; at the limit it and its process group are killed.

    Remaining processes of its group are killed at its end too; processes that have left the group are not waited for. Raises C(OSError) if it cannot start.
    """
    deadline = time.monotonic() + limit_seconds
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [program, *arguments], stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, cwd="/", env=_agent_environment(), start_new_session=True
    )
    finished = ProgramResult()
    try:
        with selectors.DefaultSelector() as selector:
            _exchange_data(process, selector, stdin, finished, deadline)
    finally:
        _end_process(process)
    return finished


def _agent_environment() -> dict[str, str]:
    """Return the environment of an agent: the path of programs, and the user's home for keys and known hosts."""
    return {"PATH": AGENT_SEARCH_PATH, "LC_ALL": "C", "HOME": os.path.expanduser("~")}


def _exchange_data(process: subprocess.Popen[bytes], selector: selectors.BaseSelector, stdin: bytes, finished: ProgramResult, deadline: float) -> None:
    """Write and read until the program has ended or the time is over."""
    source, sink = t.cast("t.IO[bytes]", process.stdout).fileno(), t.cast("t.IO[bytes]", process.stdin).fileno()
    os.set_blocking(source, False)
    os.set_blocking(sink, False)
    selector.register(source, selectors.EVENT_READ)
    selector.register(sink, selectors.EVENT_WRITE)
    while process.poll() is None and (left := deadline - time.monotonic()) > 0:
        if not selector.get_map():
            time.sleep(min(left, _TICK_SECONDS))
        for key, dummy in selector.select(min(left, _TICK_SECONDS)):
            if key.fd == source:
                _read_piece(selector, source, finished)
            else:
                stdin = _write_piece(process, selector, sink, stdin)
    finished.exit_code = process.poll()
    _kill_group(process)
    for dummy in range(_PIECES_AFTER_THE_END):
        if source not in selector.get_map() or not _read_piece(selector, source, finished):
            break


def _read_piece(selector: selectors.BaseSelector, source: int, finished: ProgramResult) -> bool:
    """Read one piece of output, if available."""
    try:
        piece = os.read(source, _PIECE_BYTES)
    except BlockingIOError:
        return False
    finished.add(piece)
    if not piece:
        selector.unregister(source)
    return bool(piece)


def _write_piece(process: subprocess.Popen[bytes], selector: selectors.BaseSelector, sink: int, stdin: bytes) -> bytes:
    """Write what fits and return the rest. A program that does not read its input is not an error."""
    try:
        stdin = stdin[os.write(sink, stdin) :]
    except BlockingIOError:
        return stdin
    except BrokenPipeError:
        stdin = b""
    if not stdin:
        selector.unregister(sink)
        t.cast("t.IO[bytes]", process.stdin).close()
    return stdin


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # No process is left, or only those of another user, which are not waited for.
        pass


def _end_process(process: subprocess.Popen[bytes]) -> None:
    _kill_group(process)
    for stream in (process.stdin, process.stdout):
        if stream and not stream.closed:
            stream.close()
    try:
        process.wait(_REAP_SECONDS)
    except subprocess.TimeoutExpired:
        pass


_EXIT_DONE, _EXIT_ON, _EXIT_OFF = 0, 0, 2
# "Status: OFF", "Chassis Power is off", {"PowerState": "Off"}; a list of actions in a usage text has no colon before its "off".
_POWER_TEXT = re.compile(r"""(?:status|power|state)["']?(?: +is +| *[:=] *)["'\[(]?(on|off)\b\W*$""", re.IGNORECASE | re.MULTILINE)


class FenceAction(enum.StrEnum):
    """The action of an agent. Reboot is not one: a rebooted host is not off. Only a maintenance run switches a host on."""

    OFF = "off"
    STATUS = "status"
    ON = "on"


# The actions that can be evidence that a host is off.
EVIDENCE_ACTIONS = (FenceAction.OFF, FenceAction.STATUS)


class PowerState(enum.Enum):
    """The power status of a host, as far as an agent can determine it."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class AgentReply:
    """The result of a call, without secrets.

    :arg exit_code: None when the agent was killed at its limit.
    :arg power: the result of a status; unknown after any other action.
    """

    action: FenceAction
    exit_code: int | None
    output: str
    power: PowerState = PowerState.UNKNOWN

    @property
    def done(self) -> bool:
        """Whether the agent reports success."""
        return self.exit_code == _EXIT_DONE

    def __str__(self) -> str:
        how = "was killed at its time limit" if self.exit_code is None else f"exited with {self.exit_code}"
        return f"{self.action.value} {how}" + (f" ({_one_line(self.output)})" if self.output else "")


def call_agent(device: FenceDevice, action: FenceAction, limit_seconds: float) -> AgentReply:
    """Call the agent for an action. Options go to its standard input only.

    Raises L(InvalidArgument) when it cannot be run at all.
    """
    try:
        finished = run_program(device.program, format_options(action.value, device.options), limit_seconds)
    except OSError as error:
        raise InvalidArgument(
            f"{VARIABLE} of {device.host}: {device.agent} cannot be run on the control node: {error.strerror}.",
            f"{device.host} was not fenced and nothing was started.",
        ) from error
    text = plain_text(finished.output)
    power = read_power(finished.exit_code, text) if action is FenceAction.STATUS else PowerState.UNKNOWN
    return AgentReply(action, finished.exit_code, redact_secrets(text, device.secrets(), finished.torn, finished.exit_code is None), power)


def read_power(exit_code: int | None, text: str) -> PowerState:
    """Return the meaning of a status.

    Exit code 2 means "off", but shells and option parsers also use it for errors: it counts only with the words (C(Status: OFF)).
    """
    says = {found.lower() for found in _POWER_TEXT.findall(text)}
    if exit_code == _EXIT_OFF and says == {"off"}:
        return PowerState.OFF
    if exit_code == _EXIT_ON and "off" not in says:
        return PowerState.ON
    return PowerState.UNKNOWN


def _one_line(text: str, most: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"... {line[-most:]}"
