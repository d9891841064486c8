# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reads from the header of an image which further files it needs: its backing file, and the file that has its data.

libvirt lists backing files only of active domains, and data files only since 10.10 (docs/libvirt.md, "Definitions and images"). qemu-img may not be installed
on a host. The header is therefore read here (QEMU: docs/interop/qcow2.txt). A disk that is declared raw has no header: its guest writes the first bytes.
"""

from __future__ import annotations

import json
import os
import re
import stat
import struct
import subprocess
import typing as t

from .._dataclass import dataclass
from .._model.definition_files import CLUSTERS
from .._model.libvirt_formats import is_loopback

RAW = "raw"
FILE, NETWORK, UNKNOWN = "file", "network", "unknown"

_MAX_NAME = 4096
# The whole header is in the first cluster, of at most 2 MiB; its extensions are a few hundred bytes, and bitmaps one entry.
_HEADER_BYTES = 65536
# Magic, version, the offset and length of the backing file's name; the same in qcow, the predecessor of qcow2.
_START = struct.Struct(">4sIQI")
_CAPACITY_AT = 24
_MAGIC = b"QFI\xfb"
_FEATURES_AT, _LENGTH_AT, _SHORT_LENGTH = 72, 100, 72
_HAS_DATA_FILE = 1 << 2
_EXTENSION = struct.Struct(">II")
_END, _BACKING_FORMAT, _DATA_FILE = 0, 0xE2792ACA, 0x44415441
# Formats whose images may name a parent in a form that is not supported here.
_UNREAD = {b"QED\0": "qed", b"KDMV": "vmdk", b"COWD": "vmdk", b"vhdx": "vhdx", b"conecti": "vpc"}
_OF_A_NETWORK = ("nbd", "rbd", "iscsi", "gluster", "ssh", "http", "https", "ftp", "ftps", "nfs", "sheepdog", "vxhs", "tftp")
_OF_A_HOST = ("file", "host_device", "host_cdrom")
_SERVER = re.compile(r"(?://)?(?:[^@/]*@)?(\[[^\]]*\]|[^:/?]*)")
_PROTOCOL = re.compile(r"([A-Za-z0-9_+.-]+):")
_AS_OWNER_SECONDS = 5.0


class Unreadable(Exception):
    """The files that an image needs are unknown. The text states the reason."""


@dataclass(frozen=True)
class Header:
    """The names that the image contains; null if it has none. C(backing_format) is null if the image does not state it.

    :arg capacity_bytes: what the guest sees; null for an image without a header, and for qcow.
    """

    backing: t.Optional[str] = None
    backing_format: t.Optional[str] = None
    data_file: t.Optional[str] = None
    capacity_bytes: t.Optional[int] = None


@dataclass(frozen=True)
class Named:
    """The target of a name in an image: C(kind) FILE (a file or a device) with its absolute C(path), NETWORK, or UNKNOWN."""

    kind: str
    path: str = ""


def read_header(path: str) -> Header:
    """Return the header of an image; an empty one for an image without a header, and for a file that does not exist. Raises L(Unreadable)."""
    try:
        content = _read_beginning(path)
    except FileNotFoundError:
        return Header()
    except PermissionError as error:
        content = _read_as_owner(path, error)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error
    return parse_header(content, path)


class Files(t.Protocol):
    """Reads files of the host that has the images."""

    def read_header(self, path: str) -> Header:
        """The further files that the header of an image names. Raises L(Unreadable)."""

    def is_device(self, path: str) -> bool:
        """Whether the path is that of a block device."""


class OwnFiles:
    """Implements L(Files) for the host that this runs on, without a time limit."""

    def read_header(self, path: str) -> Header:
        return read_header(path)

    def is_device(self, path: str) -> bool:
        try:
            return stat.S_ISBLK(os.stat(path).st_mode)
        except OSError:
            return path.startswith("/dev/")


def _read_beginning(path: str) -> bytes:
    # Do not wait if the path is a pipe.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as stream:
        mode = os.fstat(handle).st_mode
        return stream.read(_HEADER_BYTES) if stat.S_ISREG(mode) or stat.S_ISBLK(mode) else b""


def _read_as_owner(path: str, error: OSError) -> bytes:
    """Read the beginning of a file as its owner: on NFS, root may be mapped to nobody and cannot read files of QEMU's user."""
    try:
        owner = os.stat(path)
        found = subprocess.run(
            ["head", "-c", str(_HEADER_BYTES), path],
            user=owner.st_uid,
            group=owner.st_gid,
            extra_groups=[],
            capture_output=True,
            timeout=_AS_OWNER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        found = None
    if found is None or found.returncode != 0:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error
    return found.stdout


def parse_header(content: bytes, path: str) -> Header:
    """Return the header in the first bytes of an image. Raises L(Unreadable) for an unsupported format and for a damaged header."""
    for magic, image_format in _UNREAD.items():
        if content.startswith(magic):
            raise Unreadable(f"the backing file of {path}, an image of the format {image_format}, cannot be read")
    if len(content) < _START.size or not content.startswith(_MAGIC):
        return Header()
    _magic, version, offset, length = _START.unpack_from(content)
    backing = _name_at(content, offset, length, path) if offset and length else None
    if version < 2:
        return Header(backing)
    extensions = _read_extensions(content, version, path)
    data_file = _decode_text(extensions.get(_DATA_FILE)) if _has_data_file(content, version) else None
    return Header(backing, _decode_text(extensions.get(_BACKING_FORMAT)), data_file, _read_capacity(content))


def _read_capacity(content: bytes) -> t.Optional[int]:
    return struct.unpack_from(">Q", content, _CAPACITY_AT)[0] if len(content) >= _CAPACITY_AT + 8 else None


def _has_data_file(content: bytes, version: int) -> bool:
    return version >= 3 and len(content) >= _FEATURES_AT + 8 and bool(struct.unpack_from(">Q", content, _FEATURES_AT)[0] & _HAS_DATA_FILE)


def _name_at(content: bytes, offset: int, length: int, path: str) -> str:
    if length > _MAX_NAME or offset + length > len(content):
        raise Unreadable(f"{path} has no valid header")
    return os.fsdecode(content[offset : offset + length])


def _read_extensions(content: bytes, version: int, path: str) -> t.Dict[int, bytes]:
    found: t.Dict[int, bytes] = {}
    at = struct.unpack_from(">I", content, _LENGTH_AT)[0] if version >= 3 and len(content) >= _LENGTH_AT + 4 else _SHORT_LENGTH
    while at + _EXTENSION.size <= len(content):
        kind, length = _EXTENSION.unpack_from(content, at)
        at += _EXTENSION.size
        if kind == _END:
            break
        if at + length > len(content):
            raise Unreadable(f"{path} has no valid header")
        found[kind] = content[at : at + length]
        at += -(-length // 8) * 8
    return found


def _decode_text(value: t.Optional[bytes]) -> t.Optional[str]:
    return os.fsdecode(value.rstrip(b"\0")) if value else None


def locate_name(name: str, path: str) -> Named:
    """Return the target of a name in the header of the image at C(path), as QEMU resolves it."""
    if name.startswith("json:"):
        return _locate_in_json(name[len("json:") :], path)
    protocol = _PROTOCOL.match(name.partition("/")[0] + ("/" if "/" in name else ""))
    if protocol is None:
        return Named(FILE, _resolve_path(name, path))
    return _of_protocol(protocol[1], name[protocol.end() :], path)


def _of_protocol(scheme: str, name: str, path: str) -> Named:
    protocol, _plus, transport = scheme.partition("+")
    if protocol in _OF_A_HOST:
        return Named(FILE, _resolve_path(name, path))
    server = _SERVER.match(name)
    return _on_server(protocol, transport == "unix" or name.startswith("unix:"), server[1] if server else "")


def _on_server(protocol: str, is_socket: bool, server: str) -> Named:
    """Return where an image of the network is: unknown if its own host serves it, because another host has another one under that name, or none."""
    is_own = protocol not in CLUSTERS and (is_socket or is_loopback(server))
    return Named(NETWORK if protocol in _OF_A_NETWORK and not is_own else UNKNOWN)


def _resolve_path(name: str, path: str) -> str:
    """Return the absolute path. A relative name is looked for in the folder of the image's path, and then in the folder to which a link leads."""
    beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
    if os.path.isabs(name) or os.path.lexists(beside):
        return beside
    return os.path.normpath(os.path.join(os.path.dirname(os.path.realpath(path)), name))


def _locate_in_json(text: str, path: str) -> Named:
    """Read QEMU's description of a block device: C({"driver": "qcow2", "file": {"driver": "file", "filename": ...}}), also with dotted keys."""
    try:
        described = json.loads(text)
    except (ValueError, RecursionError):
        return Named(UNKNOWN)
    while isinstance(described, dict):
        inner = {key[len("file.") :]: value for key, value in described.items() if key.startswith("file.")}
        if not inner and "file" not in described:
            break
        described = described.get("file", inner)
    if not isinstance(described, dict):
        return Named(UNKNOWN)
    driver, filename = described.get("driver", "file"), described.get("filename")
    if not isinstance(filename, str) or driver not in _OF_A_HOST:
        return _on_server(str(driver), *_find_server(str(driver), described))
    return Named(FILE, _resolve_path(filename, path))


def _find_server(driver: str, described: t.Mapping[str, t.Any]) -> t.Tuple[bool, str]:
    """Return whether the server of an image is a socket of the host itself, and else its host; empty if none is named.

    NBD also has its older form, without C(server); iSCSI has a portal, and HTTP a URL.
    """
    server = described.get("server")
    flat = {key[len("server.") :]: value for key, value in described.items() if key.startswith("server.")}
    address = server if isinstance(server, dict) else flat or described
    named = _SERVER.match(str(described.get("portal") or str(described.get("url", "")).partition(":")[2]))
    return address.get("type") == "unix" or (driver == "nbd" and "path" in address), str(address.get("host") or (named[1] if named else ""))
