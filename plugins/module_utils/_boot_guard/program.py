# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The program of the boot guard. It runs on a host before libvirt's daemons, and withholds all automatic starts of guests until the host is released.

This file is a standalone program that uses only the standard library: it is installed on the host as it is. State of this boot is in
/run/kvmfleet/guard; state that survives boots is in /var/lib/kvmfleet/guard.

A clean-shutdown token alone does not release a boot: a person may have revoked it while the host was off, and the guests may run elsewhere.
A boot with a token is therefore held until shared storage confirms the token (C(confirm)), after that storage is mounted and before a daemon starts.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fcntl
import json
import os
import subprocess
import sys
import time
import typing as t
import uuid as uuid_module
from xml.etree import ElementTree

BY_CONTROL = "control"
BY_TOKEN = "token"  # noqa: S105 - it names a kind of release
BY_INSTALL = "install"
MARK_CONTENT = "kvmfleet-guard\n"
LIBVIRT_GUESTS = "libvirt-guests.service"
STORAGE_PROGRAM = "usr/local/lib/kvmfleet/kvmfleet-guard-storage"
CONFIRM_SECONDS = 60.0
"""How long the guard waits for shared storage: less than the 90 s that systemd gives a daemon to start."""
# Exit codes of the storage program.
_CONFIRMED, _REVOKED = 0, 10
_POLL_SECONDS = 1.0
_LEAST_SECONDS = 5.0
_UNCONFIRMED = "shared storage has not confirmed the clean-shutdown token yet"
_LONGEST_BYTES = 16 * 1024 * 1024

if t.TYPE_CHECKING:
    Json = t.Union[bool, int, float, str, t.Sequence["Json"], t.Mapping[str, "Json"], None]
    JsonDocument = t.Mapping[str, Json]


class GuardError(Exception):
    """The guard cannot do its work; the text is for a person, and so is the next step."""

    def __init__(self, text: str, next_step: t.Optional[str] = None) -> None:
        super().__init__(text)
        self.next_step = next_step


class Guard:
    """The guard of the host whose file system begins at C(root)."""

    def __init__(self, root: str = "/", confirm_seconds: float = CONFIRM_SECONDS) -> None:
        self.root = root
        self.confirm_seconds = confirm_seconds
        self.run_folder = self.path("run/kvmfleet/guard")
        self.kept_folder = self.path("var/lib/kvmfleet/guard")
        self.held_file = os.path.join(self.run_folder, "held.json")
        self.released_file = os.path.join(self.run_folder, "released.json")
        self.token_file = os.path.join(self.kept_folder, "token.json")
        self.grant_file = os.path.join(self.kept_folder, "grant.json")
        self.revoked_file = os.path.join(self.kept_folder, "revoked.json")
        """Grants that were taken back on this host. No delayed request brings one of them back."""
        self.spent_file = os.path.join(self.kept_folder, "spent.json")
        """The grant of the last token that this host has spent."""
        self.mark = self.path("run/libvirt/qemu/autostarted")
        """Libvirt's own note that it has started this boot's guests (since 5.9.0); its QEMU driver then starts none, in libvirtd and virtqemud alike."""
        self.list_file = self.path("var/lib/libvirt/libvirt-guests")
        """What libvirt-guests starts again: one line for each connection, its URI and the guests that ran at shutdown."""

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def boot_id(self) -> str:
        """Return the kernel's ID of this boot."""
        with open(self.path("proc/sys/kernel/random/boot_id"), encoding="ascii") as stream:
            return str(uuid_module.UUID(stream.read(64).strip()))

    def machine_uuid(self) -> t.Optional[str]:
        """Return the UUID that the firmware reports for this machine, also for a virtual one; null if it reports none."""
        return (_read_text(self.path("sys/class/dmi/id/product_uuid")) or "").strip() or None

    def read_hold(self) -> t.Optional[JsonDocument]:
        """Return what was written when this boot was held; null if that was not done, or not in this boot."""
        return self._of_this_boot(self.held_file)

    def read_release(self) -> t.Optional[JsonDocument]:
        """Return who released this boot and when; null if it was not."""
        document = self._of_this_boot(self.released_file)
        return document if document and document.get("by") in (BY_CONTROL, BY_TOKEN, BY_INSTALL) else None

    def read_grant_id(self) -> t.Optional[str]:
        """Return the ID under which this host may leave clean-shutdown tokens; null if it may not."""
        return _read_uuid(self.read_grant_document(), "grant")

    def read_grant_document(self) -> Json:
        """Return the grant: C(grant), its ID; C(host_id); C(folders), the shared storage that confirms it. Not checked; null if the host has none."""
        return _read_json(self.grant_file)

    def list_revoked_grants(self) -> t.List[str]:
        """Return the grants that were withdrawn on this host."""
        found = _read_json(self.revoked_file)
        return [grant for grant in found if isinstance(grant, str)] if isinstance(found, list) else []

    def hold_boot(self) -> t.Optional[JsonDocument]:
        """Hold all automatic starts, unless this boot was released. Return the release, or null if the host is held.

        A boot with a valid token is held as well, until L(confirm_token). The mark is set first, so that nothing starts even if this process
        dies afterwards. Raises OSError or L(GuardError) where nothing can be held; then no daemon may be started.
        """
        with self.hold_lock():
            released = self.read_release()
            if released is None:
                self._set_mark()
                _remove_file(self.released_file)
            token, why = self._spend_token()
            if released is None and self.read_hold() is None:
                self._write_held(_UNCONFIRMED if token else why, {"unconfirmed": token} if token else {})
            if released is None:
                return None
            if released["by"] == BY_TOKEN:
                self._clear_own_mark()
            elif released["by"] == BY_CONTROL:
                self._set_mark()
            return released

    def confirm_token(self) -> t.Optional[JsonDocument]:
        """Hold this boot, or release it when shared storage confirms its token. Return the release, or null if the host is held.

        Called before every start of a daemon, also when one is restarted. Only the first call of a boot with a token asks the storage, and waits for it
        up to C(confirm_seconds). After that the boot stays held until the control node releases it. Raises what L(hold_boot) does.
        """
        deadline = time.monotonic() + self.confirm_seconds
        while True:
            released = self.hold_boot()
            token = self._read_unconfirmed()
            if released is not None or token is None:
                return released
            code, why = self._ask_storage(token, max(deadline - time.monotonic(), _LEAST_SECONDS))
            if code in (_CONFIRMED, _REVOKED) or time.monotonic() >= deadline:
                self._decide_token(token, code, why)
            else:
                time.sleep(_POLL_SECONDS)

    def release_boot(self, by: str) -> t.Tuple[JsonDocument, bool]:
        """Release this boot, and return the release and whether it was written now. Neither this function nor libvirt starts a guest then.

        The release keeps in C(would_start) what a boot without guard would have started; the caller decides whether to start it. It names in C(grant)
        the grant of the last token that this host has spent: an earlier copy of the disk may have that token too.
        Raises OSError or L(GuardError) where libvirt-guests would start guests afterwards; then the host stays held.
        """
        with self.hold_lock():
            before = self.read_release()
            if before:
                return before, False
            would_start = self.would_start() if by == BY_CONTROL else []
            if by == BY_CONTROL:
                self._set_mark()
                self._set_list_aside()
            grant = self._read_spent_grant()
            document = self._write_released(by, {"would_start": would_start, **({"grant": grant} if grant else {})})
            _remove_file(self.held_file)
            return document, True

    def leave_token(self) -> t.Optional[JsonDocument]:
        """Leave a token for the next boot, at a clean shutdown. Return it; null if none was granted, or if this boot was not released."""
        with self.hold_lock():
            grant = self.read_grant_id()
            if grant is None or self.read_release() is None:
                return None
            token = {"token": str(uuid_module.uuid4()), "grant": grant, "boot_id": self.boot_id(), "at": _utc_now(), "machine": self.machine_uuid()}
            write_json(self.token_file, token)
            return token

    def would_start(self) -> t.List[JsonDocument]:
        """Return the guests that a boot without guard would start: C(uuid) (null if unreadable), C(name), C(why).

        C(why) lists C(autostart), C(once) (libvirt's own restore after a shutdown of the host, since 11.2) and C(libvirt-guests).
        """
        names: t.Dict[t.Tuple[t.Optional[str], t.Optional[str]], t.Optional[str]] = {}
        whys: t.Dict[t.Tuple[t.Optional[str], t.Optional[str]], t.List[str]] = {}
        for uuid, name, why in [*self._list_autostarts(), *self._list_noted_guests()]:
            # A guest without a readable UUID is identified by its name.
            guest = (uuid, None if uuid else name)
            names[guest] = names.get(guest) or name
            if why not in whys.setdefault(guest, []):
                whys[guest].append(why)
        found = sorted(whys, key=lambda guest: (names[guest] or "", guest[0] or ""))
        return [{"uuid": guest[0], "name": names[guest], "why": whys[guest]} for guest in found]

    def report_status(self) -> JsonDocument:
        """Return all that is known about this boot; reads only."""
        held, released, token = self.read_hold(), self.read_release(), _read_json(self.token_file)
        return {
            "boot_id": self.boot_id(),
            "ran": bool(held or released),
            "held": held if released is None else None,
            "released": released,
            "marked": os.path.exists(self.mark),
            "grant": self.read_grant_id(),
            "token": _read_uuid(token, "token"),
            "would_start": self.would_start(),
        }

    def _of_this_boot(self, path: str) -> t.Optional[JsonDocument]:
        document = _read_json(path)
        return document if isinstance(document, dict) and document.get("boot_id") == self.boot_id() else None

    def _write_held(self, why: str, detail: t.Mapping[str, Json]) -> None:
        write_json(self.held_file, {**detail, "boot_id": self.boot_id(), "at": _utc_now(), "why": why})

    def _read_spent_grant(self) -> t.Optional[str]:
        """Return the grant of the last token that was valid, whether it was confirmed or not; null if there was none."""
        in_this_boot = _read_uuid(self._read_unconfirmed(), "grant") or _read_uuid(self.read_hold(), "grant")
        return in_this_boot or _read_uuid(_read_json(self.spent_file), "grant")

    def _read_unconfirmed(self) -> t.Optional[JsonDocument]:
        """Return the token of this boot that shared storage has not confirmed yet: C(token), and its grant's C(grant), C(host_id), C(folders)."""
        token = (self.read_hold() or {}).get("unconfirmed")
        return token if isinstance(token, dict) else None

    def _ask_storage(self, token: JsonDocument, seconds: float) -> t.Tuple[int, str]:
        """Return the exit code of the storage program, and its output. After the time limit it is killed and not waited for: it may hang in the kernel."""
        # libvirt's names of folders are in UTF-8, whatever the locale of the host is.
        command = [sys.executable, "-I", "-X", "utf8", self.path(STORAGE_PROGRAM), json.dumps(token)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace")
        try:
            output, _nothing = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return -1, "shared storage did not answer whether the clean-shutdown token was revoked"
        return process.returncode, (output.strip().splitlines() or ["the storage program said nothing"])[-1]

    def _decide_token(self, token: JsonDocument, code: int, why: str) -> None:
        """Release this boot by its token, or hold it permanently, unless that was decided in the meantime."""
        with self.hold_lock():
            if self.read_release() is not None or self._read_unconfirmed() != token:
                return
            if code == _CONFIRMED and self.read_grant_id() != token["grant"]:
                self._write_held("the grant of the clean-shutdown token was taken back in this boot", {})
                return
            if code == _CONFIRMED:
                self._write_released(BY_TOKEN, {key: token[key] for key in ("token", "grant")})
                _remove_file(self.held_file)
                return
            if code == _REVOKED:
                self._forget_grant(token["grant"])
            self._write_held(why, {"grant": token["grant"]})

    def _forget_grant(self, grant: Json) -> None:
        """Remove the grant of this host if it is that one: it was revoked on shared storage, or its token may come back with an earlier copy of the disk."""
        if self.read_grant_id() == grant:
            _remove_file(self.grant_file)
            sync_folder(self.kept_folder)

    def _write_released(self, by: str, detail: JsonDocument) -> JsonDocument:
        document = {**detail, "boot_id": self.boot_id(), "at": _utc_now(), "by": by}
        write_json(self.released_file, document)
        return document

    def _set_mark(self) -> None:
        os.makedirs(os.path.dirname(self.mark), mode=0o755, exist_ok=True)
        try:
            descriptor = os.open(self.mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if not os.path.exists(self.mark):
                raise GuardError(f"{self.mark} is a link to nothing, which libvirt does not accept as a mark") from None
            return
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(MARK_CONTENT)
        self._restore_label(os.path.dirname(os.path.dirname(self.mark)))

    def _clear_own_mark(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if _read_text(self.mark) == MARK_CONTENT:
                os.unlink(self.mark)

    def _restore_label(self, folder: str) -> None:
        """If SELinux is used, give a folder of libvirt the label that libvirt expects. A daemon that must not write there starts nothing."""
        program = "/usr/sbin/restorecon"
        if self.root == "/" and os.path.exists(program):
            subprocess.run([program, "-R", folder], stdin=subprocess.DEVNULL, check=False, timeout=30)

    def _spend_token(self) -> t.Tuple[t.Optional[JsonDocument], str]:
        """Delete the token in any case. Return it if it is valid, otherwise null and the reason."""
        if not os.path.lexists(self.token_file):
            return None, "there is no clean-shutdown token"
        token, why = self._judge_token(_read_json(self.token_file))
        if token:
            try:
                # Before the token is deleted: a host that loses its power in between has not used it.
                write_json(self.spent_file, {"grant": token["grant"]})
            except OSError as error:
                # On a full disk, for example. The grant of a host that has lost it is replaced as well.
                with contextlib.suppress(OSError):
                    self._forget_grant(token["grant"])
                token, why = None, f"it cannot be noted that the clean-shutdown token was used ({error.strerror}), so it does not count"
        try:
            os.unlink(self.token_file)
            sync_folder(self.kept_folder)
        except OSError as error:
            return None, f"the clean-shutdown token cannot be deleted ({error.strerror}), so it does not count"
        return token, why

    def _judge_token(self, token: Json) -> t.Tuple[t.Optional[JsonDocument], str]:
        """Return what storage has to confirm of a token: C(token), and C(grant), C(host_id) and C(folders) of its grant; or null and why it is not valid."""
        if not isinstance(token, dict) or not _read_uuid(token, "token"):
            return None, "the clean-shutdown token was not readable"
        # Tokens of an earlier version name no machine, and neither do those of a machine whose firmware has no UUID.
        if token.get("machine") not in (None, self.machine_uuid()):
            return None, "the clean-shutdown token was left by another machine: this one has its disk, or a copy of it"
        grant = self.read_grant_document()
        if not isinstance(grant, dict) or token.get("grant") is None or token["grant"] != _read_uuid(grant, "grant"):
            return None, "the clean-shutdown token was left under a grant that this host no longer has"
        if not grant.get("folders"):
            return None, "the grant of the clean-shutdown token names no shared storage that could confirm it"
        return {"token": token["token"], **{key: grant.get(key) for key in ("grant", "host_id", "folders")}}, ""

    def _set_list_aside(self) -> None:
        """Remove the list of guests that ran at the last shutdown, before libvirt-guests is started and reads it."""
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.list_file, self.list_file + ".kvmfleet-held")

    def _list_autostarts(self) -> t.Iterator[t.Tuple[t.Optional[str], str, str]]:
        folder = self.path("etc/libvirt/qemu/autostart")
        for entry in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            stem, suffix = (entry[:-5], "once") if entry.endswith(".once") else (entry, "autostart")
            if stem.endswith(".xml"):
                # The link has the path of the definition on the host, which may differ from the path for this process.
                yield _read_domain_uuid(self.path(f"etc/libvirt/qemu/{stem}")), stem[:-4], suffix

    def _list_noted_guests(self) -> t.Iterator[t.Tuple[t.Optional[str], t.Optional[str], str]]:
        for line in (_read_text(self.list_file) or "").splitlines():
            for word in line.split()[1:]:
                uuid = _read_uuid({"uuid": word}, "uuid")
                if uuid:
                    yield uuid, None, "libvirt-guests"

    @contextlib.contextmanager
    def hold_lock(self) -> t.Iterator[None]:
        self._make_run_folder()
        descriptor = os.open(os.path.join(self.run_folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _make_run_folder(self) -> None:
        """Make the folder and its parent, which the state files of moves share, for root alone."""
        # The mode that is passed to makedirs applies only to the last folder.
        for folder in (os.path.dirname(self.run_folder), self.run_folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.chmod(folder, 0o700)


def start_libvirt_guests() -> None:
    """Start libvirt-guests if it is enabled, so that it shuts guests down with the host: while the host was held, systemd skipped it."""
    if os.path.isdir("/run/systemd/system"):
        is_enabled = subprocess.run(["systemctl", "is-enabled", "--quiet", LIBVIRT_GUESTS], stdin=subprocess.DEVNULL, check=False, timeout=30)
        if is_enabled.returncode == 0:
            subprocess.run(["systemctl", "start", "--no-block", LIBVIRT_GUESTS], stdin=subprocess.DEVNULL, check=True, timeout=30)


def main(arguments: t.Sequence[str]) -> int:
    """Run one verb; return 0, or 1 if a host cannot be held or released."""
    parser = argparse.ArgumentParser(prog="kvmfleet-guard", description="Holds all automatic starts of guests on this host until the host is released.")
    parser.add_argument("--root", default="/", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=CONFIRM_SECONDS, help="how long confirm waits for shared storage")
    parser.add_argument("verb", choices=sorted(VERBS), help="hold, confirm and shutdown are for units; release is for a person without a control node")
    options = parser.parse_args(arguments)
    os.umask(os.umask(0o077) | 0o022)
    try:
        VERBS[options.verb](Guard(options.root, options.seconds))
    except (OSError, ValueError, GuardError, subprocess.SubprocessError) as error:
        next_step = getattr(error, "next_step", None) or _NEXT_STEP.get(options.verb, "")
        sys.stderr.write(f"kvmfleet-guard: {options.verb} failed: {error}. {next_step}\n")
        return 1
    return 0


def _run_hold(guard: Guard) -> None:
    _print_decision(guard, guard.hold_boot())


def _run_confirm(guard: Guard) -> None:
    _print_decision(guard, guard.confirm_token())


def _print_decision(guard: Guard, released: t.Optional[JsonDocument]) -> None:
    if released:
        _print_line(f"This boot was released at {released['at']} by {released['by']}.")
    else:
        held = guard.read_hold() or {}
        _print_line(
            f"Held: no guest starts automatically ({held.get('why', 'nobody released this boot')}). The control node's recover_host releases this host."
        )


def _run_release(guard: Guard) -> None:
    document, is_new = guard.release_boot(BY_CONTROL)
    _print_line(
        f"{'Released' if is_new else 'Released before'}, at {document['at']}. The release started nothing. Without the guard, the boot would have started:"
    )
    starts = t.cast("t.Sequence[t.Mapping[str, t.Any]]", document.get("would_start", ()))
    for start in starts:
        _print_line(f"  {start['uuid']} {start['name'] or ''} ({', '.join(start['why'])})")
    try:
        start_libvirt_guests()
    except (OSError, subprocess.SubprocessError) as error:
        next_step = "The host is released. Start libvirt-guests, which shuts guests down with the host; this starts no guests."
        raise GuardError(f"libvirt-guests could not be started: {error}", next_step) from error


def _run_shutdown(guard: Guard) -> None:
    token = guard.leave_token()
    _print_line(f"Left a token for one boot, under the grant {token['grant']}." if token else "No token is left: the next boot is held.")


def _run_status(guard: Guard) -> None:
    _print_line(json.dumps(guard.report_status(), indent=2))


VERBS: t.Dict[str, t.Callable[[Guard], None]] = {
    "hold": _run_hold,
    "confirm": _run_confirm,
    "release": _run_release,
    "shutdown": _run_shutdown,
    "status": _run_status,
}
_NOT_STARTED = "libvirt's daemon is not started, because its guests could start with it. Repair this, then start the daemon again."
_NEXT_STEP = {
    "hold": _NOT_STARTED,
    "confirm": _NOT_STARTED,
    "release": "The host is still held. Repair this, then release it again.",
}


def _print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _utc_now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _read_text(path: str) -> t.Optional[str]:
    """Return the text of a file; null if it does not exist or cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(_LONGEST_BYTES)
    except OSError:
        return None


def _read_json(path: str) -> Json:
    """Return the document of a file; null if the file does not exist or is not JSON."""
    try:
        document: Json = json.loads(_read_text(path) or "null")
    except (ValueError, RecursionError):
        return None
    return document


def _read_uuid(document: Json, key: str) -> t.Optional[str]:
    value = document.get(key) if isinstance(document, dict) else None
    try:
        return str(uuid_module.UUID(value)) if isinstance(value, str) else None
    except ValueError:
        return None


def _read_domain_uuid(path: str) -> t.Optional[str]:
    """Return the UUID of a domain's definition."""
    try:
        return _read_uuid({"uuid": (ElementTree.parse(path).getroot().findtext("uuid") or "").strip()}, "uuid")
    except (OSError, ElementTree.ParseError):
        return None


def write_json(path: str, document: Json) -> None:
    """Replace the file in one step, on disk when this returns."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(document, stream)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError:
        # A full disk would get another one at each boot.
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(os.path.dirname(path))


def sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_file(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
