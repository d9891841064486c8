# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input: each gets a message that names the thing, an error code, and nothing has moved."""

from __future__ import annotations

import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Result
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

SENTRY = "sentry"


@pytest.fixture(scope="module")
def sentry(lab: Lab) -> t.Iterator[str]:
    """A guest that nothing here may move."""
    lab("guest", SENTRY, "--host", lab.host(1), "--mib", "32")
    yield SENTRY
    lab("rmguest", SENTRY)


@pytest.fixture
def nothing_moves(lab: Lab, control: Control, sentry: str) -> t.Iterator[None]:
    yield
    check_that_nothing_moved(lab, control)


def check_that_nothing_moved(lab: Lab, control: Control) -> None:
    check_that_no_job_began(lab)
    if control.path.is_dir():
        assert control.records() == []


CASES: dict[str, tuple[dict[str, t.Any], str, str]] = {
    "an unknown domain": ({"name": "nobody"}, "not_found", "nobody"),
    "an unknown UUID": ({"name": None, "uuid": "6f2b6f7e-3f0e-4a52-9d6a-0d5f4a3f1c77"}, "not_found", "6f2b6f7e"),
    "no UUID": ({"name": None, "uuid": "12"}, "invalid_argument", "'12'"),
    "neither name nor UUID": ({"name": None}, "invalid_argument", "name"),
    "both name and UUID": ({"uuid": "6f2b6f7e-3f0e-4a52-9d6a-0d5f4a3f1c77"}, "invalid_argument", "name"),
    "an empty name": ({"name": ""}, "invalid_argument", "name"),
    "a path for a name": ({"name": "../../etc/passwd"}, "invalid_argument", "../../etc/passwd"),
    "a newline in a name": ({"name": "web\n1"}, "invalid_argument", "web"),
    "blanks and quotes": ({"name": 'it\'s "web" $(reboot) 1'}, "not_found", "$(reboot)"),
    "an option for a name": ({"name": "--help"}, "not_found", "--help"),
    "a destination that no name server knows": ({"destination": "no-such-host.invalid"}, "unreachable", "no-such-host.invalid"),
    "the source by its name": ({"destination": "SOURCE"}, "invalid_argument", "SOURCE"),
    "a URI of nothing": ({"destination_uri": "http//nothing"}, "invalid_argument", "http//nothing"),
    "a URI with a newline": ({"destination_uri": "qemu+tcp://OTHER/system\n"}, "invalid_argument", "destination_uri"),
    "a URI of another hypervisor": ({"destination_uri": "xen+tcp://OTHER/system"}, "invalid_argument", "xen"),
    "a source elsewhere": ({"uri": "qemu+tcp://OTHER/system"}, "not_supported", "qemu+tcp://OTHER/system"),
    "a bad memory URI": ({"migrate_uri": "ftp://OTHER"}, "invalid_argument", "migrate_uri"),
    "a negative timeout": ({"timeout_seconds": -1}, "invalid_argument", "timeout_seconds"),
    "a timeout of ages": ({"timeout_seconds": 10**18}, "invalid_argument", "timeout_seconds"),
    "a word for a number": ({"timeout_seconds": "soon"}, "invalid_argument", "timeout_seconds"),
    "an option that is none": ({"on_timeout": "explode"}, "invalid_argument", "on_timeout"),
    "no downtime": ({"downtime_ms": 0}, "invalid_argument", "downtime_ms"),
    "a downtime of ages": ({"downtime_ms": 2_000_001}, "invalid_argument", "downtime_ms"),
    "no steps": ({"downtime_steps": 0}, "invalid_argument", "downtime_steps"),
    "a negative stall": ({"stall_seconds": -5}, "invalid_argument", "stall_seconds"),
    "a negative cap": ({"bandwidth_mib": -1}, "invalid_argument", "bandwidth_mib"),
    "a cap beyond numbers": ({"bandwidth_mib": 2**70}, "invalid_argument", "bandwidth_mib"),
    "no connections": ({"parallel_connections": 0}, "invalid_argument", "parallel_connections"),
    "too many connections": ({"parallel_connections": 100_000}, "invalid_argument", "parallel_connections"),
    "parallel of nothing": ({"parallel": 0}, "invalid_argument", "parallel is 0"),
    "parallel below nothing": ({"parallel": -1}, "invalid_argument", "parallel is -1"),
    "parallel in words": ({"parallel": "many"}, "invalid_argument", "parallel is 'many'"),
    "flags that exclude each other": ({"compression": "xbzrle", "parallel_connections": 2}, "not_supported", "xbzrle"),
    "moves beside a name": ({"moves": [{"name": "web"}]}, "invalid_argument", "moves"),
    "a ledger of no kind": ({"ledger": "redis://here"}, "invalid_argument", "redis://here"),
}


def with_hosts(lab: Lab, text: str) -> str:
    return text.replace("SOURCE", lab.host(1)).replace("OTHER", lab.host(2))


def arguments(lab: Lab, case: str) -> dict[str, t.Any]:
    given = {key: with_hosts(lab, value) if isinstance(value, str) else value for key, value in CASES[case][0].items()}
    return {"name": SENTRY, "destination": lab.host(2), **given}


@pytest.fixture(scope="module")
def answers(lab: Lab, sentry: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """What became of all cases, each a task of one run."""
    control = Control(lab, tmp_path_factory.mktemp("answers"))
    results = control.play(1, [("live_migrate", arguments(lab, case)) for case in CASES])
    check_that_nothing_moved(lab, control)
    return dict(zip(CASES, results, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_with_a_message_and_an_error_code(lab: Lab, answers: dict[str, Result], case: str) -> None:
    dummy, code, named = CASES[case]
    answer = answers[case]
    assert (answer["changed"], answer["error_code"]) == (False, code), answer
    assert with_hosts(lab, named) in answer["msg"]
    assert "Traceback" not in str(answer)


@pytest.mark.long
def test_a_host_of_the_inventory_that_does_not_answer_is_unreachable_and_recorded(lab: Lab, control: Control, sentry: str) -> None:
    done = control.task(1, "live_migrate", {"name": sentry, "destination_uri": f"qemu+tcp://{lab.host(2)}:9/system"})
    assert done.refused() == "unreachable"
    assert lab.host(2) in done.msg
    assert control.only_record() == done.record
    assert done.ended() == ("conflict", None)
    assert lab.places(sentry) == {1: "running"}
    assert lab.state_file(lab.uuid(sentry)) is None


@pytest.mark.long
@pytest.mark.usefixtures("nothing_moves")
def test_the_source_under_another_name_is_refused_as_destination(lab: Lab, control: Control) -> None:
    address = lab.rows()[lab.host(1)]["address"]
    done = control.task(1, "live_migrate", {"name": SENTRY, "destination": address})
    assert done.refused() == "invalid_argument"
    assert address in done.msg
    assert "UUID" in done.msg


def check_that_no_job_began(lab: Lab) -> None:
    assert lab.places(SENTRY) == {1: "running"}
    assert lab.state_file(lab.uuid(SENTRY)) is None


@pytest.mark.long
@pytest.mark.usefixtures("sentry")
def test_another_domain_with_the_same_name_at_the_destination_is_a_conflict(lab: Lab, control: Control) -> None:
    xml = lab.virsh(1, "dumpxml", "--inactive", SENTRY).replace(lab.uuid(SENTRY), "6f2b6f7e-3f0e-4a52-9d6a-0d5f4a3f1c77")
    lab("virsh", lab.host(2), "define", "/dev/stdin", stdin=xml)
    try:
        done = control.move(SENTRY)
        assert done.refused() == "conflict"
        assert "6f2b6f7e" in done.msg
    finally:
        lab.virsh(2, "undefine", SENTRY)
    check_that_no_job_began(lab)
    assert control.only_record()["status"] == "conflict"


@pytest.mark.usefixtures("nothing_moves")
def test_a_file_in_place_of_the_ledger_folder_is_refused(control: Control) -> None:
    control.path.write_text("a shopping list")
    done = control.move(SENTRY)
    assert done.refused() in ("forbidden", "invalid_argument")
    assert str(control.path) in done.msg
    assert control.path.read_text() == "a shopping list"


@pytest.mark.usefixtures("nothing_moves")
def test_a_ledger_on_a_read_only_file_system_is_refused(control: Control) -> None:
    folder = control.folder / "read-only"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1m", "none", str(folder)], check=True)
    try:
        done = control.move(SENTRY, ledger=str(folder / "ledger"))
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert done.refused() == "forbidden"
    assert str(folder) in done.msg


@pytest.mark.usefixtures("nothing_moves")
def test_the_task_keyword_async_is_refused(control: Control) -> None:
    done = control.move(SENTRY, 2, "-B", "60", "-P", "1")
    assert done.refused() == "invalid_argument"
    assert "async" in done.msg


@pytest.mark.usefixtures("nothing_moves")
def test_a_move_without_root_is_forbidden(lab: Lab, control: Control) -> None:
    operator = Control(lab, control.folder, "--user", "operator")
    done = operator.move(SENTRY)
    assert done.refused() == "forbidden"
    assert "become" in done.msg
