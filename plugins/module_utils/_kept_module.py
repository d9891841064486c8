# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A standalone program that runs a module from an archive that the host keeps. C(plugin_utils/_kept_modules) sends it with the options of one call.

The archive has the files of Ansible's own payload, each also compiled. It is in the folder C(/run/kvmfleet), which only root can read. Before anything is
run, the program checks owner, mode and checksum of the archive. If the archive is missing or not trusted, it says so, and the module is sent as usual.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import sys
import time

ANSWER = "_kvmfleet_kept"
# There is no archive yet; or none can be kept or trusted here.
MISSING, UNUSABLE = "missing", "unusable"
PREFIX, PARTIAL = "module-", ".module-"
DIGEST_LENGTH = 64
# An archive that no call has used for that long belongs to another version of the collection, or to a call that was killed.
UNUSED_SECONDS = 3600


class NotRun(Exception):
    """The module was not run. The text is C(MISSING) or C(UNUSABLE)."""


def run_kept_module(folder: str, name: str, module_fqn: str, params: str, profile: str, rlimit_nofile: int, payload: str | None = None) -> None:
    """Run the module with these options, which ends the process. If nothing was run, print the reason.

    :arg name: of the module, with the checksum of its files.
    :arg payload: Ansible's payload, to be kept first.
    """
    prepare_process(rlimit_nofile)
    path = os.path.join(folder, f"{PREFIX}{name}.{sys.implementation.cache_tag}.zip")
    try:
        find_archive(folder, path, payload)
    except (OSError, ValueError, SyntaxError):
        sys.stdout.write(json.dumps({ANSWER: UNUSABLE}))
    except NotRun as reason:
        sys.stdout.write(json.dumps({ANSWER: str(reason)}))
    else:
        with contextlib.suppress(OSError):
            sweep_archives(folder, path)
        run_archive(path, module_fqn, params, profile)


def prepare_process(rlimit_nofile: int) -> None:
    """Do what Ansible's own wrapper does before it runs a module."""
    try:
        os.getcwd()
    except OSError:
        try:
            os.chdir(os.path.expanduser("~"))
        except OSError:
            os.chdir("/")
    if rlimit_nofile:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if min(hard, rlimit_nofile) != soft:
            with contextlib.suppress(ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, rlimit_nofile), hard))
    sys.path = [entry for entry in sys.path if entry not in ("", ".")]


def find_archive(folder: str, path: str, payload: str | None) -> None:
    """Check the folder and the archive; with a payload, keep it first. Raises L(NotRun)."""
    if os.geteuid() != 0:
        raise NotRun(UNUSABLE)
    if payload is not None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
    check_folder(folder)
    if payload is not None:
        keep_archive(folder, path, payload)
    check_archive(path)
    os.utime(path)


def check_folder(folder: str) -> None:
    """Raise L(NotRun) unless the folder belongs to this user, and nobody else can read or write it."""
    try:
        status = os.lstat(folder)
    except FileNotFoundError as error:
        raise NotRun(MISSING) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise NotRun(UNUSABLE)


def check_archive(path: str) -> bytes:
    """Return the content of the archive. Raises L(NotRun) unless it is a file of this user alone, with the content that was written."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotRun(MISSING) from error
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1
        if not is_own or stat.S_IMODE(status.st_mode) != 0o600:
            raise NotRun(UNUSABLE)
        content = stream.read()
    if digest_of(content[:-DIGEST_LENGTH]) != content[-DIGEST_LENGTH:]:
        # The next call replaces it.
        raise NotRun(MISSING)
    return content[:-DIGEST_LENGTH]


def digest_of(content: bytes) -> bytes:
    """Return the checksum at the end of an archive with this content."""
    return hashlib.sha256(content).hexdigest().encode()


def keep_archive(folder: str, path: str, payload: str) -> None:
    """Write the archive of this payload."""
    import base64

    write_archive(folder, path, compile_payload(base64.b64decode(payload), path))


def write_archive(folder: str, path: str, content: bytes) -> None:
    """Write this content under another name, and rename the file when it is complete."""
    import tempfile

    descriptor, partial = tempfile.mkstemp(prefix=PARTIAL, dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        os.rename(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def compile_payload(payload: bytes, path: str) -> bytes:
    """Return the archive at that path: the files of the payload, each Python file also compiled, and at the end the checksum of all that."""
    import importlib.util
    import io
    import marshal
    import zipfile

    output = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(payload)) as given, zipfile.ZipFile(output, "w") as kept:
        for name in given.namelist():
            source = given.read(name)
            kept.writestr(zipfile.ZipInfo(name), source, zipfile.ZIP_DEFLATED)
            if name.endswith(".py"):
                code = compile(source, os.path.join(path, name), "exec", dont_inherit=True)
                # PEP 552: with flag 1, the file is not compared with its source.
                header = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
                kept.writestr(zipfile.ZipInfo(f"{name}c"), header + marshal.dumps(code))
        kept.comment = b"0" * DIGEST_LENGTH
    content = output.getvalue()[:-DIGEST_LENGTH]
    return content + digest_of(content)


def sweep_archives(folder: str, path: str, unused_seconds: float = UNUSED_SECONDS) -> None:
    """Remove archives other than this one that are no longer used, and what was left of one that was not completed."""
    oldest = time.time() - unused_seconds
    for entry in os.scandir(folder):
        if entry.name.startswith((PREFIX, PARTIAL)) and entry.path != path and entry.stat(follow_symlinks=False).st_mtime < oldest:
            os.unlink(entry.path)


def run_archive(path: str, module_fqn: str, params: str, profile: str) -> None:
    """Run the module as Ansible's own wrapper does."""
    sys.path.insert(0, path)
    from ansible.module_utils._internal._ansiballz import _loader

    _loader.run_module(json_params=params.encode(), profile=profile, module_fqn=module_fqn, modlib_path=path, extensions={})
