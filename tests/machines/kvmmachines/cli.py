# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command C(machines)."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import typing as t

from ...lab.kvmlab import bootcode, domainxml, releases
from ...lab.kvmlab import fence as lab_fence
from ...lab.kvmlab.errors import LabError, UsageError
from ...lab.kvmlab.namespaces import in_network
from ...lab.kvmlab.requirements import require_mounted_root, require_root
from . import access, bmc, chassis, faults, fence, fleet, guest, image, layout, network, qemu, snapshot, status, upgrade
from .layout import Fleet, Machine
from .requirements import require_programs

Options = argparse.Namespace


def main(arguments: t.Sequence[str]) -> int:
    """Run one command; return its exit code: 0, 1 for what failed, 2 for arguments that cannot be right."""
    options = parser().parse_args(arguments)
    # What it began is taken back then, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        require_root()
        return options.run(Fleet.named(options.prefix, options.cache), options) or 0
    except LabError as exc:
        print(f"machines: {exc}", file=sys.stderr)
        return 2 if isinstance(exc, UsageError) else 1


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="machines", description="A fleet of whole Debian machines under QEMU, on this machine.")
    top.add_argument("--prefix", default=os.environ.get("KVMFLEET_MACHINES_PREFIX") or "kvf", help="the name of the fleet ($KVMFLEET_MACHINES_PREFIX or kvf)")
    top.add_argument("--cache", metavar="DIR", help=f"folder of images, snapshots and fleets ($KVMFLEET_MACHINES_CACHE, else {layout.DEFAULT_CACHE})")
    verbs = top.add_subparsers(metavar="VERB", required=True)
    for add in (_add_fleet, _add_guests, _add_power, _add_faults, _add_access):
        add(verbs)
    return top


def _verb(verbs: t.Any, name: str, run: t.Callable[[Fleet, Options], t.Any], description: str, machine: bool = False) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=description, description=description)
    verb.set_defaults(run=run)
    if machine:
        verb.add_argument("machine")
    return verb


def _add_fleet(verbs: t.Any) -> None:
    up = _verb(verbs, "up", _up, "start a fleet of hosts and an NFS server, from a warm snapshot that is made where it is missing")
    up.add_argument("--hosts", type=int, default=3, help="how many (3)")
    up.add_argument("--release", metavar="NAME[:N,N]", action="append", default=[], help="another Debian release, for all hosts or for some by number")
    up.add_argument("--cold", action="store_true", help="boot the machines, and prepare nothing")
    disk = _verb(verbs, "image", _image, "print the folder of a release's image, which is made where it is missing")
    disk.add_argument("release", nargs="?", default=releases.own(), metavar="NAME")
    _verb(verbs, "down", lambda it, _options: fleet.down(it), "end the fleet and remove all of it; images and warm snapshots stay")
    _verb(verbs, "reset", lambda it, _options: fleet.start_warm(it), "bring the whole fleet back to the warm snapshot")
    _verb(verbs, "status", _status, "show machines and guests").add_argument("--json", action="store_true")
    state = _verb(verbs, "snapshot", _snapshot, "save the whole fleet, all machines at one moment, or bring it back to that")
    state.add_argument("action", choices=("save", "load"))
    state.add_argument("name")


def _add_guests(verbs: t.Any) -> None:
    new = _verb(verbs, "guest", _guest, "make a guest, and start it")
    new.add_argument("name")
    new.add_argument("--host", required=True)
    new.add_argument("--mib", type=int, default=32, help="its memory (32)")
    new.add_argument("--dirty-mib", type=int, default=0, help="how much of it the guest writes to (0)")
    new.add_argument("--rate", type=int, default=0, help="pages it dirties per second (0)")
    new.add_argument("--storage", metavar="KIND", default="nfs", help=f"{', '.join(guest.FOLDERS)}, or a folder of the host (nfs)")
    new.add_argument("--machine", metavar="TYPE", default=domainxml.MACHINE, help="its machine type (%(default)s: QEMU's newest)")
    new.add_argument("--acpi", action="store_true", help="let it switch itself off when it is asked to; without, it does not react")
    new.add_argument("--autostart", action="store_true", help="start it with its host")
    new.add_argument("--off", action="store_true", help="only define it")
    _verb(verbs, "rmguest", lambda it, options: guest.remove(it, options.name), "remove a guest from all hosts that are on").add_argument("name")


def _add_power(verbs: t.Any) -> None:
    _verb(verbs, "poweroff", lambda it, options: qemu.kill(it, _machine(it, options)), "cut a machine's power", machine=True)
    for name, description in (("poweron", "switch a machine on"), ("reboot", "let a machine reboot itself")):
        verb = _verb(verbs, name, _poweron if name == "poweron" else _reboot, description, machine=True)
        verb.add_argument("--no-wait", action="store_true", help="do not wait until it has booted")
    newer = _verb(verbs, "upgrade", _upgrade, "exchange the root disk of a host that is off; its identity and libvirt's state are kept", machine=True)
    newer.add_argument("--release", metavar="NAME", required=True, help="the code name of a Debian release, e.g. trixie")
    fencing = _verb(verbs, "fence", _fence, "fence a machine by the fence agents' rules; without arguments, options are read from standard input")
    fencing.add_argument("words", nargs="*", metavar="MACHINE ACTION")
    fencing.add_argument("-o", "--action")
    fencing.add_argument("-n", "--plug")


def _add_faults(verbs: t.Any) -> None:
    _verb(verbs, "cut", lambda it, options: network.cut(it, _machine(it, options)), "let nothing pass between a machine and the others", machine=True)
    _verb(verbs, "heal", _heal, "undo cut and netem of a machine", machine=True)
    netem = _verb(verbs, "netem", _netem, "delay, lose and slow down what a machine sends; without options, end that", machine=True)
    netem.add_argument("--delay-ms", type=int)
    netem.add_argument("--loss-percent", type=float)
    netem.add_argument("--rate-mbit", type=float)
    device = _verb(verbs, "bmc", _bmc, "say how a host's BMC behaves from now on", machine=True)
    device.add_argument("kind", choices=[kind.value for kind in chassis.Kind])
    device.add_argument("--seconds", type=int, default=chassis.SLOW_SECONDS, help="after which a slow one carries out a command (%(default)s)")
    clock = _verb(verbs, "clock", _clock, "set a machine's clock, or print by how many seconds it is ahead of this machine's", machine=True)
    clock.add_argument("--ahead", metavar="SECONDS", type=float, help="less than 0 is behind")


def _add_access(verbs: t.Any) -> None:
    execute = _verb(verbs, "exec", _exec, "run a command in a machine as root, without SSH and without a network", machine=True)
    execute.add_argument("--timeout", type=float, default=600, metavar="SECONDS")
    execute.add_argument("command", nargs=argparse.REMAINDER)
    login = _verb(verbs, "ssh", _ssh, "log in at a machine", machine=True)
    login.add_argument("--user", default="root")
    login.add_argument("command", nargs=argparse.REMAINDER)
    control = _verb(verbs, "control", _control, "run a command of this machine in the fleet's network, for example ansible-playbook")
    control.add_argument("command", nargs=argparse.REMAINDER)
    hosts_file = _verb(verbs, "inventory", _inventory, "print the path of the Ansible inventory")
    hosts_file.add_argument("--user", choices=("root", access.OPERATOR), default="root")
    hosts_file.add_argument("--become", action="store_true", help="become root by sudo")
    serial = _verb(verbs, "serial", _serial, "print the end of a machine's serial log", machine=True)
    serial.add_argument("--lines", type=int, default=40)


def _machine(it: Fleet, options: Options) -> Machine:
    return it.require_machine(options.machine)


def _up(it: Fleet, options: Options) -> None:
    it = fleet.up(it, options.hosts, releases.wanted(options.release, options.hosts), options.cold)
    print(status.table(status.read(it)))


def _image(it: Fleet, options: Options) -> None:
    require_mounted_root()
    require_programs()
    print(image.ensure_image(it.cache, options.release))


def _status(it: Fleet, options: Options) -> None:
    rows = status.read(it)
    print(json.dumps(rows, indent=2) if options.json else status.table(rows))


def _snapshot(it: Fleet, options: Options) -> None:
    folder = snapshot.named(it, options.name)
    if options.action == "save":
        snapshot.save(it, folder)
    fleet.load(it, folder)


def _guest(it: Fleet, options: Options) -> None:
    program = bootcode.Program(options.mib, options.dirty_mib, options.rate, options.acpi, guest.TICKS_PER_SECOND)
    wish = guest.Wish(options.name, program, options.storage, not options.off, options.autostart, options.machine)
    guest.create(it, it.require_machine(options.host), wish)


def _poweron(it: Fleet, options: Options) -> None:
    fleet.power_on(it, _machine(it, options), not options.no_wait)


def _reboot(it: Fleet, options: Options) -> None:
    fleet.reboot(it, _machine(it, options), not options.no_wait)


def _upgrade(it: Fleet, options: Options) -> None:
    upgrade.upgrade(it, _machine(it, options), options.release)


def _fence(it: Fleet, options: Options) -> int:
    given = dict(zip(("plug", "action"), options.words, strict=False))
    given.update({key: value for key in ("plug", "action") if (value := getattr(options, key))})
    given = given or lab_fence.parse(sys.stdin.read())
    code, message = fence.act(it, given.get("action", "reboot"), given.get("plug"))
    print(message)
    return code


def _heal(it: Fleet, options: Options) -> None:
    machine = _machine(it, options)
    network.heal(it, machine)
    if qemu.is_on(it, machine):
        faults.impair(it, machine, None, None, None)


def _netem(it: Fleet, options: Options) -> None:
    faults.impair(it, _machine(it, options), options.delay_ms, options.loss_percent, options.rate_mbit)


def _bmc(it: Fleet, options: Options) -> None:
    machine = _machine(it, options)
    if not machine.is_host:
        raise UsageError(f"{machine.name} has no BMC; the hosts have one: {', '.join(host.name for host in it.hosts)}.")
    bmc.set_behaviour(it, machine, chassis.Behaviour(chassis.Kind(options.kind), options.seconds))


def _clock(it: Fleet, options: Options) -> None:
    machine = _machine(it, options)
    if options.ahead is None:
        print(f"{faults.read_clock(it, machine):+.1f}")
    else:
        faults.set_clock(it, machine, options.ahead)


def _exec(it: Fleet, options: Options) -> int:
    done = qemu.agent(it, _machine(it, options)).run(*_command(options), timeout_seconds=options.timeout)
    sys.stdout.write(done.out)
    sys.stderr.write(done.err)
    return done.code


def _ssh(it: Fleet, options: Options) -> t.NoReturn:
    _become(access.ssh_command(it, _machine(it, options), options.user, *options.command))


def _control(it: Fleet, options: Options) -> t.NoReturn:
    _become(in_network(it.namespace, *_command(options)))


def _inventory(it: Fleet, options: Options) -> None:
    it.require_machine("m1")
    print(access.inventory_file(it, options.user, options.become))


def _serial(it: Fleet, options: Options) -> None:
    print(qemu.serial_tail(it.folder(_machine(it, options)), options.lines))


def _command(options: Options) -> t.List[str]:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise UsageError("Say what to run, after --.")
    return list(command)


def _become(command: t.List[str]) -> t.NoReturn:
    sys.stdout.flush()
    os.execvp(command[0], command)
