# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Installs and removes the service that renews the lease of this host."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import typing as t

from .._archive import build_archive
from .._files import Content, create_file_once
from .._model.codec import encode
from .._model.errors import Internal, Unsafe
from .._systemd import (
    PROGRAM_FOLDER,
    UNIT_FOLDER,
    RestartNote,
    UnitChange,
    attempt_write,
    choose_interpreter,
    delete_files,
    has_content,
    install_file,
    is_linked,
    is_systemd_running,
    link_unit,
    not_runnable_error,
    run_systemctl,
    start_unit,
    try_program,
    warn_of_interpreter,
)
from .config import CONFIG_FILE, LeaseConfig
from .program import run_lease
from .renewal import explain_no_renewal
from .state import COUNT_FILE, STATE_FILE, read_reserved_count
from .watchdog import TESTED_FILE, read_watchdog

PROGRAM_FILE = f"{PROGRAM_FOLDER}/kvmfleet-lease.pyz"
SERVICE = "kvmfleet-lease.service"
UNIT_FILE = f"{UNIT_FOLDER}/{SERVICE}"
WANTS_LINK = f"{UNIT_FOLDER}/multi-user.target.wants/{SERVICE}"
TLS_FILES = {"ca_file": "etc/kvmfleet/lease-ca.pem", "cert_file": "etc/kvmfleet/lease-cert.pem", "key_file": "etc/kvmfleet/lease-key.pem"}
_CONFIG = CONFIG_FILE.lstrip("/")
_STATE = STATE_FILE.lstrip("/")
_MODE, _SECRET = 0o644, 0o600

NOT_RUN = "systemd does not run this host: the service of the lease is installed, but nothing runs it."
_UNTRIED = ("The program of the lease cannot be tried on this host", "The service was not changed.")
_UNWRITTEN = ("The service of the lease of this host cannot be written", "It may be installed in part.")
_NOT_STARTED = "The files of the service are in place, but systemd does not run it: this host has no lease."
_NOT_STOPPED = "Its files are still in place, and it may still renew the lease."


def install_lease(config: LeaseConfig, tls: t.Mapping[str, str], least_count: int = 0, root: str = "/", check_mode: bool = False) -> UnitChange:
    """Install the service, or bring it up to date. A running service is started anew only if something changed; the lease is kept over that.

    :arg config: its names of TLS files are set here.
    :arg tls: the contents of C(ca_file), C(cert_file) and C(key_file), as far as they are needed.
    :arg least_count: the number of the last renewal in etcd; used if the host has lost its own count.
    :raises Internal: the host cannot run the program; then nothing has changed that runs it.
    :raises Unsafe: the host could not renew its lease with another configuration than it has; then nothing has changed.
    """
    interpreter = choose_interpreter()
    contents = _list_contents(interpreter, _name_files(config, tls), tls)
    changes = [path for path, (content, mode) in contents.items() if not has_content(os.path.join(root, path), content, mode)]
    surplus = [path for name, path in TLS_FILES.items() if name not in tls and os.path.lexists(os.path.join(root, path))]
    if os.path.lexists(os.path.join(root, _CONFIG)) and not {_CONFIG, *TLS_FILES.values()}.isdisjoint([*changes, *surplus]):
        _require_renewable(config, tls)
    is_on, is_counted = is_linked(os.path.join(root, WANTS_LINK), SERVICE), _is_count_known(root)
    note = RestartNote(SERVICE, root)
    is_pending = note.exists
    if not check_mode:
        if root == "/" and (changes or surplus or is_pending or not is_on):
            attempt_write(lambda: _require_runnable(interpreter, contents[PROGRAM_FILE][0]), *_UNTRIED)
        if is_systemd_running(root) and (changes or surplus):
            attempt_write(note.write, *_UNWRITTEN)
        to_write, new_count = {path: contents[path] for path in changes}, None if is_counted else least_count
        attempt_write(lambda: _write_files(root, to_write, surplus, is_on, new_count), *_UNWRITTEN)
        if is_systemd_running(root):
            start_unit(note, _NOT_STARTED)
    files = [*changes, *surplus, *([] if is_on else [WANTS_LINK]), *([] if is_counted else [COUNT_FILE.lstrip("/")])]
    files += [note.path] if is_pending else []
    warnings = warn_of_interpreter(interpreter, "The program of the lease", "this host loses its lease, and a watchdog that is bound to it resets the host")
    return UnitChange(tuple(f"/{path}" for path in files), is_systemd_running(root), warnings)


def remove_lease(root: str = "/", check_mode: bool = False) -> UnitChange:
    """Remove the service and its configuration. The lease ends when its time is over; the host's count stays.

    Raises L(Unsafe) if a watchdog is bound to the lease: it would reset the host. Check mode assumes that it will have been unbound by then.
    """
    paths = (WANTS_LINK, UNIT_FILE, _CONFIG, *TLS_FILES.values(), PROGRAM_FILE, _STATE, TESTED_FILE)
    present = [path for path in paths if os.path.lexists(os.path.join(root, path))]
    watchdog = read_watchdog(root) if present and not check_mode else None
    if watchdog and watchdog.bound:
        raise Unsafe(
            f"{watchdog.device} of this host is bound to the lease, and would reset the host without it.", "Remove the watchdog first. Nothing was changed."
        )
    if present and not check_mode:
        if is_systemd_running(root) and UNIT_FILE in present:
            run_systemctl("stop", SERVICE, state=_NOT_STOPPED)
        attempt_write(lambda: delete_files(root, paths), *_UNWRITTEN)
        if is_systemd_running(root):
            run_systemctl("daemon-reload", state="The service is stopped and its files are removed.")
    return UnitChange(tuple(f"/{path}" for path in present), is_systemd_running(root))


def _require_renewable(config: LeaseConfig, tls: t.Mapping[str, str]) -> None:
    """Prove that the host can renew its lease with a new configuration: its watchdog resets a host that loses its lease while others have theirs."""
    with tempfile.TemporaryDirectory() as folder:
        paths: t.Dict[str, t.Any] = {name: os.path.join(folder, name) for name in tls}
        for name, content in tls.items():
            create_file_once(paths[name], content, _SECRET)
        why = explain_no_renewal(dataclasses.replace(config, **paths))
    if why:
        raise Unsafe(
            f"{config.name} could not renew its lease with the new configuration: {why}.",
            "Correct the user, the password, the files and the members of etcd. Nothing was changed: the host renews its lease as before.",
        )


def _name_files(config: LeaseConfig, tls: t.Mapping[str, str]) -> LeaseConfig:
    named: t.Dict[str, t.Any] = {name: f"/{path}" for name, path in TLS_FILES.items() if name in tls}
    return dataclasses.replace(config, **named)


def _list_contents(interpreter: str, config: LeaseConfig, tls: t.Mapping[str, str]) -> t.Dict[str, t.Tuple[Content, int]]:
    """Return path below the root: content and mode, in the order in which the files are written; no file refers to a later one."""
    return {
        PROGRAM_FILE: (build_archive(run_lease), _MODE),
        **{path: (tls[name], _SECRET) for name, path in TLS_FILES.items() if name in tls},
        _CONFIG: (json.dumps(encode(config), indent=2) + "\n", _SECRET),
        UNIT_FILE: (_service_unit(interpreter), _MODE),
    }


def _service_unit(interpreter: str) -> str:
    """Return the unit. It is not stopped at a shutdown, but ends with the last processes: guests may be shut down for longer than a lease."""
    return f"""\
[Unit]
Description=Renew the lease of this host in the ledger of the fleet
DefaultDependencies=no
Requires=sysinit.target
After=sysinit.target network.target
StartLimitIntervalSec=0

[Service]
ExecStart={interpreter} -I /{PROGRAM_FILE} serve
Restart=always
RestartSec=1
Nice=-10
OOMScoreAdjust=-900
TimeoutStopSec=5

[Install]
WantedBy=multi-user.target
"""


def _is_count_known(root: str) -> bool:
    """Whether the host knows how far its count is used up. A file that is damaged counts as lost."""
    try:
        return read_reserved_count(os.path.join(root, COUNT_FILE.lstrip("/"))) is not None
    except Internal:
        return False


def _write_files(root: str, contents: t.Mapping[str, t.Tuple[Content, int]], surplus: t.Sequence[str], is_on: bool, least_count: t.Optional[int]) -> None:
    """:arg least_count: written as the count of the host; null for a host that knows its own."""
    if least_count is not None:
        install_file(os.path.join(root, COUNT_FILE.lstrip("/")), f"{least_count}\n", _MODE)
    for path, (content, mode) in contents.items():
        install_file(os.path.join(root, path), content, mode)
    delete_files(root, surplus)
    if not is_on:
        link_unit(os.path.join(root, WANTS_LINK), SERVICE)


def _require_runnable(interpreter: str, archive: Content) -> None:
    """Prove that the host can run the program, before anything depends on it; it ends with its usage."""
    done = try_program(interpreter, archive)
    if not done.stderr.startswith(b"usage: "):
        raise not_runnable_error("The program of the lease", done, "The service was not changed.")
