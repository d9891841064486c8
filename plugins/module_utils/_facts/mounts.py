# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The file systems and block devices of this host: their capacity, whether other hosts see them, and under which name."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import typing as t

from .._model.codec import ABSENT
from .._model.facts import SHARED_KINDS, UNTOLD_KINDS, MountFacts
from .._model.libvirt_formats import is_loopback
from .._module import is_root
from .._time_limits import answer_all_within, answer_within
from .image_header import Header, Unreadable, read_header

# Prefix of a name in /dev/disk/by-id to the prefix of the identity; earlier entries are preferred.
_BY_ID = (
    ("dm-uuid-mpath-", "mpath:"),
    ("dm-uuid-LVM-", "lvm:"),
    ("wwn-", "wwn:"),
    ("nvme-eui.", "nvme:"),
    ("nvme-uuid.", "nvme:"),
    ("scsi-3", "wwn:0x"),
)
# Parts of names in /dev/disk/by-path that show a device on a network.
_OF_A_NETWORK = ("-iscsi-", "-fc-")

Answer = t.Tuple[t.Optional[bool], t.Optional[str]]


class BlockDevices:
    """The block devices of this host; udev's folders are read once.

    :arg root: where the devices are.
    """

    def __init__(self, root: str = "/dev") -> None:
        self._root = root
        self._folders: t.Dict[str, t.Dict[str, t.List[str]]] = {}

    def identify_device(self, path: str) -> Answer:
        """Return whether other hosts are known to see the device (true, else null: the opposite is never proved), and its identity or null."""
        device = os.path.realpath(path)
        for folder, prefix, shared in (("rbd", "rbd:", True), ("drbd/by-res", "drbd:", None)):
            names = self._names_of(folder, device)
            if names:
                return shared, prefix + names[0]
        store = _identify_by_id(self._names_of("disk/by-id", device))
        is_remote = any(part in name for name in self._names_of("disk/by-path", device) for part in _OF_A_NETWORK)
        return (True if is_remote or (store or "").startswith("mpath:") else None), store

    def _names_of(self, folder: str, device: str) -> t.List[str]:
        if folder not in self._folders:
            self._folders[folder] = _list_names_below(os.path.join(self._root, folder))
        return self._folders[folder].get(device, [])


def _identify_by_id(names: t.Sequence[str]) -> t.Optional[str]:
    for prefix, identity in _BY_ID:
        for name in names:
            if name.startswith(prefix):
                return identity + name[len(prefix) :]
    return None


def _list_names_below(folder: str) -> t.Dict[str, t.List[str]]:
    """Return the names in a folder and in those below it, by the device that each leads to."""
    found: t.Dict[str, t.List[str]] = {}
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(parent, name)
            found.setdefault(os.path.realpath(path), []).append(os.path.relpath(path, folder))
    return found


# Those whose server is one host. Any node of a cluster serves the same files.
_OF_ONE_SERVER = ("nfs", "nfs4", "cifs", "smb", "smb3")
_MOUNTS = "/proc/self/mountinfo"


class Mount(t.NamedTuple):
    """A line of the table of mounts: mount point, type of file system, folder in it, source, and options of the file system."""

    path: str
    kind: str
    root: str = "/"
    source: str = ""
    options: str = ""


def is_shared_mount(mount: Mount) -> bool:
    """Whether the file system is of a type that hosts share, and not served by this host to itself alone."""
    return mount.kind in SHARED_KINDS and not _is_served_locally(mount)


def _is_served_locally(mount: Mount) -> bool:
    """Whether the server has a loopback address: every host has a server of that name, or none."""
    server = mount.source.lstrip("/").partition("/")[0] if mount.source.startswith("//") else mount.source.rpartition(":/")[0]
    return mount.kind in _OF_ONE_SERVER and is_loopback(server)


def innermost_mount(path: str, mount_points: t.Container[str]) -> str:
    """Return the mount point of an absolute path without links; C(/) if there is no other."""
    while path not in mount_points and path not in ("/", ""):
        path = os.path.dirname(path)
    return path or "/"


def read_mounts(table: str = _MOUNTS) -> t.List[Mount]:
    """Return the mounts in the order of mounting: of two on one mount point, the later one counts."""
    # The kernel escapes blanks, tabs and newlines. A name may contain any other character at which Python would split lines or words.
    with open(table, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        return [mount for mount in map(parse_mount, stream) if mount]


def parse_mount(line: str) -> t.Optional[Mount]:
    """Read a line of /proc/PID/mountinfo (proc(5)); blanks in names are octal. Null for any other line."""
    left, _separator, right = line.rstrip("\n").partition(" - ")
    paths, kinds = left.split(" ")[3:5], right.split(" ")[:3]
    if len(paths) < 2 or len(kinds) < 2:
        return None
    return Mount(_unescape_name(paths[1]), kinds[0], _unescape_name(paths[0]), _unescape_name(kinds[1]), "".join(kinds[2:]))


def _unescape_name(name: str) -> str:
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        name = name.replace(octal, character)
    return name


_T = t.TypeVar("_T")
_Capacity = t.Tuple[int, int]
_ON_DEMAND = "autofs"

PATIENCE_SECONDS = 5.0
_BY_UUID = "/dev/disk/by-uuid"
# Cluster file systems on a block device, which has another name on every host.
_ON_DEVICES = ("gfs2", "ocfs2", "acfs")


class LocalStores:
    """Implements L(Stores) for the host that this runs on. A file system whose server does not answer is queried once, with a time limit.

    C(denied) are the paths about which this user may not know.
    """

    def __init__(self, mounts: t.Optional[t.Sequence[Mount]] = None) -> None:
        self._mounts = {mount.path: mount for mount in (read_mounts() if mounts is None else mounts)}
        self._devices = BlockDevices()
        self._silent: t.Set[str] = set()
        self.denied: t.Set[str] = set()

    def describe_mounts(self) -> t.List[MountFacts]:
        """Return C(mounts) of C(kvmfleet_host)."""
        # Side by side, because one server may serve many of them.
        asked = [mount.path for mount in self._mounts.values() if may_hang(mount) and mount.kind != _ON_DEMAND and mount.path not in self._silent]
        answers = answer_all_within(PATIENCE_SECONDS, {path: functools.partial(self._measure, path) for path in asked})
        self._silent.update(path for path, answer in answers.items() if answer is None)
        capacities = {path: answer[0] for path, answer in answers.items() if answer}
        return [facts for facts in (self._describe_mount(mount, capacities) for mount in self._mounts.values()) if facts]

    def _measure(self, path: str) -> t.Tuple[t.Optional[_Capacity]]:
        return (self._ask_or_null(path, lambda: _measure_capacity(path)),)

    def locate_file(self, path: str) -> Answer:
        real = self._ask_in_time(path, lambda: os.path.realpath(path))
        if real is None or self._ask_in_time(real, lambda: _can_follow(real)) is not True:
            return None, None
        mount = self._mounts.get(innermost_mount(real, self._mounts))
        if mount is None or (mount.kind.startswith(UNTOLD_KINDS) and mount.kind not in SHARED_KINDS) or _is_served_locally(mount):
            return None, None
        if mount.kind not in SHARED_KINDS:
            return False, None
        store = identify_store(mount)
        return True, f"{store}/{os.path.relpath(real, mount.path)}" if store else None

    def locate_device(self, path: str) -> Answer:
        return self._devices.identify_device(path)

    def count_copied_bytes(self, path: str, image_format: str) -> t.Optional[int]:
        found = self._ask_in_time(path, lambda: os.stat(path))
        if found is None:
            return None
        return found.st_size if image_format == "raw" else found.st_blocks * 512

    def read_header(self, path: str) -> Header:
        found = self._ask_in_time(path, lambda: _header_or_problem(path))
        if isinstance(found, Header):
            return found
        if found is not None and isinstance(found.__cause__, PermissionError):
            self.denied.add(path)
        raise found or Unreadable(f"{path} cannot be read: its file system did not answer within {PATIENCE_SECONDS:.0f} s")

    def _describe_mount(self, mount: Mount, capacities: t.Mapping[str, t.Optional[_Capacity]]) -> t.Optional[MountFacts]:
        """:arg capacities: of mounts that may hang."""
        if mount.kind == _ON_DEMAND:
            # To measure it would mount what belongs there. One without it would show its images on the file system around it.
            return None if mount.path.startswith("/proc/") else MountFacts(_make_printable(mount.path), mount.kind, None, None, None)
        measured = capacities.get(mount.path) if may_hang(mount) else self._measure(mount.path)[0]
        if measured == (0, 0) or (measured is None and not self._is_kept(mount)):
            return None
        capacity, available = measured or (None, None)
        store = identify_store(mount)
        silent = True if mount.path in self._silent else ABSENT
        return MountFacts(_make_printable(mount.path), mount.kind, _make_printable(store) if store else None, capacity, available, silent)

    def _is_kept(self, mount: Mount) -> bool:
        """Whether a mount that could not be measured is listed: one without it would show its images on the file system around it."""
        return mount.path in self._silent or (mount.path in self.denied and not is_root())

    def _ask_in_time(self, path: str, question: t.Callable[[], _T]) -> t.Optional[_T]:
        mount_point = innermost_mount(path, self._mounts)
        mount = self._mounts.get(mount_point)
        if mount_point in self._silent:
            return None
        if mount is None or not may_hang(mount):
            return self._ask_or_null(path, question)
        answer = answer_within(PATIENCE_SECONDS, lambda: (self._ask_or_null(path, question),))
        if answer is None:
            self._silent.add(mount_point)
        return answer[0] if answer else None

    def _ask_or_null(self, path: str, question: t.Callable[[], _T]) -> t.Optional[_T]:
        try:
            return question()
        except PermissionError:
            self.denied.add(path)
            return None
        except (OSError, ValueError):
            return None


def may_hang(mount: Mount) -> bool:
    """Whether the files are those of a server, as far as the type of the file system shows."""
    return mount.kind in SHARED_KINDS or mount.kind.startswith(UNTOLD_KINDS)


def _header_or_problem(path: str) -> t.Union[Header, Unreadable]:
    try:
        return read_header(path)
    except Unreadable as problem:
        return problem


def identify_store(mount: Mount) -> t.Optional[str]:
    """Return the identity that the mount's file system has on every host, e.g. C(nfs4:nas:/export); null if it is not shared, or has none."""
    if mount.kind not in SHARED_KINDS or _is_served_locally(mount):
        return None
    if mount.kind in _ON_DEVICES:
        uuid = _find_uuid(mount.source)
        return f"{mount.kind}:uuid:{uuid}{mount.root.rstrip('/')}" if uuid else None
    if not any(mark in mount.source for mark in (":", "//", "@")):
        return None
    return f"{mount.kind}:{_sorted_monitors(mount)}{mount.root.rstrip('/')}"


def _sorted_monitors(mount: Mount) -> str:
    """Ceph lists its monitors in the order in which they were given: C(b,a:/x) and C(a,b:/x) are the same."""
    monitors, separator, path = mount.source.rpartition(":/")
    if mount.kind not in ("ceph", "fuse.ceph") or not separator:
        return mount.source.rstrip("/")
    return f"{','.join(sorted(monitors.split(',')))}:/{path}".rstrip("/")


def _find_uuid(device: str) -> t.Optional[str]:
    wanted = os.path.realpath(device)
    names = _list_names(_BY_UUID)
    return next((name for name in names if os.path.realpath(os.path.join(_BY_UUID, name)) == wanted), None)


def _measure_capacity(path: str) -> t.Optional[_Capacity]:
    if not stat.S_ISDIR(os.stat(path).st_mode):
        return None
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _make_printable(name: str) -> str:
    """Return a name as text: names of files may be any bytes, facts must be text."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _can_follow(path: str) -> bool:
    """Whether this user can follow the path: a folder that the user cannot enter could contain a link to any other folder."""
    with contextlib.suppress(FileNotFoundError):
        os.lstat(path)
    return True


def _list_names(folder: str) -> t.List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


class Stores(t.Protocol):
    """Locates the images of a host; only the host itself can do this."""

    def locate_file(self, path: str) -> t.Tuple[t.Optional[bool], t.Optional[str]]:
        """Whether the file is on storage that other hosts see, and its identity on that storage; null if unknown."""

    def locate_device(self, path: str) -> t.Tuple[t.Optional[bool], t.Optional[str]]:
        """The same of a block device."""

    def count_copied_bytes(self, path: str, image_format: str) -> t.Optional[int]:
        """The bytes that a copy of the image would send: all of a raw image, the allocated part of another one."""

    def read_header(self, path: str) -> Header:
        """The further files that the header of an image names. Raises L(Unreadable)."""
