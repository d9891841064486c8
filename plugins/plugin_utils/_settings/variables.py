# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The collection's variables and facts by host, and variables as a running task sees them."""

from __future__ import annotations

import re
import typing as t
import urllib.parse

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment, read_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, ShapeError, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts, HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import TRANSPORTS, check_address, check_uri, remote_uri
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import DEFAULTS, PROFILE_FIELDS, check_fields
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import decrypt_values
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.resource_maps import read_maps
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.scheduler import SchedulerSettings

# The fact's key with the moment of receipt.
RECEIPT_KEY = "received"
# The address of a host on a second network.
SECOND_ADDRESS = "kvmfleet_second_address"


def read_facts(facts: JsonObject) -> HostFacts:
    """Return C(kvmfleet_host) of a host. Raises L(ShapeError) if it has no list of domains: nothing can be concluded from such facts."""
    found = decode(HostFacts, facts)
    if found.domains is ABSENT or found.domains is None:
        raise ShapeError("domains", "the list of domains", facts.get("domains", ABSENT))
    return found


def read_reported_domains(facts: JsonObject | None) -> tuple[DomainFacts, ...] | None:
    """Return the domains in C(kvmfleet_host) of a host; None for a host that has not reported any, not even that it has none."""
    domains = decode(HostFacts, facts).domains if facts else None
    return None if domains is ABSENT else domains


def with_receipt(facts: JsonObject) -> dict[str, Json]:
    """Return the facts with the moment of their receipt, the current time."""
    return {**facts, RECEIPT_KEY: encode(boot_moment())}


def age_seconds(facts: JsonObject) -> float | None:
    """Return how long ago this control node received the facts; None if that is unknown."""
    then = read_moment(facts.get(RECEIPT_KEY))
    age = boot_moment().seconds_since(then) if then else None
    return None if age is None else max(0.0, age)


def is_since(facts: JsonObject, since: BootMoment) -> bool:
    """Whether this control node received the facts at that moment or later."""
    then = read_moment(facts.get(RECEIPT_KEY))
    later = then.seconds_since(since) if then else None
    return later is not None and later >= 0


FLEET_GROUP = "kvmfleet_hosts"
# Older facts do not show the current state of a host.
FACTS_MAX_AGE_SECONDS = 60
FACTS_VARIABLE = "ansible_facts"
OVERRIDE_VARIABLE = "kvmfleet_override_policy_allowed"
_HOST_POLICY_FIELDS = (*DEFAULTS, "priority", "drain")


class LedgerLocation(t.NamedTuple):
    """The arguments of L(open_ledger).

    :arg etcd: C(kvmfleet_etcd), with a password in it: never shown.
    """

    location: t.Optional[str]
    etcd: Json


class Settings:
    """Looks up variables by host.

    :arg task_vars: C(hostvars), the variables of each host, templated; C(groups), names of hosts by group.
    """

    def __init__(self, task_vars: JsonObject) -> None:
        self._hostvars = t.cast("t.Mapping[str, JsonObject]", task_vars["hostvars"])
        self._groups = t.cast("t.Mapping[str, t.Sequence[str]]", task_vars.get("groups", {}))

    def of(self, host: str, variable: str, default: Json = None) -> Json:
        """Return that variable of that host; the default if the inventory has neither."""
        if host not in self._hostvars:
            return default
        value = self._hostvars[host].get(variable)
        return default if value is None else value

    def owner(self, host: str, variable: str) -> str:
        """Return the host whose variable applies to that host."""
        return host

    def is_known(self, host: str) -> bool:
        """Whether the inventory has the host."""
        return host in self._hostvars

    def fleet(self) -> t.List[str]:
        """Return the hosts of the group C(kvmfleet_hosts); all hosts if that group is missing."""
        return list(self._groups.get(FLEET_GROUP, self._groups.get("all", [])))

    def ledger(self, host: str, option: t.Optional[str]) -> LedgerLocation:
        """Return the location of the ledger: the task's option, else C(kvmfleet_ledger); none means the default location."""
        return LedgerLocation(option or t.cast("str | None", self.of(host, "kvmfleet_ledger")), self.of(host, "kvmfleet_etcd"))

    def libvirt_uri(self, host: str, source: str, transport: t.Optional[str] = None) -> str:
        """Return the URI by which the source's libvirt reaches that host: its C(kvmfleet_libvirt_uri), else one built from its address.

        The name of a host that is not in the inventory is used as an address.
        """
        own = self.of(host, "kvmfleet_libvirt_uri")
        if own:
            return check_uri(own, f"kvmfleet_libvirt_uri of {host}")
        chosen = transport or self.of(source, "kvmfleet_transport", "ssh")
        if chosen not in TRANSPORTS:
            raise InvalidArgument(f"kvmfleet_transport of {source} is {chosen!r}.", f"Give one of: {', '.join(TRANSPORTS)}.")
        return remote_uri(str(self.of(host, "ansible_host", host)), chosen)

    def host_at(self, uri: str) -> str:
        """Return the inventory name of the host that a libvirt URI leads to; the URI's own host if the inventory has no such host.

        A host is known by its C(ansible_host), its name, or the host in its C(kvmfleet_libvirt_uri).
        """
        address = _host_in_uri(uri) or uri
        for host in self._groups.get("all", self._hostvars):
            own = str(self.of(host, "kvmfleet_libvirt_uri") or "")
            if address in (str(self.of(host, "ansible_host", host)).lower(), str(host).lower(), _host_in_uri(own)):
                return str(host)
        return address

    def migrate_uri(self, host: str) -> t.Optional[str]:
        """Return the URI for the memory stream: with the host's C(kvmfleet_migration_address) if it has one."""
        address = self.of(host, "kvmfleet_migration_address")
        if not address:
            return None
        text = check_address(str(address))
        return f"tcp://[{text}]" if ":" in text and not text.startswith("[") else f"tcp://{text}"

    def policy(self, host: str) -> JsonObject:
        """Return C(kvmfleet_migration_policy) of the host: its default for moves that start on it."""
        policy = self.of(host, "kvmfleet_migration_policy", {})
        if not isinstance(policy, t.Mapping):
            raise InvalidArgument(f"kvmfleet_migration_policy of {host} is {policy!r}, which is not a dictionary.")
        unknown = [str(field) for field in policy if field not in _HOST_POLICY_FIELDS]
        if unknown:
            raise InvalidArgument(
                f"kvmfleet_migration_policy of {host} has unknown keys: {', '.join(unknown)}.", f"Valid names are: {', '.join(_HOST_POLICY_FIELDS)}."
            )
        return policy

    def allows_override(self, host: str) -> bool:
        """Return C(kvmfleet_override_policy_allowed), which is true by default. Raises L(InvalidArgument) for a value that is not a boolean."""
        value = self.of(host, OVERRIDE_VARIABLE, True)
        try:
            return bool(boolean(value))
        except TypeError:
            raise InvalidArgument(f"{OVERRIDE_VARIABLE} of {self.owner(host, OVERRIDE_VARIABLE)} is {value!r}.", "Give true or false.") from None

    def scheduler(self, host: str) -> SchedulerSettings:
        """Return C(kvmfleet_scheduler) of the host. Raises L(InvalidArgument), naming host and variable, for invalid settings."""
        try:
            return SchedulerSettings.from_variable(self.of(host, "kvmfleet_scheduler"), host)
        except AnsibleError as error:
            # A template in it is evaluated when its value is read.
            raise InvalidArgument(f"kvmfleet_scheduler of {host} cannot be read: {str(error).rstrip('.')}.") from None

    def resource_maps(self, host: str) -> ResourceMaps:
        """Return what the host calls its resources. Raises L(InvalidArgument), naming host and variable, for an invalid map."""
        return read_maps(host, lambda variable: self.of(host, variable))

    def profile(self, host: str, name: Json) -> JsonObject:
        """Return that profile from C(kvmfleet_profiles); empty if no name is given.

        Raises L(InvalidArgument) for an unknown profile, with the known names, or for an invalid one.
        """
        if name is None:
            return {}
        profiles = self.of(host, "kvmfleet_profiles", {})
        variable = f"kvmfleet_profiles of {self.owner(host, 'kvmfleet_profiles')}"
        if not isinstance(profiles, t.Mapping):
            raise InvalidArgument(f"{variable} is {profiles!r}, which is not a dictionary.")
        if not isinstance(name, str) or name not in profiles:
            known = ", ".join(sorted(map(str, profiles))) or "none"
            raise InvalidArgument(f"There is no profile {name!r} in {variable}.", f"Valid names are: {known}.")
        profile = {} if profiles[name] is None else profiles[name]
        where = f"The profile {name} in {variable}"
        if not isinstance(profile, t.Mapping):
            raise InvalidArgument(f"{where} is {profile!r}, which is not a dictionary.")
        check_fields(profile, PROFILE_FIELDS, where)
        return profile

    def facts(self, host: str) -> t.Optional[JsonObject]:
        """Return C(kvmfleet_host) of the host as C(host_facts) gathered it, at any time."""
        gathered = self.of(host, FACTS_VARIABLE, {})
        facts = gathered.get("kvmfleet_host") if isinstance(gathered, t.Mapping) else None
        return facts if isinstance(facts, t.Mapping) else None

    def fresh_facts(self, host: str) -> t.Optional[JsonObject]:
        """Return the facts if this control node received them within the last minute."""
        facts = self.facts(host)
        return facts if not _why_stale(facts) else None

    def facts_since(self, host: str, since: BootMoment) -> t.Optional[JsonObject]:
        """Return the facts if this control node received them at that moment or later."""
        facts = self.facts(host)
        return facts if facts is not None and is_since(facts, since) else None

    def why_stale(self, host: str) -> str:
        """Return why L(fresh_facts) has no facts of the host; empty if it has."""
        return _why_stale(self.facts(host))


def read_port(value: Json, what: str) -> int:
    """Return the number of a TCP port; a templated value may be text. Raises L(InvalidArgument) naming C(what)."""
    text = str(value).strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) < 2**16):
        raise InvalidArgument(f"{what} is {text[:40]!r}.", "Give the number of a TCP port.")
    return int(text)


def _why_stale(facts: t.Optional[JsonObject]) -> str:
    if facts is None:
        return "it has returned none in this run"
    age = age_seconds(facts)
    if age is None:
        return "their age is not known, because they come from a cache or from an async task"
    return "" if age <= FACTS_MAX_AGE_SECONDS else f"they are {age:.0f} s old, and {FACTS_MAX_AGE_SECONDS} s is the limit"


def _host_in_uri(uri: str) -> t.Optional[str]:
    """Return the host that a URI names; None if it names none, or is invalid."""
    try:
        return urllib.parse.urlsplit(uri).hostname
    except ValueError:
        return None


SHARED_VARIABLES = frozenset({"kvmfleet_ledger", "kvmfleet_etcd", "kvmfleet_notices", "kvmfleet_profiles", OVERRIDE_VARIABLE})
# Variables with secrets in them: an error shows neither the template nor its value.
_SECRET_VARIABLES = frozenset({"kvmfleet_etcd", "kvmfleet_notices", "kvmfleet_fencing", "kvmfleet_lease"})
_UNDEFINED_NAME = re.compile(r"'[^'{}]{1,200}' is undefined|(?:'[^'{}]{1,200}'|object of type '[^'{}]{1,200}') has no attribute '[^'{}]{1,200}'")
_LOOP_VARIABLES = ("ansible_loop_var", "ansible_index_var", "ansible_loop")


class TaskSettings(Settings):
    """Settings of one task.

    :arg task_vars: the task's variables as an action or lookup plugin receives them, before templating.
    :arg loader: Ansible's loader, for lookups in templates.
    :arg delegate_to: the host that the task is delegated to.
    """

    def __init__(self, task_vars: JsonObject, loader: DataLoader, delegate_to: t.Optional[str] = None) -> None:
        super().__init__(task_vars)
        self._task_vars = task_vars
        self._loader = loader
        self.task_host = str(task_vars.get("inventory_hostname", "localhost"))
        self._delegate = None if delegate_to in (None, self.task_host) else str(delegate_to)
        self._scopes: t.Dict[str, JsonObject] = {}
        self._templars: t.Dict[str, Templar] = {}

    @classmethod
    def of_lookup(cls, variables: t.Optional[JsonObject], loader: DataLoader) -> TaskSettings:
        """Return the settings for a lookup plugin: those of the task, whose delegation is visible in its variables."""
        known = {"hostvars": {}, **(variables or {})}
        return cls(known, loader, next(iter(_delegated_scopes(known)), None))

    def owner(self, host: str, variable: str) -> str:
        """Return the host whose variable applies to that host: the task's host for shared variables."""
        return self.task_host if variable in SHARED_VARIABLES else host

    def is_known(self, host: str) -> bool:
        """Whether the inventory has the host, or the task runs on it."""
        return host in (self.task_host, self._delegate) or super().is_known(host)

    def of(self, host: str, variable: str, default: Json = None) -> Json:
        """Return that variable, templated; the default if it is not set. Raises L(InvalidArgument), naming variable and host."""
        owner = self.owner(host, variable)
        value = self._template_variable(owner, variable)
        if value is None and variable in SHARED_VARIABLES:
            self._check_delegate(variable)
        return default if value is None else value

    def find_fleet_host(self, variable: str) -> t.Optional[str]:
        """Return the first host of the fleet for which the inventory sets that variable; None if there is none."""
        return next((host for host in self.fleet() if self._template_variable(host, variable) is not None), None)

    def _check_delegate(self, variable: str) -> None:
        """Refuse the built-in value if the host to which the task is delegated has the variable: the two hosts would use two ledgers."""
        if self._delegate is not None and self._template_variable(self._delegate, variable) is not None:
            raise InvalidArgument(
                f"{variable} is set for {self._delegate}, to which the task is delegated, and not for {self.task_host}, for which the task runs.",
                f"Set {variable} for both hosts, for example for the group 'all' or in the play. Nothing was changed.",
            )

    def _template_variable(self, host: str, variable: str) -> Json:
        raw = self._host_scope(host).get(variable)
        # Facts contain no templates, and those of a fleet are long.
        if raw is None or variable == FACTS_VARIABLE:
            return raw
        try:
            return decrypt_values(self._host_templar(host).template(raw))
        except (AnsibleError, RecursionError) as error:
            raise _unreadable_error(variable, host, error) from None

    def _host_templar(self, host: str) -> Templar:
        if host not in self._templars:
            self._templars[host] = Templar(loader=self._loader, variables=dict(self._host_scope(host)))
        return self._templars[host]

    def _host_scope(self, host: str) -> JsonObject:
        """Return the variables of a host, not templated; empty for a host that is not in the inventory."""
        if host not in self._scopes:
            self._scopes[host] = self._find_scope(host)
        return self._scopes[host]

    def _find_scope(self, host: str) -> JsonObject:
        if host == self.task_host:
            return self._task_vars
        delegated = _delegated_scopes(self._task_vars).get(host) if host == self._delegate else None
        if delegated is not None:
            # Here Ansible provides the name of the host of the task, and no loop variables.
            return {**delegated, **self._loop_variables(), "inventory_hostname": host}
        if host not in self._hostvars:
            return {}
        return {**t.cast("t.Any", self._hostvars).raw_get(host), "hostvars": self._hostvars}

    def _loop_variables(self) -> JsonObject:
        names = {*_LOOP_VARIABLES, *(str(self._task_vars[name]) for name in _LOOP_VARIABLES[:2] if self._task_vars.get(name))}
        return {name: self._task_vars[name] for name in names if name in self._task_vars}


def _delegated_scopes(task_vars: JsonObject) -> t.Mapping[str, JsonObject]:
    """Return the variables of the hosts to which the task is delegated."""
    return t.cast("t.Mapping[str, JsonObject]", task_vars.get("ansible_delegated_vars") or {})


def _unreadable_error(variable: str, host: str, error: Exception) -> InvalidArgument:
    """Return the error for a variable that cannot be templated or decrypted. For a secret variable, only undefined names are shown."""
    found = _UNDEFINED_NAME.search(str(error))
    why = f": {found.group()}" if found else "" if variable in _SECRET_VARIABLES else f": {str(error).rstrip('.')}"
    return InvalidArgument(f"{variable} of {host} cannot be read{why}.", f"Correct the variable, or define for {host} the variables that it uses.")
