# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lookup ledger, in real plays: always a list, variables with templates, nothing in a name is templated, errors are sentences."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import LedgerSettings
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger

LOOKUP = "kvmfleet.migration.ledger"
STRANGE = "web2 {{ 1 + 1 }}"


def _collections() -> str:
    """Return the folder that holds ansible_collections."""
    here = Path(__file__).resolve()
    return str(next(parent.parent for parent in here.parents if parent.name == "ansible_collections"))


def play(tmp_path: Path, tasks: list[dict[str, t.Any]], variables: dict[str, t.Any]) -> subprocess.CompletedProcess[str]:
    """Run the tasks on localhost in a process of its own."""
    playbook = tmp_path / "play.yml"
    variables = {"ansible_python_interpreter": sys.executable, **variables}
    playbook.write_text(json.dumps([{"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables, "tasks": tasks}]))
    return run_playbook(tmp_path, "-i", "localhost,", str(playbook))


def run_playbook(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook in a process of its own, at home in that folder, with more environment variables."""
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": _collections(), "HOME": str(tmp_path), "ANSIBLE_NOCOLOR": "1", "COLUMNS": "1000", **variables}
    environment.pop("XDG_STATE_HOME", None)
    argv = [sys.executable, "-m", "ansible", "playbook", *arguments]
    return subprocess.run(argv, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)


def shown(tmp_path: Path, expressions: dict[str, str], variables: dict[str, t.Any]) -> tuple[dict[str, t.Any], str]:
    """Return what the expressions come to in a play, and all that the play wrote."""
    result = tmp_path / "result.json"
    content = "{{ {" + ", ".join(f"'{name}': {expression}" for name, expression in expressions.items()) + "} | to_json }}"
    done = play(tmp_path, [{"ansible.builtin.copy": {"content": content, "dest": str(result), "mode": "0600"}}], variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(result.read_text()), done.stdout + done.stderr


@pytest.fixture
def moves(tmp_path: Path) -> list[dict[str, t.Any]]:
    """A failed move of web1 and an accepted one of a domain with a strange name, in the folder 'ledger'."""
    ledger = open_ledger(str(tmp_path / "ledger"))
    records = []
    for number, name in enumerate(("web1", STRANGE), 1):
        domain = DomainRef(f"55555555-0000-4000-8000-00000000000{number}", name)
        records.append(ledger.open_record(new_record(s.LIVE_MIGRATION, domain, HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "me")))
        # Records of one millisecond are sorted by their random IDs.
        time.sleep(0.002)
    failed = ledger.update_record(records[0], records[0].record.advance(s.FAILED, "me"))
    return [encode(one.record) for one in (failed, records[1])]


def test_the_lookup_always_returns_a_list(tmp_path: Path, moves: list[dict[str, t.Any]]) -> None:
    got, output = shown(
        tmp_path,
        {
            "all": f"lookup('{LOOKUP}', 'migrations')",
            "one": f"lookup('{LOOKUP}', 'migrations', status='failed')",
            "none": f"lookup('{LOOKUP}', 'migrations', status=['running'])",
            "texts": f"lookup('{LOOKUP}', 'migrations', query='[].domain.name')",
            "a_text": f"lookup('{LOOKUP}', 'migrations', query='[0].domain.name')",
            "two_terms": f"lookup('{LOOKUP}', 'evacuations', 'domains') | map('length')",
            "asked_for_list": f"query('{LOOKUP}', 'migrations') | first",
            "filtered": f"lookup('{LOOKUP}', 'migrations') | kvmfleet.migration.ledger_query(\"[?status=='failed'].domain.name\")",
        },
        {"base": str(tmp_path), "kvmfleet_ledger": "{{ base }}/ledger"},
    )
    assert got["all"] == got["asked_for_list"] == moves
    assert got["one"] == moves[:1]
    assert got["none"] == []
    assert got["texts"] == ["web1", STRANGE]
    assert got["a_text"] == got["filtered"] == ["web1"]
    assert list(got["two_terms"]) == [0, 2]
    assert "[WARNING]" not in output


def test_a_missing_ledger_is_read_as_empty_and_not_created(tmp_path: Path) -> None:
    got, output = shown(tmp_path, {"default": f"lookup('{LOOKUP}', 'migrations')"}, {})
    assert got == {"default": []}
    assert f"There is no ledger at {tmp_path}/.local/state/kvmfleet/ledger" in " ".join(output.split())
    assert not (tmp_path / ".local").exists()


def test_a_damaged_file_is_a_warning(tmp_path: Path, moves: list[dict[str, t.Any]]) -> None:
    (tmp_path / "ledger/migrations/open" / f"{moves[1]['id']}.json").write_text("{")
    got, output = shown(tmp_path, {"all": f"lookup('{LOOKUP}', 'migrations', ledger='{tmp_path}/ledger')"}, {})
    assert got["all"] == moves[:1]
    assert "It was moved to" in output


def test_a_list_that_may_be_incomplete_is_a_warning(tmp_path: Path, moves: list[dict[str, t.Any]]) -> None:
    ledger = open_ledger(str(tmp_path / "ledger"))
    note = {"to": "/srv/archive", "until": "2026-01-01T00:00:00.000Z"}
    ledger.put_settings(LedgerSettings(ledger.ledger_id, True, archives=(note,)), None)
    _got, output = shown(tmp_path, {"all": f"lookup('{LOOKUP}', 'migrations', ledger='{tmp_path}/ledger')"}, {})
    assert "Records from before 2026-01-01T00:00:00.000Z may be in an archive, which is not read here: /srv/archive." in " ".join(output.split())
    _got, output = shown(tmp_path, {"new": f"lookup('{LOOKUP}', 'migrations', since='2026-01-01', ledger='{tmp_path}/ledger')"}, {})
    assert "may be in an archive" not in output


def test_errors_of_the_lookup_are_clear_messages(tmp_path: Path) -> None:
    calls = {
        f"lookup('{LOOKUP}', 'guests')": "The ledger has no 'guests'.",
        f"lookup('{LOOKUP}', 'migrations', query='[?')": "Failed to run the JMESPath query '[?'",
        f"lookup('{LOOKUP}', 'hosts', since='2024-01-01')": "'since' cannot be used with hosts.",
        f"lookup('{LOOKUP}', 'migrations', ledger='/dev/null')": "Failed to use the ledger /dev/null: Not a directory.",
        f"lookup('{LOOKUP}', 'migrations', ledger='etcd://127.0.0.1:2379')": "names no prefix for its keys.",
    }
    tasks = [{"ansible.builtin.debug": {"msg": "{{ " + call + " }}"}, "ignore_errors": True} for call in calls]
    done = play(tmp_path, tasks, {})
    failures = [line for line in done.stdout.splitlines() if line.startswith("fatal:")]
    assert len(failures) == len(calls), done.stdout + done.stderr
    for failure, sentence in zip(failures, calls.values(), strict=True):
        assert sentence in failure
        assert failure.count(sentence) == 1
