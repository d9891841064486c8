# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Modules that are kept on hosts: the first call leaves the module there, compiled, and later calls send their options alone.

Ansible packs a module, sends it, and compiles it on the host for each task. Here the control node packs it once for each version of the module, and keeps that
payload; each host gets it once, and compiles it. The rest of the call is Ansible's: environment, interpreter, privileges, and reading the answer. In any other
than the plain case the module is sent as usual: without pipelining, as another user than root, in the background, with extensions of Ansible for debugging,
with overridden module utilities, and with a version of Ansible whose inner functions have another form.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import hashlib
import importlib
import inspect
import io
import json
import os
import re
import types
import typing as t
import zipfile

from ansible.plugins.action import ActionBase

from ansible_collections.kvmfleet.migration.plugins.module_utils import _kept_module as program
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import RUN_FOLDER
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ssh_keepalive import end_silent_connection

Result = dict[str, t.Any]

COLLECTION = "kvmfleet.migration."
# The folder below ANSIBLE_HOME for payloads, and how long one is kept that no run has used.
PAYLOADS = "kvmfleet-payloads"
_UNUSED_SECONDS = 30 * 86400
_PROFILE = "legacy"
# The variable with which Python does not use the encoding of the locale (PEP 540).
_UTF8 = "PYTHONUTF8"
_PAYLOAD = re.compile(rb"^zip_data='([A-Za-z0-9+/=]+)',$", re.MULTILINE)
_PACKED_FOLDER = "ansible_collections/kvmfleet/migration/"
_RUN_PARAMETERS = ["json_params", "profile", "module_fqn", "modlib_path", "extensions", "init_globals"]
_MODULE_UTILS = os.path.dirname(program.__file__)


@dataclass(frozen=True)
class Launch:
    """One call of a kept module.

    :arg path: of the module on the control node.
    :arg keeps: whether the call sends the module, to keep it.
    """

    module: str
    path: str
    shebang: str
    rlimit_nofile: int
    keeps: bool = False

    @property
    def name(self) -> str:
        """The name of what is kept: of the module, with the checksum of its files."""
        return f"{self.module}-{checksum_module(self.path)}"

    def script(self, params: str, payload: str | None, folder: str = RUN_FOLDER) -> bytes:
        """Return the program for the host, with the options of the module, and with Ansible's payload if the host is to keep it."""
        module_fqn = f"ansible_collections.{COLLECTION}plugins.modules.{self.module}"
        call = f"run_kept_module({folder!r}, {self.name!r}, {module_fqn!r}, {params!r}, {_PROFILE!r}, {self.rlimit_nofile!r}, {payload!r})"
        return _read_program() + f"\n\n{call}\n".encode()


def warning_text(warning: object) -> str:
    """Return the text of a warning in the result of a module; since ansible-core 2.19, it is an object."""
    return str(getattr(getattr(warning, "event", None), "msg", warning))


class KeptModuleAction(ActionBase):
    """An action plugin whose modules are kept on the hosts."""

    _launch: Launch | None = None

    def __init__(self, *args: t.Any, **kwargs: t.Any) -> None:
        super().__init__(*args, **kwargs)
        end_silent_connection(self._connection)

    def _execute_module(
        self, module_name: str | None = None, module_args: t.Mapping[str, t.Any] | None = None, task_vars: Result | None = None, **more: t.Any
    ) -> Result:
        """Run the module as Ansible does, if possible from what the host has kept of it. Warnings are texts."""
        result = self._execute_kept(module_name, module_args, task_vars, more)
        if "warnings" in result:
            result["warnings"] = list(map(warning_text, result["warnings"]))
        return result

    def _execute_kept(self, module_name: str | None, module_args: t.Mapping[str, t.Any] | None, task_vars: Result | None, more: Result) -> Result:
        launch = None if any(more.values()) else self._find_launch(module_name or self._task.action, task_vars or {})
        args = self._task.args if module_args is None else module_args
        for keeps in (False, True) if launch else ():
            self._launch = dataclasses.replace(t.cast(Launch, launch), keeps=keeps)
            try:
                result: Result = super()._execute_module(module_name=module_name, module_args=dict(args), task_vars=task_vars)
            finally:
                self._launch = None
            if program.ANSWER not in result:
                return result
            if result[program.ANSWER] != program.MISSING:
                break
        return t.cast(Result, super()._execute_module(module_name=module_name, module_args=module_args, task_vars=task_vars, **more))

    def _configure_module(self, module_name: str, module_args: Result, task_vars: Result) -> t.Any:
        """Return what Ansible sends: of a kept module the program that runs it."""
        launch, internals = self._launch, load_internals()
        if launch is None or internals is None:
            return super()._configure_module(module_name, module_args, task_vars)
        params = json.dumps({"ANSIBLE_MODULE_ARGS": module_args}, cls=internals.encoder)
        parts = {"module_style": "new", "shebang": launch.shebang, "serialization_profile": _PROFILE}
        payload, folder = None, find_payload_folder(internals)
        if launch.keeps and (payload := read_payload(folder, launch)) is None:
            built, path = super()._configure_module(module_name, module_args, task_vars)
            found = _PAYLOAD.search(built.b_module_data)
            payload = found[1].decode() if found and built.serialization_profile == _PROFILE else None
            # What was packed before or during an upgrade is not what the name says, and is not kept: Ansible packs a module once for a whole run.
            if payload is None or not is_packed_from_disk(payload, launch) or compute_checksum(launch.path) != checksum_module(launch.path):
                return built, path
            keep_payload(folder, launch.name, payload)
        return internals.built_module(b_module_data=launch.script(params, payload), **parts), launch.path

    def _compute_environment_string(self, raw_environment_out: dict[str, t.Any] | None = None) -> str:
        """Return the variables that Ansible sets for a module, and that Python names files in UTF-8, as libvirt does, whatever the locale of the host is."""
        environment: dict[str, t.Any] = {}
        text = str(super()._compute_environment_string(environment))
        if raw_environment_out is not None:
            raw_environment_out.clear()
            raw_environment_out.update(environment)
        return text if _UTF8 in environment else f"{text} {self._connection._shell.env_prefix(**{_UTF8: '1'})}".strip()

    def _find_launch(self, name: str, task_vars: Result) -> Launch | None:
        """Return the call of the module if it can be kept on the host; None if it is sent as usual."""
        internals = load_internals()
        if internals is None or not name.startswith(COLLECTION) or self._task.async_val or not self._is_pipelining_enabled("new"):
            return None
        if not self._is_root() or internals.extensions(task_vars=task_vars).extension_names or _has_own_utilities():
            return None
        found = self._shared_loader_obj.module_loader.find_plugin_with_context(name, ".py")
        limit = internals.config("PYTHON_MODULE_RLIMIT_NOFILE", variables=task_vars)
        shebang = self._find_shebang(internals, task_vars)
        if not found.plugin_resolved_path or shebang is None or not isinstance(limit, int):
            return None
        return Launch(name.removeprefix(COLLECTION), found.plugin_resolved_path, shebang, limit)

    def _is_root(self) -> bool:
        become = self._connection.become
        return bool((self.get_become_option("become_user") if become else self._get_remote_user()) == "root")

    def _find_shebang(self, internals: Internals, task_vars: Result) -> str | None:
        """Return the first line that Ansible would give the module; None if it does not know the interpreter of the host yet, and has to find it."""
        delegated = self._task.delegate_to
        use_vars = (task_vars.get("ansible_delegated_vars") or {}).get(delegated) if delegated else task_vars
        is_local = bool(getattr(self._connection, "_remote_is_local", False))
        try:
            return str(internals.shebang("/usr/bin/python", use_vars, self._templar, (), remote_is_local=is_local)[0])
        except internals.discovery_required:
            return None


def find_payload_folder(internals: Internals) -> str:
    """Return the folder in which this user keeps payloads."""
    return os.path.join(internals.config("ANSIBLE_HOME"), PAYLOADS)


def read_payload(folder: str, launch: Launch) -> str | None:
    """Return the payload that this user has kept in the folder; None if there is none, if another user could have written it, or if it is another version's."""
    path = os.path.join(folder, f"{program.PREFIX}{launch.name}")
    try:
        program.check_folder(folder)
        payload = program.check_archive(path).decode("ascii")
        os.utime(path)
    except (program.NotRun, OSError, ValueError):
        return None
    return payload if is_packed_from_disk(payload, launch) else None


def is_packed_from_disk(payload: str, launch: Launch) -> bool:
    """Whether the module and the utilities of the collection in a payload are those on the disk."""
    collection = os.path.dirname(os.path.dirname(os.path.dirname(launch.path)))
    try:
        with zipfile.ZipFile(io.BytesIO(base64.b64decode(payload))) as archive:
            packed = {name.removeprefix(_PACKED_FOLDER): archive.read(name) for name in archive.namelist() if name.startswith(_PACKED_FOLDER)}
        # Ansible adds empty files for packages that have none.
        return f"plugins/modules/{launch.module}.py" in packed and all(_is_on_disk(os.path.join(collection, name), packed[name]) for name in packed)
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def _is_on_disk(path: str, content: bytes) -> bool:
    if not content and not os.path.exists(path):
        return True
    with open(path, "rb") as stream:
        return stream.read() == content


def keep_payload(folder: str, name: str, payload: str) -> None:
    """Keep the payload, unless the folder cannot be written, or others can write to it."""
    path = os.path.join(folder, f"{program.PREFIX}{name}")
    with contextlib.suppress(program.NotRun, OSError):
        os.makedirs(folder, 0o700, exist_ok=True)
        program.check_folder(folder)
        content = payload.encode()
        program.write_archive(folder, path, content + program.digest_of(content))
        program.sweep_archives(folder, path, _UNUSED_SECONDS)


@dataclass(frozen=True)
class Internals:
    """The inner functions of Ansible that are used."""

    built_module: t.Any
    shebang: t.Callable[..., tuple[str, str]]
    discovery_required: type[Exception]
    encoder: type[json.JSONEncoder]
    extensions: t.Callable[..., t.Any]
    config: t.Callable[..., t.Any]


@functools.cache
def load_internals() -> Internals | None:
    """Return the inner functions of Ansible; None in a version where they are missing or have another form."""
    try:
        common, discovery, encoders, builder, loader, constants = map(importlib.import_module, _INTERNAL_MODULES)
        internals = Internals(
            common._BuiltModule,
            common._get_shebang,
            discovery.InterpreterDiscoveryRequiredError,
            encoders.get_module_encoder(_PROFILE, encoders.Direction.CONTROLLER_TO_MODULE),
            builder.ExtensionManager.create,
            constants.config.get_config_value,
        )
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    return internals if _has_known_form(common, loader) else None


_INTERNAL_MODULES = (
    "ansible.executor.module_common",
    "ansible.executor.interpreter_discovery",
    "ansible.module_utils.common.json",
    "ansible._internal._ansiballz._builder",
    "ansible.module_utils._internal._ansiballz._loader",
    "ansible.constants",
)


def _has_known_form(common: types.ModuleType, loader: types.ModuleType) -> bool:
    fields = [field.name for field in dataclasses.fields(common._BuiltModule)]
    known_fields = ["b_module_data", "module_style", "shebang", "serialization_profile"]
    return fields == known_fields and list(inspect.signature(loader.run_module).parameters) == _RUN_PARAMETERS


def _has_own_utilities() -> bool:
    """Whether Ansible is configured to look for module utilities elsewhere: they may replace its own in a module."""
    loader = importlib.import_module("ansible.plugins.loader").module_utils_loader
    own = importlib.import_module("ansible.module_utils").__path__[0]
    return any(os.path.realpath(path) != os.path.realpath(own) for path in loader._get_paths(subdirs=False) if os.path.isdir(path))


@functools.cache
def _read_program() -> bytes:
    with open(program.__file__, "rb") as stream:
        return stream.read()


@functools.cache
def checksum_module(path: str) -> str:
    """Return the checksum of the module when this process has first asked for it."""
    return compute_checksum(path)


def compute_checksum(path: str) -> str:
    """Return a checksum of the module with all that may be sent with it: utilities of the collection, and those of Ansible by version, name and size."""
    digest = hashlib.sha256(str(importlib.import_module("ansible.release").__version__).encode())
    for name, file in [(os.path.basename(path), path), *_list_files(_MODULE_UTILS)]:
        with open(file, "rb") as stream:
            digest.update(f"{name}\0".encode() + stream.read())
    for name, file in _list_files(importlib.import_module("ansible.module_utils").__path__[0]):
        digest.update(f"{name}\0{os.path.getsize(file)}\0".encode())
    return digest.hexdigest()[:16]


def _list_files(folder: str) -> list[tuple[str, str]]:
    """Return the Python files in a folder, by their path there, in order."""
    found = [os.path.join(parent, name) for parent, _folders, names in os.walk(folder) for name in names if name.endswith(".py")]
    return sorted((os.path.relpath(file, folder), file) for file in found)
