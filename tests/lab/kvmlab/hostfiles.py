# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that make a host different from this machine, as text."""

from __future__ import annotations

import pathlib
import typing as t
import uuid

from .layout import MAX_HOSTS, Lab

OPERATOR = "operator"
OPERATOR_ID = 4777
IMAGES = "/var/lib/libvirt/images"

QEMU_CONF = """\
user = "root"
group = "root"
security_driver = "none"
remember_owner = 0
namespaces = []
cgroup_controllers = []
seccomp_sandbox = 0
stdio_handler = "file"
"""

POOL = f"""\
<pool type='dir'>
  <name>default</name>
  <target><path>{IMAGES}</path></target>
</pool>
"""

SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
MaxSessions 100
MaxStartups 100:30:200
Subsystem sftp internal-sftp
"""


def libvirtd_conf(host_uuid: uuid.UUID) -> str:
    """Return the configuration of a daemon that listens for the other hosts' daemons, with an identity of its own.

    Its sockets are those of Debian, but without polkit, which no host runs: everybody may read, and root and the group C(libvirt) may act.
    """
    return f"""\
listen_tls = 0
listen_tcp = 1
auth_tcp = "none"
unix_sock_group = "libvirt"
unix_sock_ro_perms = "0777"
unix_sock_rw_perms = "0770"
auth_unix_ro = "none"
auth_unix_rw = "none"
host_uuid = "{host_uuid}"
log_filters = "3:libvirt 4:util"
log_outputs = "2:file:/var/log/libvirt/libvirtd.log"
"""


def hosts(lab: Lab) -> str:
    """Return C(/etc/hosts): every host the lab can ever have, so that one more host changes nothing on the others."""
    names = [lab.host_name(number) for number in range(1, MAX_HOSTS + 1)]
    lines = ["127.0.0.1 localhost", f"{lab.control_address} control", *(f"{lab.host_address(name)} {name}" for name in names)]
    return "".join(f"{line}\n" for line in lines)


def passwd(etc: pathlib.Path, root_home: pathlib.Path, operator_home: pathlib.Path) -> str:
    """Return the users of a release, by its C(/etc), with a home of root that belongs to the host alone, and the unprivileged user for tests."""
    lines = [line for line in _lines(etc / "passwd") if not line.startswith(f"{OPERATOR}:")]
    lines = [_with_field(line, 5, str(root_home)) if line.startswith("root:") else line for line in lines]
    return _text([*lines, f"{OPERATOR}:x:{OPERATOR_ID}:{OPERATOR_ID}::{operator_home}:/bin/sh"])


def shadow(etc: pathlib.Path) -> str:
    """Return passwords that nobody can give. A locked one, as root's often is, would have sshd refuse the key too."""
    others = [line for line in _lines(etc / "shadow") if line.split(":")[0] not in ("root", OPERATOR)]
    return _text(["root:*:19700::::::", *others, f"{OPERATOR}:*:19700::::::"])


def group(etc: pathlib.Path) -> str:
    return _text([*(line for line in _lines(etc / "group") if not line.startswith(f"{OPERATOR}:")), f"{OPERATOR}:x:{OPERATOR_ID}:"])


def sudoers() -> str:
    return f"root ALL=(ALL:ALL) ALL\n{OPERATOR} ALL=(ALL:ALL) NOPASSWD: ALL\n"


def ssh_config(user_key: pathlib.Path, known_hosts: pathlib.Path, unanswered: int = 3) -> str:
    """Return the client's configuration: the lab's key and the lab's hosts, and nothing else is trusted.

    :arg unanswered: after how many questions without an answer, one every 5 s, the client gives a connection up.
    """
    return f"""\
Host *
    IdentityFile {user_key}
    IdentitiesOnly yes
    UserKnownHostsFile {known_hosts}
    GlobalKnownHostsFile none
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 10
    ServerAliveInterval 5
    ServerAliveCountMax {unanswered}
"""


def _with_field(line: str, index: int, value: str) -> str:
    fields = line.split(":")
    fields[index] = value
    return ":".join(fields)


def _lines(path: pathlib.Path) -> t.List[str]:
    return path.read_text().splitlines()


def _text(lines: t.Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
