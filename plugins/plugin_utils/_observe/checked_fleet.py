# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The result of the last fleet check, as a control node keeps it for its status, its report and its metrics."""

from __future__ import annotations

import contextlib
import json
import os
import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ShapeError, decode, encode

from .._ledger.file.folder import Folder
from .._ledger.locate import state_path

SCHEMA = 1
# The verdicts on the loss of hosts, as a fleet check returns them.
_CAN = "can"
VERDICTS = (_CAN, "unknown", "cannot")
_FOLDER = "fleet-check"


@dataclass(frozen=True)
class CheckedFleet:
    """The last check of the fleet of a ledger.

    :arg at: when it was made, RFC 3339, UTC.
    :arg sets: the number of sets of C(hosts_lost) hosts by verdict; C(hosts) is the verdict on each host alone.
    :arg findings: the number of findings by kind.
    :arg attention: the findings, each a sentence.
    :arg lines: the check line by line.
    """

    schema: int
    ledger_id: str
    at: str
    met: bool
    hosts_lost: int
    sets: Mapping[str, int]
    hosts: Mapping[str, str]
    findings: Mapping[str, int]
    attention: tuple[str, ...]
    lines: tuple[str, ...]


def keep_check(check: CheckedFleet) -> str | None:
    """Keep the check for the current user; return why that is not possible."""
    folder = state_path(_FOLDER)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with Folder.open_path(folder) as root:
            root.write_file(_file_name(check.ledger_id), json.dumps(encode(check), indent=1).encode())
    except OSError as error:
        return f"The result of the check cannot be stored in {folder}: {error.strerror or error}. Status, report and metrics do not show it."
    return None


def read_check(ledger_id: str) -> t.Optional[CheckedFleet]:
    """Return the last check of that ledger's fleet; None if there is none on this control node, or none that this version can read."""
    with contextlib.suppress(OSError, ValueError, ShapeError), Folder.open_path(state_path(_FOLDER)) as root:
        saved = decode(CheckedFleet, json.loads(root.read_file(_file_name(ledger_id))))
        return saved if saved.schema == SCHEMA and saved.ledger_id == ledger_id else None
    return None


def check_line(check: CheckedFleet) -> str:
    """Return the result as one line."""
    what = "any host" if check.hosts_lost == 1 else f"any {check.hosts_lost} hosts"
    sets = ", ".join(f"{count} {verdict}" for verdict, count in check.sets.items() if count)
    answer = f"can lose {what}" if set(check.hosts.values()) <= {_CAN} and not any(count for verdict, count in check.sets.items() if verdict != _CAN) else sets
    findings = ", ".join(f"{count} {kind}" for kind, count in check.findings.items()) or "no findings"
    return f"{_time_text(check.at)}: {answer} ({findings})"


def attention_line(check: CheckedFleet) -> str:
    """Return what needs a person; empty if the fleet is as it should be."""
    if check.met:
        return ""
    first = check.attention[0].rstrip(".") if check.attention else "the fleet is not as it should be"
    more = f" (and {len(check.attention) - 1} more)" if len(check.attention) > 1 else ""
    return f"Fleet check of {_time_text(check.at)}: {first}{more}. To check again: kvmfleet.migration.fleet_check"


def _time_text(at: str) -> str:
    return f"{at[:16].replace('T', ' ')} UTC"


def _file_name(ledger_id: str) -> str:
    return f"{ledger_id}.json"
