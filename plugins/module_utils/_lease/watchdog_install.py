# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Binds the hardware watchdog of a host to its lease: Debian's watchdog daemon pings the device as long as a test of ours lets it.

The daemon runs as a unit of ours. Debian's own two units are masked: one of them would ping the device without the test after the daemon has ended.
"""

from __future__ import annotations

import os
import time
import typing as t

from .._dataclass import dataclass
from .._model.errors import Internal, InvalidState, NotSupported
from .._systemd import (
    UNIT_FOLDER,
    RestartNote,
    attempt_write,
    delete_files,
    has_content,
    install_file,
    is_linked,
    is_systemd_running,
    link_unit,
    run_systemctl,
)
from .watchdog import (
    ASK_SECONDS,
    CLASS_FOLDER,
    CONFIG_FILE,
    MASKED_UNITS,
    TEST_FILE,
    TEST_FOLDER,
    TEST_SECONDS,
    TESTED_FILE,
    choose_interval,
    is_armed,
    is_hardware,
    is_masked,
    list_devices,
    list_holders,
    read_attribute,
    read_config,
)

DAEMON = "usr/sbin/watchdog"
SERVICE = "kvmfleet-watchdog.service"
UNIT_FILE = f"{UNIT_FOLDER}/{SERVICE}"
WANTS_LINK = f"{UNIT_FOLDER}/multi-user.target.wants/{SERVICE}"
_CONFINED = "watchdog_exec_t"
_ARM_SECONDS = 60.0
_NOTHING = "Nothing was changed."
# Of a kernel that does not show what its watchdogs are, such as that of Raspberry Pi OS.
_HIDDEN_NEXT_STEP = f"Use a kernel with CONFIG_WATCHDOG_SYSFS. {_NOTHING}"
_UNBOUND = ("The watchdog of this host cannot be bound", "It may be bound in part.")
_STILL_BOUND = ("The watchdog of this host cannot be unbound", "It may still be bound.")
_STILL_THERE = ("The files of the watchdog of this host cannot be removed", "It is not bound any more, but some of them are still there.")
_NOT_STARTED = "Its files are in place, but the watchdog of this host is not bound to its lease."

LEFT_ARMED = "The watchdog of this host cannot be disarmed: until the next boot, the daemon pings it without asking for the lease."


@dataclass(frozen=True)
class WatchdogOptions:
    """The key C(watchdog) of C(kvmfleet_lease).

    :arg device: e.g. C(/dev/watchdog0); null for the only hardware watchdog that the host has.
    :arg seconds: how long after the last ping the device resets the host.
    """

    device: t.Optional[str]
    seconds: int


@dataclass(frozen=True)
class WatchdogChange:
    """What was changed, or would be in check mode: the files that were written or removed."""

    files: t.Tuple[str, ...]
    warnings: t.Tuple[str, ...] = ()


def install_watchdog(options: WatchdogOptions, interpreter: str, program: str, root: str = "/", check_mode: bool = False) -> WatchdogChange:
    """Bind the watchdog, or bring its files up to date. The daemon is started anew only if something has changed, which takes less time than the device gives.

    :arg interpreter: the Python that runs the program of the lease.
    :arg program: the path of that program below the root.
    :raises NotSupported: the host has no watchdog that could be bound.
    :raises InvalidState: something else has the device, or the daemon is not installed.
    :raises Internal: the daemon does not arm the device.
    """
    device = choose_device(options, root)
    _require_no_other_armed(device, root)
    _require_usable(device, options.seconds, root)
    contents = list_contents(device, options.seconds, interpreter, program)
    changes = [path for path, (text, mode) in contents.items() if not has_content(os.path.join(root, path), text, mode)]
    unmasked = [unit for unit in MASKED_UNITS if not is_masked(root, unit)]
    _require_no_own_unit(unmasked, root)
    is_on, note = is_linked(os.path.join(root, WANTS_LINK), SERVICE), RestartNote(SERVICE, root)
    is_pending = note.exists
    if not check_mode:
        if is_systemd_running(root) and changes:
            attempt_write(note.write, *_UNBOUND)
        attempt_write(lambda: _mask_units(root, unmasked), *_UNBOUND)
        attempt_write(lambda: _write_files(root, {path: contents[path] for path in changes}, is_on), *_UNBOUND)
        if is_systemd_running(root):
            _start_daemon(root, device, bool(changes) or is_pending, bool(unmasked))
            note.remove()
    files = [*unmasked, *changes, *([] if is_on else [WANTS_LINK]), *([note.path] if is_pending else [])]
    return WatchdogChange(tuple(f"/{path}" for path in files))


def unbind_watchdog(root: str = "/", check_mode: bool = False) -> WatchdogChange:
    """Stop the test. An armed device with nowayout is pinged without one until the next boot; then the rest is removed by another run."""
    present = [path for path in (WANTS_LINK, TEST_FILE, UNIT_FILE, CONFIG_FILE, *MASKED_UNITS) if _is_ours(root, path)]
    if CONFIG_FILE not in present:
        return _delete(root, present, check_mode)
    pinged = next((device for device in list_devices(root) if _is_ours_to_ping(root, device)), None)
    if pinged is None:
        return _delete(root, present, check_mode)
    left = [path for path in (WANTS_LINK, TEST_FILE) if path in present]
    if left and not check_mode:
        # A daemon takes a test that has vanished for one that has failed. It reads its options when it starts.
        attempt_write(lambda: _forget_test(os.path.join(root, CONFIG_FILE)), *_STILL_BOUND)
        _start_daemon(root, pinged, is_changed=True, is_masked_now=False, state=_STILL_BOUND[1])
        attempt_write(lambda: delete_files(root, left), *_STILL_THERE)
    return WatchdogChange(tuple(f"/{path}" for path in left), (LEFT_ARMED,))


def choose_device(options: WatchdogOptions, root: str = "/") -> str:
    """Return the device to bind. Raises L(NotSupported) for a host without one, L(InvalidState) for one with several of which none was chosen."""
    found = list_devices(root)
    hardware = [device for device, identity in found.items() if is_hardware(identity)]
    if options.device is None:
        return _choose_only_one(hardware, found)
    if options.device not in found:
        known = f"it has {', '.join(found)}" if found else "it has none"
        raise NotSupported(f"This host has no watchdog {options.device}: {known}.", f"Load the module of its driver, or name another one. {_NOTHING}")
    if not found[options.device]:
        raise NotSupported(f"The kernel of this host does not show what {options.device} is.", _HIDDEN_NEXT_STEP)
    if options.device not in hardware:
        raise NotSupported(
            f"{options.device} is softdog, a timer in the kernel that it should reset: a kernel that hangs is not reset by it.",
            f"Use a hardware watchdog, such as iTCO_wdt. {_NOTHING}",
        )
    return options.device


def _choose_only_one(hardware: t.Sequence[str], found: t.Mapping[str, str]) -> str:
    if "" in found.values() and not hardware:
        hidden = next(device for device, identity in found.items() if not identity)
        raise NotSupported(f"This host has no known hardware watchdog: its kernel does not show what {hidden} is.", _HIDDEN_NEXT_STEP)
    if not hardware:
        why = "it has only softdog, a timer in the kernel that it should reset" if found else f"/{CLASS_FOLDER} is empty"
        raise NotSupported(f"This host has no hardware watchdog: {why}.", f"Load the module of its driver, such as iTCO_wdt. {_NOTHING}")
    if len(hardware) > 1:
        raise InvalidState(f"This host has several hardware watchdogs: {', '.join(hardware)}.", f"Name one in watchdog.device of kvmfleet_lease. {_NOTHING}")
    return hardware[0]


def list_contents(device: str, seconds: int, interpreter: str, program: str) -> t.Dict[str, t.Tuple[str, int]]:
    """Return path below the root: text and mode, in the order in which the files are written; no file refers to a later one."""
    return {
        TEST_FILE: (write_test(interpreter, program), 0o755),
        CONFIG_FILE: (_daemon_options(device, seconds), 0o644),
        UNIT_FILE: (_service_unit(device), 0o644),
    }


def write_test(interpreter: str, program: str) -> str:
    """Return the test that the daemon runs. It costs nothing while the host has its lease: Python starts only when the peers have to be asked.

    Its note is written over the one before, always of the same length: readers need no lock, and the daemon's cycle no other program.
    """
    return f"""\
#!/bin/sh
# May this host keep running? The watchdog daemon runs this with the argument "test": 0 means yes, 254 resets the host at once.
# It calls "repair" when a test has ended in any other way, such as after its time limit.
test "$1" = test || exit 254
umask 077
text='' until=''
if IFS= read -r text </run/kvmfleet/lease.json; then
    until=${{text#*'"runs_until": '}}
    until=${{until%%[.,]*}}
fi
read -r now idle </proc/uptime
now=${{now%%.*}}
if test "$until" = 0 || test -z "$text"; then
    # A host that has had no lease since it was started has promised nothing.
    test -e /{TESTED_FILE} || exit 0
fi
read -r boot </proc/sys/kernel/random/boot_id
printf '{{"boot_id": "%s", "seconds": %15s, "daemon": %15s}}\\n' "$boot" "$now.0" "$PPID" 1<>/{TESTED_FILE}
case $until in
'' | *[!0-9]*) ;;
*) if test "$now" -lt "$until"; then exit 0; fi ;;
esac
timeout -s KILL {ASK_SECONDS} {interpreter} -I /{program} test && exit 0
exit 254
"""


def _daemon_options(device: str, seconds: int) -> str:
    """Return the options of the daemon: see watchdog.conf(5). An error that lasts is no reason to shut down slowly: the device is to reset the host."""
    return f"""\
# The watchdog of this host is bound to its lease. This file is written by kvmfleet.migration.host_lease.
watchdog-device = {device}
watchdog-timeout = {seconds}
interval = {choose_interval(seconds)}
realtime = yes
priority = 1
admin =
test-directory = /{TEST_FOLDER}
test-timeout = {TEST_SECONDS}
retry-timeout = 0
repair-timeout = 1
repair-maximum = 0
"""


def _service_unit(device: str) -> str:
    """Return the unit of the daemon.

    It is not stopped at a shutdown, but ends with the last processes, so the host is reset if its shutdown hangs with guests that run. A person cannot stop it
    by mistake, which would reset the host.
    """
    name = os.path.basename(device)
    return f"""\
[Unit]
Description=Reset this host when it has lost its lease
Documentation=man:watchdog(8)
DefaultDependencies=no
Requires=sysinit.target
After=sysinit.target
Conflicts={" ".join(os.path.basename(unit) for unit in MASKED_UNITS)}
RefuseManualStop=yes
StartLimitIntervalSec=0

[Service]
ExecStartPre=/bin/sh -c 'grep -q 1 /{CLASS_FOLDER}/{name}/nowayout || echo 1 >/{CLASS_FOLDER}/{name}/nowayout'
ExecStart=/{DAEMON} --foreground --config-file /{CONFIG_FILE}
Restart=always
RestartSec=1
OOMScoreAdjust=-1000

[Install]
WantedBy=multi-user.target
"""


def _require_usable(device: str, seconds: int, root: str) -> None:
    if not os.path.exists(os.path.join(root, DAEMON)):
        raise InvalidState(
            f"The watchdog daemon /{DAEMON} is not installed on this host.",
            f"Install the package watchdog; nothing is installed by this collection. {_NOTHING}",
        )
    if _is_confined(root):
        raise InvalidState(
            f"SELinux of this host would not let the watchdog daemon run the test of the lease, so {device} would reset the host at once: /{DAEMON} has the"
            f" label {_CONFINED}.",
            f"Let the daemon run unconfined: semanage fcontext -a -t bin_t /{DAEMON}; restorecon /{DAEMON}. {_NOTHING}",
        )
    least, most = (read_attribute(root, device, name) for name in ("min_timeout", "max_timeout"))
    if (least.isdecimal() and seconds < int(least)) or (most.isdecimal() and 0 < int(most) < seconds):
        raise NotSupported(
            f"{device} takes {least or '1'} to {most} seconds, and {seconds} were given.", f"Change watchdog.seconds of kvmfleet_lease. {_NOTHING}"
        )
    if read_attribute(root, device, "nowayout") != "1" and not _may_write(root, device, "nowayout"):
        raise NotSupported(
            f"{device} could be disarmed: nowayout is not set, and this kernel does not let it be set later.",
            f"Load the module of its driver with nowayout=1 (/etc/modprobe.d). {_NOTHING}",
        )
    others = [process for process in list_holders(root, device) if not is_our_daemon(root, process)]
    if others:
        raise InvalidState(
            f"{device} is in use by process {others[0]} ({_name_of(root, others[0])}), which would ping it without the lease.",
            f"Stop that, such as RuntimeWatchdogSec of systemd or sbd, or name another device. {_NOTHING}",
        )


def _require_no_own_unit(units: t.Sequence[str], root: str) -> None:
    """Raise L(InvalidState) if a unit that is to be masked is a file of the host's own, which a mask would replace."""
    own = next((unit for unit in units if os.path.lexists(os.path.join(root, unit)) and not os.path.islink(os.path.join(root, unit))), None)
    if own:
        raise InvalidState(
            f"/{own} was written for this host, and has to be masked: it could ping the watchdog without the lease.",
            f"Remove or rename that file. {_NOTHING}",
        )


def _require_no_other_armed(device: str, root: str) -> None:
    """Raise L(InvalidState) if the daemon pings another device: nothing would ping that one any more, and it cannot be disarmed."""
    other = next((other for other in list_devices(root) if other != device and _is_ours_to_ping(root, other)), None)
    if other:
        raise InvalidState(
            f"{other} is armed for the lease of this host, and has to be pinged until the next boot: the watchdog daemon cannot go over to {device}.",
            f"Remove the key watchdog from kvmfleet_lease and run the task, boot the host, and then name {device}. {_NOTHING}",
        )


def _is_confined(root: str) -> bool:
    """Whether systemd would start the daemon in a domain of SELinux that may run tests in the distribution's own folders only (watchdog_selinux(8))."""
    try:
        with open(os.path.join(root, "sys/fs/selinux/enforce"), encoding="ascii") as stream:
            is_enforcing = stream.read().strip() == "1"
        return is_enforcing and f":{_CONFINED}:".encode() in os.getxattr(os.path.join(root, DAEMON), "security.selinux")
    except OSError:
        return False


def is_our_daemon(root: str, process: int) -> bool:
    """Whether a process is the daemon with our options."""
    try:
        with open(os.path.join(root, f"proc/{process}/cmdline"), "rb") as stream:
            return f"/{CONFIG_FILE}".encode() in stream.read().split(b"\0")
    except OSError:
        return False


def _name_of(root: str, process: int) -> str:
    try:
        with open(os.path.join(root, f"proc/{process}/comm"), encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return "it has ended"


def _may_write(root: str, device: str, name: str) -> bool:
    try:
        return bool(os.stat(os.path.join(root, CLASS_FOLDER, os.path.basename(device), name)).st_mode & 0o200)
    except OSError:
        return False


def _mask_units(root: str, units: t.Sequence[str]) -> None:
    for unit in units:
        path = os.path.join(root, unit)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink("/dev/null", path)


def _write_files(root: str, contents: t.Mapping[str, t.Tuple[str, int]], is_on: bool) -> None:
    for path, (text, mode) in contents.items():
        install_file(os.path.join(root, path), text, mode)
    if not is_on:
        link_unit(os.path.join(root, WANTS_LINK), SERVICE)


def _start_daemon(root: str, device: str, is_changed: bool, is_masked_now: bool, state: str = _NOT_STARTED) -> None:
    """Start the daemon, or let it start anew, and wait until it has armed the device.

    :arg state: what is the case if that fails, as a sentence.
    """
    if is_changed or is_masked_now:
        run_systemctl("daemon-reload", state=state)
    if is_masked_now:
        # Debian's own daemon runs from its installation on, without a device: it would not let ours have its PID file.
        run_systemctl("stop", *map(os.path.basename, MASKED_UNITS), state=state)
    before = [process for process in list_holders(root, device) if is_our_daemon(root, process)]
    if is_changed and before:
        # Its unit refuses to be stopped. systemd starts a daemon that has ended anew.
        run_systemctl("kill", "--kill-who=main", SERVICE, state=state)
    else:
        run_systemctl("start", SERVICE, state=state)
    _wait_until_armed(root, device, before if is_changed else [], state)


def _wait_until_armed(root: str, device: str, ended: t.Sequence[int], state: str) -> None:
    """Return when a daemon of ours, other than those, has armed the device."""
    deadline = time.monotonic() + _ARM_SECONDS
    while time.monotonic() < deadline:
        holders = [process for process in list_holders(root, device) if is_our_daemon(root, process) and process not in ended]
        if holders and is_armed(root, device):
            return
        time.sleep(0.2)
    raise Internal(
        f"The watchdog daemon has not armed {device} within {_ARM_SECONDS:.0f} s. {state}", f"Look at: journalctl -u {SERVICE}. Then run the task again."
    )


def _is_ours_to_ping(root: str, device: str) -> bool:
    """Whether our daemon has the device, or is about to: systemd starts a daemon that has ended anew after a second."""
    holders = list_holders(root, device)
    if not holders:
        return is_armed(root, device) and read_config(root).get("watchdog-device") == device
    return any(is_our_daemon(root, process) for process in holders)


def _forget_test(path: str) -> None:
    """Change the options of the daemon so that it only pings. Without the empty option, it would run the tests in a folder of the distribution."""
    with open(path, encoding="utf-8") as stream:
        lines = [line for line in stream.read().splitlines() if line.partition("=")[0].strip() != "test-directory"]
    install_file(path, "\n".join([*lines, "test-directory =", ""]), 0o644)


def _is_ours(root: str, path: str) -> bool:
    return is_masked(root, path) if path in MASKED_UNITS else os.path.lexists(os.path.join(root, path))


def _delete(root: str, paths: t.Sequence[str], check_mode: bool) -> WatchdogChange:
    if not (set(paths) - set(MASKED_UNITS)):
        # Units that a person has masked stay masked.
        return WatchdogChange(())
    if not check_mode:
        attempt_write(lambda: delete_files(root, paths), *_STILL_THERE)
        if is_systemd_running(root):
            run_systemctl("daemon-reload", state="The files of the watchdog are removed.")
    return WatchdogChange(tuple(f"/{path}" for path in paths))
