# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Binding the watchdog of a host in a tree without systemd; and the test itself, which a shell runs."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import watchdog, watchdog_install
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.state import LeaseState
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.watchdog_install import WatchdogOptions
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, InvalidState, KvmfleetError, NotSupported

PROGRAM = "usr/local/lib/kvmfleet/kvmfleet-lease.pyz"
FILES = (*watchdog.MASKED_UNITS, watchdog.TEST_FILE, watchdog.CONFIG_FILE, watchdog_install.UNIT_FILE, watchdog_install.WANTS_LINK)
ANY = WatchdogOptions(None, 10)


class Tree:
    """The files of a host that has the daemon and one hardware watchdog."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.write(watchdog_install.DAEMON, "")
        self.add_device("watchdog0", "iTCO_wdt")

    def write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)

    def add_device(self, name: str, identity: str, **attributes: str) -> None:
        for key, value in {"identity": identity, "nowayout": "0", "min_timeout": "2", "max_timeout": "613", "state": "inactive", **attributes}.items():
            self.write(f"{watchdog.CLASS_FOLDER}/{name}/{key}", f"{value}\n")

    def hold(self, process: int, command: str, device: str = "/dev/watchdog0") -> None:
        self.write(f"proc/{process}/cmdline", command.replace(" ", "\0") + "\0")
        self.write(f"proc/{process}/comm", command.split("/")[-1] + "\n")
        (self.path / f"proc/{process}/fd").mkdir()
        (self.path / f"proc/{process}/fd/4").symlink_to(device)

    def install(self, options: WatchdogOptions = ANY, check: bool = False) -> tuple[str, ...]:
        return watchdog_install.install_watchdog(options, "/usr/bin/python3", PROGRAM, str(self.path), check).files

    def unbind(self, check: bool = False) -> watchdog_install.WatchdogChange:
        return watchdog_install.unbind_watchdog(str(self.path), check)

    def list_there(self) -> list[str]:
        return [name for name in FILES if os.path.lexists(self.path / name)]


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Tree:
    return Tree(tmp_path)


def test_binding_twice_changes_nothing_the_second_time(tree: Tree) -> None:
    assert tree.install(check=True) == tuple(f"/{name}" for name in FILES)
    assert tree.list_there() == []
    assert tree.install() == tuple(f"/{name}" for name in FILES)
    assert tree.list_there() == list(FILES)
    assert tree.install() == ()
    assert all(watchdog.is_masked(str(tree.path), unit) for unit in watchdog.MASKED_UNITS)
    assert os.access(tree.path / watchdog.TEST_FILE, os.X_OK)


@pytest.mark.parametrize("first", range(len(FILES)))
def test_a_binding_that_died_between_two_files_is_completed(tree: Tree, first: int) -> None:
    """The files are written in the order of FILES: those from the first missing one on are written by the next run."""
    tree.install()
    for name in FILES[first:]:
        (tree.path / name).unlink()
    assert tree.install() == tuple(f"/{name}" for name in FILES[first:])
    assert tree.list_there() == list(FILES)


def test_the_daemon_gets_what_was_chosen(tree: Tree) -> None:
    tree.add_device("watchdog1", "Software Watchdog")
    tree.install(WatchdogOptions(None, 30))
    options = watchdog.read_config(str(tree.path))
    chosen = {key: options[key] for key in ("watchdog-device", "watchdog-timeout", "interval", "test-directory", "admin", "retry-timeout")}
    folder = f"/{watchdog.TEST_FOLDER}"
    assert list(chosen.values()) == ["/dev/watchdog0", "30", "6", folder, "", "0"]
    assert tree.install(WatchdogOptions("/dev/watchdog0", 10)) == (f"/{watchdog.CONFIG_FILE}",)


def test_a_unit_of_the_distribution_that_was_enabled_is_masked(tree: Tree) -> None:
    unit = tree.path / watchdog.MASKED_UNITS[0]
    unit.parent.mkdir(parents=True)
    unit.symlink_to("/lib/systemd/system/watchdog.service")
    tree.install()
    assert os.readlink(unit) == "/dev/null"


def _no_device(tree: Tree) -> None:
    for file in (tree.path / watchdog.CLASS_FOLDER / "watchdog0").iterdir():
        file.unlink()
    (tree.path / watchdog.CLASS_FOLDER / "watchdog0").rmdir()


def _only_softdog(tree: Tree) -> None:
    tree.add_device("watchdog0", "Software Watchdog")


def _without_attributes(tree: Tree) -> None:
    """A kernel without CONFIG_WATCHDOG_SYSFS, as that of Raspberry Pi OS."""
    for name in ("identity", "nowayout", "min_timeout", "max_timeout", "state"):
        (tree.path / watchdog.CLASS_FOLDER / "watchdog0" / name).unlink()


def _fixed_nowayout(tree: Tree) -> None:
    (tree.path / watchdog.CLASS_FOLDER / "watchdog0/nowayout").chmod(0o444)


def _own_unit(tree: Tree) -> None:
    tree.write(watchdog.MASKED_UNITS[0], "[Service]\nExecStart=/usr/local/sbin/watchdog\n")


@pytest.mark.parametrize(
    ("prepare", "options", "error", "words"),
    [
        (_no_device, ANY, NotSupported, "no hardware watchdog: /sys/class/watchdog is empty"),
        (_only_softdog, ANY, NotSupported, "it has only softdog"),
        (_only_softdog, WatchdogOptions("/dev/watchdog0", 10), NotSupported, "/dev/watchdog0 is softdog"),
        (_without_attributes, ANY, NotSupported, "its kernel does not show what /dev/watchdog0 is. Use a kernel with CONFIG_WATCHDOG_SYSFS"),
        (_without_attributes, WatchdogOptions("/dev/watchdog0", 10), NotSupported, "does not show what /dev/watchdog0 is"),
        (lambda tree: None, WatchdogOptions("/dev/watchdog3", 10), NotSupported, "no watchdog /dev/watchdog3: it has /dev/watchdog0"),
        (lambda tree: tree.add_device("watchdog1", "hpwdt"), ANY, InvalidState, "several hardware watchdogs: /dev/watchdog0, /dev/watchdog1"),
        (lambda tree: (tree.path / watchdog_install.DAEMON).unlink(), ANY, InvalidState, "Install the package watchdog"),
        (_fixed_nowayout, ANY, NotSupported, "nowayout=1"),
        (lambda tree: tree.add_device("watchdog0", "short", max_timeout="8"), ANY, NotSupported, "takes 2 to 8 seconds, and 10"),
        (lambda tree: tree.add_device("watchdog0", "long", min_timeout="11"), ANY, NotSupported, "takes 11 to 613 seconds, and 10"),
        (lambda tree: tree.hold(1, "/sbin/init"), ANY, InvalidState, r"in use by process 1 \(init\)"),
        (lambda tree: tree.hold(99, "/usr/sbin/sbd"), ANY, InvalidState, r"in use by process 99 \(sbd\)"),
        (lambda tree: tree.hold(99, "/usr/sbin/sbd", "/dev/watchdog"), ANY, InvalidState, r"in use by process 99 \(sbd\)"),
        (_own_unit, ANY, InvalidState, "/etc/systemd/system/watchdog.service was written for this host"),
    ],
)
def test_what_could_not_reset_the_host_is_refused(
    tree: Tree, prepare: t.Callable[[Tree], object], options: WatchdogOptions, error: type[KvmfleetError], words: str
) -> None:
    prepare(tree)
    before = tree.list_there()
    with pytest.raises(error, match=words) as refused:
        tree.install(options)
    assert "Nothing was changed." in str(refused.value)
    assert tree.list_there() == before
    assert not any(watchdog.is_masked(str(tree.path), unit) for unit in watchdog.MASKED_UNITS)


@pytest.mark.parametrize(
    ("enforce", "label", "is_refused"),
    [
        ("1", b"system_u:object_r:watchdog_exec_t:s0\0", True),
        ("0", b"system_u:object_r:watchdog_exec_t:s0\0", False),
        ("1", b"system_u:object_r:bin_t:s0\0", False),
        ("1", None, False),
        (None, None, False),
    ],
    ids=["confined", "permissive", "not confined", "without labels", "without SELinux"],
)
def test_a_daemon_that_selinux_keeps_from_the_test_is_not_started(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, enforce: str | None, label: bytes | None, is_refused: bool
) -> None:
    """A test that cannot be run counts as one that has failed: the device would reset the host, with its guests, as soon as it is bound."""

    def read_label(path: str, name: str) -> bytes:
        assert (path, name) == (str(tree.path / watchdog_install.DAEMON), "security.selinux")
        if label is None:
            raise OSError(errno.ENODATA, "No data available")
        return label

    monkeypatch.setattr(os, "getxattr", read_label)
    if enforce is not None:
        tree.write("sys/fs/selinux/enforce", enforce)
    if not is_refused:
        assert tree.install()
        return
    with pytest.raises(InvalidState, match=r"watchdog_exec_t.*semanage fcontext -a -t bin_t /usr/sbin/watchdog.*Nothing was changed\."):
        tree.install()
    assert tree.list_there() == []


def test_nowayout_of_the_driver_need_not_be_writable(tree: Tree) -> None:
    tree.add_device("watchdog0", "iTCO_wdt", nowayout="1")
    _fixed_nowayout(tree)
    assert tree.install()


def test_our_own_daemon_may_have_the_device(tree: Tree) -> None:
    tree.install()
    tree.hold(700, f"/usr/sbin/watchdog --foreground --config-file /{watchdog.CONFIG_FILE}")
    assert tree.install() == ()


def test_an_unbound_host_has_nothing_left(tree: Tree) -> None:
    tree.install()
    assert set(tree.unbind(check=True).files) == {f"/{name}" for name in FILES}
    assert tree.list_there() == list(FILES)
    assert set(tree.unbind().files) == {f"/{name}" for name in FILES}
    assert tree.list_there() == []
    assert tree.unbind().files == ()


def test_a_daemon_whose_task_died_after_its_files_had_changed_is_started_anew(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    anew: list[bool] = []

    def start(_root: str, _device: str, is_changed: bool, _is_masked_now: bool) -> None:
        anew.append(is_changed)
        if len(anew) == 1:
            raise Internal("systemctl did not answer.")

    monkeypatch.setattr(watchdog_install, "is_systemd_running", lambda _root: True)
    monkeypatch.setattr(watchdog_install, "_start_daemon", start)
    with pytest.raises(Internal):
        tree.install()
    assert [bool(tree.install()), bool(tree.install())] == [True, False]
    assert anew == [True, True, False]


def test_masks_of_a_person_stay(tree: Tree) -> None:
    tree.install()
    for name in FILES[2:]:
        (tree.path / name).unlink()
    assert tree.unbind().files == ()
    assert tree.list_there() == list(watchdog.MASKED_UNITS)


class Daemon:
    """The daemon that systemd runs: it has read its options when it was started, and holds the device."""

    COMMAND = f"/usr/sbin/watchdog --foreground --config-file /{watchdog.CONFIG_FILE}"

    def __init__(self, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tree, self.process, self.asked = tree, 700, [""]
        tree.add_device("watchdog0", "iTCO_wdt", state="active")
        tree.hold(self.process, self.COMMAND)
        self.asked.append(self.test_folder)
        monkeypatch.setattr(watchdog_install, "run_systemctl", self.systemctl)

    @property
    def test_folder(self) -> str:
        return watchdog.read_config(str(self.tree.path))["test-directory"]

    def systemctl(self, *words: str, state: str) -> None:
        if words[0] in ("kill", "start"):
            # The running daemon asks every second or two until it ends.
            assert not self.asked[-1] or (self.tree.path / watchdog.TEST_FILE).exists(), "the daemon resets the host"
            self.end()
            self.process += 1
            self.tree.hold(self.process, self.COMMAND)
            self.asked.append(self.test_folder)

    def end(self) -> None:
        (self.tree.path / f"proc/{self.process}/fd/4").unlink(missing_ok=True)


@pytest.fixture
def daemon(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    tree.install()
    return Daemon(tree, monkeypatch)


def test_an_armed_device_is_pinged_without_a_test_until_the_next_boot(tree: Tree, daemon: Daemon) -> None:
    change = tree.unbind()
    assert change.warnings == (watchdog_install.LEFT_ARMED,)
    assert sorted(change.files) == sorted((f"/{watchdog.TEST_FILE}", f"/{watchdog_install.WANTS_LINK}"))
    assert daemon.asked[1:] == [f"/{watchdog.TEST_FOLDER}", ""]
    assert tree.unbind().files == ()
    assert len(daemon.asked) == 3
    daemon.end()
    (tree.path / watchdog.CLASS_FOLDER / "watchdog0/state").write_text("inactive\n")
    tree.unbind()
    assert tree.list_there() == []


def test_a_daemon_keeps_its_test_while_it_asks(tree: Tree, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that has vanished counts as failed: a task that dies before the daemon is started anew must not have removed it."""

    def fail(*words: str, state: str) -> None:
        raise Internal("systemctl did not answer.")

    with monkeypatch.context() as dying:
        dying.setattr(watchdog_install, "run_systemctl", fail)
        with pytest.raises(Internal):
            tree.unbind()
    assert tree.list_there() == list(FILES)
    assert f"/{watchdog.TEST_FILE}" in tree.unbind().files
    assert daemon.asked[-1] == ""


def test_a_daemon_that_is_about_to_be_started_anew_keeps_its_unit(tree: Tree, daemon: Daemon) -> None:
    """Without it, nothing would ping the armed device."""
    daemon.end()
    assert tree.unbind().warnings == (watchdog_install.LEFT_ARMED,)
    assert (tree.path / watchdog_install.UNIT_FILE).exists()
    assert daemon.asked[-1] == ""


@pytest.mark.parametrize("is_armed", [True, False])
def test_files_that_cannot_be_removed_are_reported_as_such(tree: Tree, daemon: Daemon, monkeypatch: pytest.MonkeyPatch, is_armed: bool) -> None:
    def fail(*_args: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    if not is_armed:
        daemon.end()
        (tree.path / watchdog.CLASS_FOLDER / "watchdog0/state").write_text("inactive\n")
    monkeypatch.setattr(watchdog_install, "delete_files", fail)
    with pytest.raises(Internal, match=r"cannot be removed: .*Read-only file system.* is not bound any more"):
        tree.unbind()


@pytest.mark.parametrize("device", ["/dev/watchdog0", "/dev/watchdog"])
def test_a_device_that_another_program_pings_by_now_keeps_nothing(tree: Tree, daemon: Daemon, device: str) -> None:
    """The host was booted since its watchdog was unbound. The first device has two names."""
    tree.unbind()
    daemon.end()
    tree.hold(99, "/usr/sbin/sbd", device)
    assert tree.unbind().warnings == ()
    assert tree.list_there() == []


def test_an_unbound_watchdog_is_bound_again(tree: Tree, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.unbind()
    monkeypatch.setattr(watchdog_install, "is_systemd_running", lambda _root: True)
    assert f"/{watchdog.CONFIG_FILE}" in tree.install()
    assert daemon.asked[-1] == f"/{watchdog.TEST_FOLDER}"


def test_an_armed_device_is_not_given_up_for_another_one(tree: Tree, daemon: Daemon) -> None:
    """The daemon pings one device. It cannot disarm the other one, which would reset the host."""
    tree.add_device("watchdog1", "hpwdt")
    with pytest.raises(InvalidState, match=r"/dev/watchdog0 is armed .* until the next boot.*Nothing was changed\."):
        tree.install(WatchdogOptions("/dev/watchdog1", 10))
    assert watchdog.read_config(str(tree.path))["watchdog-device"] == "/dev/watchdog0"


class Test:
    """The test in a folder of its own in place of C(/run/kvmfleet); its Python is a script that ends as told."""

    __test__ = False

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        (path / "run").mkdir()
        (path / "asked").write_text("")
        self.peers(1)

    def peers(self, code: int, seconds: float = 0) -> None:
        (self.path / "python").write_text(f'#!/bin/sh\necho "$@" >>{self.path}/asked\nsleep {seconds}\nexit {code}\n')
        (self.path / "python").chmod(0o755)
        text = watchdog_install.write_test(str(self.path / "python"), PROGRAM)
        (self.path / "test").write_text(text.replace("/run/kvmfleet", str(self.path / "run")))

    def state(self, runs_for: t.Optional[float]) -> None:
        """:arg runs_for: from now; null for a host that never had a lease."""
        now = boot_moment()
        until = 0.0 if runs_for is None else now.seconds + runs_for
        state = LeaseState(now, "one", 7, 100, until, until, 3, (("one",),), 12, "direct", 'a "runs_until": 9 in a text, {and brackets}')
        (self.path / "run/lease.json").write_text(json.dumps(encode(state)) + "\n")

    def run(self, word: str = "test") -> int:
        return subprocess.run(["sh", str(self.path / "test"), word], check=False, timeout=30, capture_output=True).returncode

    @property
    def asked(self) -> int:
        return len((self.path / "asked").read_text().splitlines())

    @property
    def noted(self) -> t.Optional[BootMoment]:
        try:
            document = json.loads((self.path / "run/lease-tested").read_text())
        except FileNotFoundError:
            return None
        return BootMoment(document["boot_id"], document["seconds"], {"daemon": document["daemon"]})


@pytest.fixture
def test(tmp_path: pathlib.Path) -> Test:
    return Test(tmp_path)


def test_a_host_that_has_its_lease_asks_nobody(test: Test) -> None:
    test.state(10)
    assert (test.run(), test.asked) == (0, 0)
    noted, now = test.noted, boot_moment()
    assert noted
    assert noted.boot_id == now.boot_id
    assert 0 <= now.seconds - noted.seconds < 5
    assert noted.extra == {"daemon": os.getpid()}


def test_a_host_that_never_had_a_lease_runs_on_and_says_nothing(test: Test) -> None:
    assert (test.run(), test.asked, test.noted) == (0, 0, None)
    test.state(None)
    assert (test.run(), test.asked, test.noted) == (0, 0, None)


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (254, 254), (1, 254), (127, 254)])
def test_a_host_without_a_lease_does_what_its_peers_let_it(test: Test, code: int, expected: int) -> None:
    test.state(-1)
    test.peers(code)
    assert (test.run(), test.asked) == (expected, 1)
    assert (test.path / "asked").read_text() == f"-I /{PROGRAM} test\n"


def test_a_question_that_hangs_is_an_answer(test: Test) -> None:
    test.state(-1)
    test.peers(0, seconds=20)
    assert test.run() == 254


@pytest.mark.parametrize("text", ["", "{", '{"runs_until": soon}', '{"runs_until": -5.0}'])
def test_a_state_that_cannot_be_read_lets_the_program_decide(test: Test, text: str) -> None:
    test.state(10)
    assert test.run() == 0
    (test.path / "run/lease.json").write_text(text)
    assert (test.run(), test.asked) == (254, 1)


def test_a_state_that_has_vanished_is_no_host_without_a_lease(test: Test) -> None:
    test.state(10)
    assert test.run() == 0
    (test.path / "run/lease.json").unlink()
    assert (test.run(), test.asked) == (254, 1)


def test_the_note_is_whole_although_it_is_written_over_an_older_one(test: Test) -> None:
    (test.path / "run/lease-tested").write_text(json.dumps({"boot_id": boot_moment().boot_id, "seconds": 1.0, "daemon": 1}))
    test.state(10)
    assert test.run() == 0
    noted = test.noted
    assert noted
    assert noted.extra == {"daemon": os.getpid()}


def test_any_other_end_of_a_test_is_repaired_by_a_reset(test: Test) -> None:
    test.state(10)
    assert test.run("repair") == 254
