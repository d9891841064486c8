# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The story whose documents are the corpus, told on hosts of the lab. Started by the package itself, see C(__main__)."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import sys
import time
import traceback
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.golden import alone, answers, evacuations, later, moves, on_etcd
from ansible_collections.kvmfleet.migration.tests.golden.digests import digests
from ansible_collections.kvmfleet.migration.tests.golden.stage import PREFIX, Document, Stage
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import hooked_lab

BETWEEN = "write migrations"


SCENES: t.Tuple[t.Callable[[Stage], t.Any], ...] = (
    on_etcd.tell,
    moves.completed_and_forced,
    moves.timed_out_and_aborted,
    moves.preparing,
    moves.in_post_copy,
    moves.policies,
    moves.taken_over,
    moves.failed,
    moves.foreign,
    evacuations.evacuated_and_recovered,
    evacuations.trusted,
    evacuations.put_aside,
    evacuations.given_up_for_a_newer_one,
    moves.waiting,
    moves.stalled,
    moves.overrun,
    moves.controller_lost,
    evacuations.drained,
    moves.memory_lost_and_settled,
    moves.memory_lost,
    evacuations.lost_for_good,
)
TRIES = 2


def main(home: pathlib.Path, out: pathlib.Path) -> int:
    """Tell the story and write the corpus; return how many scenes are missing in it."""
    with hooked_lab(PREFIX, 3) as lab:
        stage = Stage(lab, home / "control", out)
        # What real hosts write of the same takes its place.
        alone.write(out)
        missing = [scene.__name__ for scene in SCENES if not _told(stage, scene)]
        _keep_ledger(stage)
    _keep_wire(stage)
    later.write_ledger(out / "ledgers/unknown-keys")
    later.write_others(out, out / "unknown-keys")
    for ledger in ("file", "courses", "unknown-keys", "moved-to-etcd"):
        _tidy(out / "ledgers" / ledger)
    stage.keep_text("answers.json", json.dumps(answers.of(out), indent=1, sort_keys=True) + "\n")
    print(f"missing: {', '.join(missing) or 'nothing'}", flush=True)
    return len(missing)


def _told(stage: Stage, scene: t.Callable[[Stage], t.Any]) -> bool:
    """Tell one scene, once more where it went another way: real hosts on a busy machine can be late. What it left in the ledger stays, it is real."""
    for _time in range(TRIES):
        begun = time.monotonic()
        try:
            scene(stage)
        except Exception:  # noqa: BLE001 - told, and the other scenes are worth having
            print(traceback.format_exc(), flush=True)
            stage.mend()
        else:
            print(f"{scene.__name__}: {time.monotonic() - begun:.0f} s", flush=True)
            return True
    return False


def _keep_ledger(stage: Stage) -> None:
    """Keep the ledger in which something is open, and in which a process died between two writes; then what replaying it comes to."""
    path = stage.site.path
    assert stage.site.ledger.verify_audit() == []
    unsettled = list(stage.site.ledger.list_records(statuses=[s.ERROR, s.DONE]))
    _die_between_two_writes(path, min(unsettled, key=lambda record: (record.status != s.ERROR, record.created_at)))
    stage.keep_ledger(path, "file")
    ended = FileLedger(str(path))
    assert ended.verify_audit() == []
    stage.keep_text("ledgers/file-replayed.json", json.dumps(digests(path), indent=1, sort_keys=True) + "\n")


def _die_between_two_writes(path: pathlib.Path, record: MoveRecord) -> None:
    """Close a record in a process that is killed when the closed record is written, and the open one not yet removed."""

    def step(name: str) -> None:
        if name == BETWEEN:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        ledger = FileLedger(str(path), step=step)
        stored = ledger.read_record(record.record_id)
        changed = stored.record.advance(s.FAILED if record.status == s.ERROR else s.COMPLETED, "root@control pid 1", "Both hosts were looked at.")
        ledger.update_record(stored, changed)
        os._exit(1)
    _pid, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), status


def _tidy(folder: pathlib.Path) -> None:
    """Remove what is empty, which a repository does not keep and a ledger makes anew."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and not path.stat().st_size:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    shutil.rmtree(folder / "locks", ignore_errors=True)


def _keep_wire(stage: Stage) -> None:
    """Keep what the two halves said to each other: all start orders, the first call of each phase, all decisions about moves, plans of evacuations."""
    phases = stage.recorder.read("phase")
    starts = [one["work"] for one in phases if one["module"] == "live_migrate" and one["phase"] == "start"]
    stage.keep_lines("wire/orders.jsonl", _different([order for start in starts for order in start["orders"]], ("adopt", "waits")))
    first: t.Dict[str, Document] = {}
    for one in phases:
        first.setdefault(f"{one['module']}-{one['phase']}", one)
    for name, one in sorted(first.items()):
        stage.keep_text(f"wire/phases/{name}.json", json.dumps(one, sort_keys=True) + "\n")
    decisions = stage.recorder.read("decision")
    stage.keep_lines("wire/decisions.jsonl", _one_of_each(decisions))
    tasks = [one for one in stage.recorder.read("task") if one["module"] == "evacuate"]
    stage.keep_lines("plans/evacuations.jsonl", tasks)


def _different(orders: t.Sequence[Document], keys: t.Sequence[str]) -> t.List[Document]:
    """Return three orders of each kind."""
    kinds: t.Dict[t.Any, t.List[Document]] = {}
    for order in orders:
        kinds.setdefault(tuple(bool(order.get(key)) for key in keys), []).append(order)
    return [order for found in kinds.values() for order in found[:3]]


def _one_of_each(decisions: t.Sequence[Document]) -> t.List[Document]:
    found: t.Dict[str, Document] = {}
    for one in decisions:
        found.setdefault(one["decision"]["is"], one)
    return list(found.values())


if __name__ == "__main__":
    sys.exit(1 if main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])) else 0)
