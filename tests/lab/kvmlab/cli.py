# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command C(lab)."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import typing as t

from . import (
    bootcode,
    capabilities,
    domainxml,
    etcd,
    etcddata,
    faults,
    fence,
    fleet,
    guest,
    hostfiles,
    inventory,
    lease,
    releaseroot,
    releases,
    ssh,
    status,
    storage,
)
from . import host as hosts
from .errors import LabError, UsageError
from .layout import Lab
from .requirements import require_machine, require_program, require_root

_ETCD_DATA = {"fill": etcddata.fill, "make-room": etcddata.make_room, "compact": etcddata.compact, "accept": etcddata.accept}
_ETCD_BACKUPS = ("backup", "restore")


def main(arguments: t.Sequence[str]) -> int:
    """Run one command; return its exit code: 0, 1 for what failed, 2 for arguments that cannot be right."""
    options = parser().parse_args(arguments)
    try:
        require_root()
        return options.run(Lab.named(options.prefix, options.state), options) or 0
    except LabError as exc:
        print(f"lab: {exc}", file=sys.stderr)
        return 2 if isinstance(exc, UsageError) else 1


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="lab", description="A fleet of real libvirt hosts on this machine.")
    top.add_argument("--prefix", default=os.environ.get("KVMFLEET_LAB_PREFIX") or "kvm", help="what the hosts' names begin with ($KVMFLEET_LAB_PREFIX or kvm)")
    top.add_argument("--state", metavar="DIR", help="folder of the state of all labs ($KVMFLEET_LAB_STATE, else /run/kvmfleet-lab)")
    verbs = top.add_subparsers(metavar="VERB", required=True)
    _add_fleet(verbs)
    _add_guests(verbs)
    _add_faults(verbs)
    _add_access(verbs)
    _add_etcd(verbs)
    return top


def _verb(verbs: t.Any, name: str, run: t.Callable[[Lab, argparse.Namespace], t.Any], description: str, host: bool = False) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=description, description=description)
    verb.set_defaults(run=run)
    if host:
        verb.add_argument("host")
    return verb


def _add_fleet(verbs: t.Any) -> None:
    up = _verb(verbs, "up", _up, "start the lab, or what is missing of it")
    up.add_argument("--hosts", type=int, default=3, help="how many (3)")
    up.add_argument(
        "--release", metavar="NAME[:N,N]", action="append", default=[], help="another Debian release, for all hosts or for some by number, e.g. trixie:3"
    )
    _add_cache(up)
    _verb(verbs, "down", lambda lab, _options: fleet.down(lab), "end the lab and remove all of it")
    _verb(verbs, "status", _status, "show hosts and guests").add_argument("--json", action="store_true")


def _add_cache(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--cache", metavar="DIR", type=pathlib.Path, default=releaseroot.default_cache(), help="folder of the releases ($KVMFLEET_LAB_CACHE or %(default)s)"
    )


def _add_guests(verbs: t.Any) -> None:
    new = _verb(verbs, "guest", _guest, "start a guest with a known dirty set")
    new.add_argument("name")
    new.add_argument("--host", required=True)
    new.add_argument("--mib", type=int, default=64, help="its memory (64)")
    new.add_argument("--dirty-mib", type=int, default=0, help="how much of it the guest writes to (0)")
    new.add_argument("--rate", type=int, default=0, help="pages it dirties per second; 0 fills the dirty set once, then halts (0)")
    new.add_argument("--storage", choices=storage.KINDS, default="none", help="its disk (none)")
    new.add_argument("--integrity", action="store_true", help="insist on a dirty set, so that 'check' proves something")
    new.add_argument("--bridge", metavar="NAME", help="give it a network card in this bridge of the host")
    new.add_argument("--machine", metavar="TYPE", default=domainxml.MACHINE, help="its machine type, e.g. pc-i440fx-7.2 (%(default)s: QEMU's newest)")
    new.add_argument("--cores", type=int, choices=range(1, 9), default=1, metavar="N", help="its processors, all in one package; it uses the first (1)")
    new.add_argument("--firmware", choices=tuple(domainxml.FIRMWARE), help="boot with OVMF instead of a BIOS; it runs no program then, and needs 128 MiB")
    new.add_argument("--tpm", action="store_true", help="give it an emulated TPM 2.0 (swtpm)")
    new.add_argument("--acpi", action="store_true", help="let it switch itself off when it is asked to; without, it does not react")
    new.add_argument("--transient", action="store_true", help="without a persistent definition")
    new.add_argument("--autostart", action="store_true", help="start it with its host")
    start = new.add_mutually_exclusive_group()
    start.add_argument("--paused", dest="start", action="store_const", const="paused", default="running")
    start.add_argument("--off", dest="start", action="store_const", const="off", help="only define it")
    _verb(verbs, "rmguest", lambda lab, options: guest.remove(lab, options.name), "remove a guest everywhere").add_argument("name")
    check = _verb(verbs, "check", _check, "prove that a guest's memory lost nothing; it is paused for the reading")
    check.add_argument("name")
    check.add_argument("--host", help="where to look (where it is active)")


def _add_faults(verbs: t.Any) -> None:
    _verb(verbs, "poweroff", lambda lab, options: hosts.power_off(lab, lab.require_host(options.host)), "cut a host's power", host=True)
    _verb(verbs, "poweron", lambda lab, options: fleet.power_on(lab, lab.require_host(options.host)), "switch a host on", host=True)
    release = _verb(verbs, "release", _release, "let a host that is off come back with another Debian release, or the machine's own", host=True)
    release.add_argument("name", metavar="NAME")
    _add_cache(release)
    cut = _verb(verbs, "cut", _cut, "cut a host off the network: its cable, or some traffic", host=True)
    for channel in faults.CHANNELS:
        cut.add_argument(f"--{channel}", dest="channels", action="append_const", const=channel, help=f"TCP {faults.CHANNELS[channel]}")
    cut.add_argument("--all", action="store_true", help="everything (the default)")
    for direction in faults.HOOKS:
        cut.add_argument(f"--{direction}", dest="directions", action="append_const", const=direction, help="only this way")
    cut.add_argument("--peer", metavar="HOST", help="only between these two hosts")
    slow = _verb(verbs, "slow", lambda lab, options: faults.slow(lab, lab.require_host(options.host), options.mbit), "make a host's cable slow", host=True)
    slow.add_argument("--mbit", type=int, required=True)
    _verb(verbs, "heal", lambda lab, options: faults.heal(lab, lab.require_host(options.host)), "undo every cut and slowness of a host", host=True)
    daemon = _verb(verbs, "libvirtd", _libvirtd, "deal with a host's libvirtd; its guests run on", host=True)
    daemon.add_argument("action", choices=("kill", "restart", "stop", "start"))
    service = _verb(verbs, "lease", _lease, "deal with the service of a host's lease, which runs where it is installed; or ask its test", host=True)
    service.add_argument("action", choices=lease.ACTIONS, help="after kill and restart it comes back by itself")
    belief = _verb(verbs, "believe", _believe, "let a host's libvirtd believe in an older QEMU or processor; without options, in the one there is", host=True)
    belief.add_argument("--qemu", metavar="VERSION", help="the version of QEMU, e.g. 6.2.0")
    belief.add_argument("--without-machine", metavar="NAME", action="append", default=[], help="a machine type that is missing")
    belief.add_argument("--without-feature", metavar="NAME", action="append", default=[], help="a processor feature that is missing")
    fencing = _verb(verbs, "fence", _fence, "fence a host; without arguments, options are read from standard input")
    fencing.add_argument("words", nargs="*", metavar="HOST ACTION")
    fencing.add_argument("-o", "--action")
    fencing.add_argument("-n", "--plug")


def _add_access(verbs: t.Any) -> None:
    execute = _verb(verbs, "exec", _exec, "run a command on a host, without SSH", host=True)
    execute.add_argument("command", nargs=argparse.REMAINDER)
    virsh = _verb(verbs, "virsh", _virsh, "run virsh on a host", host=True)
    virsh.add_argument("command", nargs=argparse.REMAINDER)
    login = _verb(verbs, "ssh", _ssh, "log in at a host", host=True)
    login.add_argument("command", nargs=argparse.REMAINDER)
    login.add_argument("--user", default="root")
    hosts_file = _verb(verbs, "inventory", _inventory, "print the path of the Ansible inventory")
    hosts_file.add_argument("--user", choices=("root", hostfiles.OPERATOR), default="root")
    hosts_file.add_argument("--become", action="store_true", help="become root by sudo")


def _add_etcd(verbs: t.Any) -> None:
    cluster = _verb(verbs, "etcd", _etcd, "an etcd cluster on the loopback interface, for ledgers; it needs no lab of hosts")
    actions = ("up", "down", "status", "variables", "host-users", "start", *etcd.SIGNALS, *_ETCD_DATA, *_ETCD_BACKUPS)
    cluster.add_argument(
        "action", choices=actions, help="variables: what a play needs, for -e @FILE; host-users: make a user a protected host, for its lease, and print them"
    )
    cluster.add_argument("what", nargs="?", help="which member to start, kill, stop, freeze or thaw: a number, leader or all; the file of a backup")
    cluster.add_argument("--members", type=int, choices=range(1, 8), default=3, metavar="N", help="how many (3)")
    cluster.add_argument("--tls", action="store_true", help="members and clients show certificates")
    cluster.add_argument("--users", action="store_true", help=f"only the user {etcd.USER} may use the ledger's keys")
    cluster.add_argument("--network", action="store_true", help="reached by the hosts of the lab, which is up, at the address of the control node")
    cluster.add_argument("--quota-mib", type=int, metavar="N", help="how large its database may become, so that it can be filled")
    cluster.add_argument("--as-new", action="store_true", help="what is restored is another cluster")


def _up(lab: Lab, options: argparse.Namespace) -> None:
    require_machine()
    wanted = releases.wanted(options.release, options.hosts)
    roots = {name: _release_root(options.cache, name) for name in sorted(set(wanted.values()))}
    lab = fleet.up(lab, options.hosts, {lab.host_name(number): roots[name] for number, name in wanted.items()})
    print(status.table(status.read(lab)))


def _release(lab: Lab, options: argparse.Namespace) -> None:
    host = lab.require_host(options.host)
    hosts.require_off(lab, host)
    fleet.set_release(lab, host, _release_root(options.cache, releases.checked(options.name)))


def _release_root(cache: pathlib.Path, name: str) -> t.Optional[pathlib.Path]:
    return None if name == releases.own() else releaseroot.ensure(cache, name)


def _status(lab: Lab, options: argparse.Namespace) -> None:
    rows = status.read(lab)
    print(json.dumps(rows, indent=2) if options.json else status.table(rows))


def _guest(lab: Lab, options: argparse.Namespace) -> None:
    if options.integrity and not options.dirty_mib:
        raise UsageError("A guest without a dirty set proves nothing: give --dirty-mib with --integrity.")
    if options.firmware and options.dirty_mib:
        raise UsageError("A guest with firmware of its own boots no program, and writes nothing: omit --dirty-mib.")
    program = bootcode.Program(options.mib, options.dirty_mib, options.rate, options.acpi)
    host = lab.require_host(options.host)
    o = options
    guest.create(lab, guest.Wish(o.name, host, program, o.storage, o.start, o.transient, o.autostart, o.bridge, o.machine, o.cores, o.firmware, o.tpm))


def _check(lab: Lab, options: argparse.Namespace) -> int:
    verdict = guest.check(lab, options.name, options.host and lab.require_host(options.host))
    print(json.dumps(verdict))
    return 0 if verdict["intact"] else 1


def _cut(lab: Lab, options: argparse.Namespace) -> None:
    peer = options.peer and lab.require_host(options.peer)
    faults.cut(lab, lab.require_host(options.host), [] if options.all else options.channels or [], options.directions or [], peer)


def _libvirtd(lab: Lab, options: argparse.Namespace) -> None:
    hosts.signal_libvirtd(lab, lab.require_host(options.host), options.action)


def _lease(lab: Lab, options: argparse.Namespace) -> int:
    code, text = lease.act(lab, lab.require_host(options.host), options.action)
    print(text, end="")
    return code


def _believe(lab: Lab, options: argparse.Namespace) -> None:
    less = capabilities.Less(options.qemu, tuple(options.without_machine), tuple(options.without_feature))
    capabilities.believe(lab, lab.require_host(options.host), less)


def _fence(lab: Lab, options: argparse.Namespace) -> int:
    given = dict(zip(("plug", "action"), options.words, strict=False))
    given.update({key: value for key in ("plug", "action") if (value := getattr(options, key))})
    code, message = fence.act(lab, *_fencing(given or fence.parse(sys.stdin.read())))
    print(message)
    return code


def _fencing(given: t.Dict[str, str]) -> t.Tuple[str, t.Optional[str]]:
    return given.get("action", "reboot"), given.get("plug")


def _exec(lab: Lab, options: argparse.Namespace) -> t.NoReturn:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise UsageError(f"Say what to run: lab exec {options.host} -- COMMAND")
    _become(hosts.command_on(lab, lab.require_host(options.host), *command))


def _virsh(lab: Lab, options: argparse.Namespace) -> t.NoReturn:
    _become(hosts.virsh_on(lab, lab.require_host(options.host), *options.command))


def _ssh(lab: Lab, options: argparse.Namespace) -> t.NoReturn:
    _become(ssh.command(lab, lab.require_host(options.host), options.user, *options.command))


def _etcd(lab: Lab, options: argparse.Namespace) -> None:
    cluster = etcd.Cluster(lab.etcd)
    if options.action == "up":
        quota = [f"--quota-backend-bytes={options.quota_mib * 2**20}"] if options.quota_mib else []
        address = lab.control_address if options.network else etcd.ADDRESS
        cluster.up(options.members, options.tls, etcd.PREFIX if options.users else None, quota, address)
    elif options.action == "down":
        cluster.down()
        return
    elif options.action == "host-users":
        print(json.dumps(lease.make_users(lab, cluster), indent=2))
        return
    elif options.action in _ETCD_DATA:
        _ETCD_DATA[options.action](cluster)
    elif options.action in _ETCD_BACKUPS:
        _etcd_backup(cluster, options)
    elif options.action not in ("status", "variables"):
        cluster.act(options.action, options.what)
    print(cluster.variables() if options.action == "variables" else cluster.table())


def _etcd_backup(cluster: etcd.Cluster, options: argparse.Namespace) -> None:
    if options.what is None:
        raise UsageError(f"Say which file: lab etcd {options.action} FILE")
    file = pathlib.Path(options.what).absolute()
    if options.action == "restore":
        etcddata.restore(cluster, file, options.as_new)
    else:
        etcddata.back_up(cluster, file)


def _become(command: t.List[str]) -> t.NoReturn:
    sys.stdout.flush()
    os.execvp(command[0], command)


def _inventory(lab: Lab, options: argparse.Namespace) -> None:
    if options.become:
        require_program("sudo", "an inventory with privilege escalation")
    lab.settings  # noqa: B018 - raises where the lab is not up
    print(inventory.path(lab, options.user, options.become))
