# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The request of a task: its options, read into one request for each move before any host is queried.

After the survey of the domain, its policy and the traits that the policy requires are added.
"""

from __future__ import annotations

import typing as t
import urllib.parse
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, move_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MAX_BANDWIDTH_MIB, MoveOptions, check_options
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import check_task_features, vetoed_features
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import check_migrate_uri, check_uri
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import (
    DEFAULTS,
    NO_COPY,
    SOURCE_DOMAIN,
    TRAITS,
    GivenPolicy,
    PolicyScalar,
    read_copy_mode,
    required_traits,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policy_documents import OwnPolicy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import canonical_uuid
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import Renaming
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import SurveyedDomain, SurveyQuestion
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import check_domain_name
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.filters.base import Filter
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import DEFAULT_FILTERS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.policies import (
    DEFAULT_SCHEDULING,
    PolicyOwner,
    Scheduling,
    merge_policy,
    read_move_policy,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings

QUEUE_TIMEOUT_SECONDS = 3600


@dataclass
class MoveRequest:
    """One domain to move. C(uris) has the destination's URI by its name, or those of all candidates.

    C(policy) is that of task and host; after the survey it includes that of the domain and its profile, and C(scheduling) has its group, labels,
    priority and drain. C(filters) are the rules by which a destination is judged.

    C(renamings) has the names that differ at a destination, by its URI.
    """

    name: str | None
    uuid: str | None
    destination: str | None
    uris: dict[str, str]
    migrate_uri: str | None
    options: MoveOptions
    policy: GivenPolicy
    link_mib: int | None = None
    given: t.Mapping[str, PolicyScalar] = field(default_factory=dict)
    known_uuids: list[str] = field(default_factory=list)
    label: str = ""
    override: bool = False
    force: bool = False
    one_way: bool = True
    queue_timeout_seconds: int = QUEUE_TIMEOUT_SECONDS
    busy_wait_seconds: int = 0
    scheduling: Scheduling = DEFAULT_SCHEDULING
    renamings: t.Mapping[str, Renaming] = field(default_factory=dict)
    filters: t.Sequence[Filter] = DEFAULT_FILTERS

    def __post_init__(self) -> None:
        """Use the name from the task in messages until the domain's name is known."""
        self.label = self.label or self.name or str(self.uuid)

    @property
    def stays_off(self) -> bool:
        """Whether the guest is off after the move. A live move has a running guest."""
        return False

    def survey_question(self, saved: DomainRequest | None = None) -> SurveyQuestion:
        """Return the input of the survey on the source.

        :arg saved: a saved request, for which only the candidates are queried.
        """
        return SurveyQuestion(
            name=self.name,
            uuid=self.uuid,
            destination_uris=tuple(self.uris.values()),
            known_uuids=tuple(self.known_uuids),
            copy_storage=self.options.copy_storage != NO_COPY,
            request=saved or ABSENT,
            renamings=self.renamings or ABSENT,
        )


class DestinationOptions(t.TypedDict, total=False):
    """The options that select the destination of a domain."""

    destination: str | None
    destination_uri: str | None
    transport: str | None


class OneMoveOptions(DestinationOptions, total=False):
    """The options of one move; those of the policy are further ones."""

    name: str | None
    uuid: str | None
    migrate_uri: str | None
    queue_timeout_seconds: int | None
    busy_wait_seconds: int | None
    link_mib: int | None
    override_policy: bool | None
    bandwidth_mib: int | None
    post_copy_bandwidth_mib: int | None
    parallel_connections: int | None
    compression: str | None
    tls: bool | None
    copy_storage: str | None
    copy_storage_overwrite: t.Sequence[str] | None
    unsafe: bool | None
    one_way: bool | None
    force: bool | None


class MoveTaskOptions(OneMoveOptions, total=False):
    """The options of C(live_migrate)."""

    uri: str
    ledger: str | None
    moves: t.Sequence[OneMoveOptions] | None
    parallel: int | str
    progress: str
    _work: JsonObject | None


def read_requests(args: MoveTaskOptions, settings: Settings, source: str) -> list[MoveRequest]:
    """Return one request for each move of a task. Raises L(InvalidArgument), L(NotSupported) or L(Conflict); no host was queried yet.

    :arg args: the validated options of C(live_migrate).
    :arg source: inventory name of the host that the task runs on.
    """
    each = list_moves(t.cast(JsonObject, args), move_spec())
    requests = [_read_request(t.cast(OneMoveOptions, options), settings, source) for options in each]
    _check_migrate_uris(requests, settings)
    return requests


def _check_migrate_uris(requests: t.Sequence[MoveRequest], settings: Settings) -> None:
    """Raise L(InvalidArgument) for a C(migrate_uri) with the address of one host that would be used for several: each of the others waits for memory itself."""
    destinations: dict[str, dict[str, str]] = {}
    for request in requests:
        if request.migrate_uri and urllib.parse.urlsplit(request.migrate_uri).hostname:
            destinations.setdefault(request.migrate_uri, {}).update({uri: host for host, uri in request.uris.items()})
    for migrate_uri, hosts in destinations.items():
        # Two URIs may lead to one host, for example over SSH and over TLS.
        names = map(settings.host_at, hosts)
        first = next(names, None)
        if any(name != first for name in names):
            raise InvalidArgument(
                f"migrate_uri is {migrate_uri}, which is the address of one host, and the destination may be {' or '.join(hosts.values())}.",
                "Give the destination and a migrate_uri of its own for each move, or set kvmfleet_migration_address of these hosts. Nothing was moved.",
            )


def list_moves(task: JsonObject, spec: Spec) -> list[JsonObject]:
    """Return the options of each move of a task. Those that an entry of C(moves) does not give are those of the task.

    :arg spec: the options of one move.
    Raises L(InvalidArgument) if both a domain and C(moves) are given.
    """
    moves = t.cast("t.Sequence[JsonObject] | None", task.get("moves"))
    if moves is None:
        return [task]
    if task.get("name") is not None or task.get("uuid") is not None:
        raise InvalidArgument("moves was given together with name or uuid.", "List the domains only in 'moves'.")
    shared = {option: task.get(option) for option in spec if option not in ("name", "uuid")}
    return [{**shared, **{option: value for option, value in move.items() if value is not None}} for move in moves]


def check_unique(uuids: t.Sequence[str]) -> None:
    """Raise L(InvalidArgument) if a domain is listed twice among the moves."""
    for uuid in uuids:
        if uuids.count(uuid) > 1:
            raise InvalidArgument(f"Domain {uuid} is listed more than once in 'moves'.", "Name each domain once. Nothing was moved.")


def _read_request(args: OneMoveOptions, settings: Settings, source: str) -> MoveRequest:
    if (args.get("name") is None) == (args.get("uuid") is None):
        raise InvalidArgument("Exactly one of name and uuid is needed for each move.")
    check_domain_name(args.get("name"))
    options = MoveOptions(
        bandwidth_mib=args.get("bandwidth_mib") or 0,
        post_copy_bandwidth_mib=args.get("post_copy_bandwidth_mib"),
        parallel_connections=args.get("parallel_connections"),
        compression=args.get("compression"),
        tls=bool(args.get("tls")),
        unsafe=bool(args.get("unsafe")),
        copy_storage=read_copy_mode(args.get("copy_storage")),
        copy_storage_overwrite=tuple(args.get("copy_storage_overwrite") or ()),
    )
    check_options(options)
    given = _read_policy(args)
    check_task_features(given)
    destination, uris = read_destinations(args, settings, source)
    if args.get("force") and destination is None:
        raise InvalidArgument("force is true, but no destination is given.", "Name the host to force. Nothing was moved.")
    migrate_uri = args.get("migrate_uri")
    return MoveRequest(
        name=args.get("name"),
        uuid=canonical_uuid(args.get("uuid")),
        destination=destination,
        uris=uris,
        migrate_uri=check_migrate_uri(migrate_uri) if migrate_uri else None,
        options=options,
        policy=merge_policy(given, settings.policy(source), override=bool(args.get("override_policy"))),
        link_mib=_check_link_mib(args.get("link_mib")),
        given=given,
        override=bool(args.get("override_policy")),
        force=bool(args.get("force")),
        one_way=args.get("one_way") is not False,
        queue_timeout_seconds=_check_queue_timeout(args.get("queue_timeout_seconds")),
        busy_wait_seconds=_check_busy_wait(args.get("busy_wait_seconds")),
        renamings=read_renamings(settings, source, uris),
    )


def _read_policy(args: OneMoveOptions) -> dict[str, PolicyScalar]:
    """Return the options of the policy that the task gives."""
    given = t.cast("t.Mapping[str, PolicyScalar]", args)
    return {name: given[name] for name in DEFAULTS if given.get(name) is not None}


def read_destinations(args: DestinationOptions, settings: Settings, source: str) -> tuple[str | None, dict[str, str]]:
    """Return the destination that C(destination) or C(destination_uri) names, and its URI by its name; without either, those of all candidates.

    Raises L(InvalidArgument) for the source itself, an invalid URI, and without candidates.
    """
    destination, uri = args.get("destination"), args.get("destination_uri")
    if uri is not None:
        name = name_destination(check_uri(uri, "destination_uri"), destination)
        return name, {name: uri}
    if destination is None:
        candidates = [host for host in settings.fleet() if host != source]
        if not candidates:
            raise InvalidArgument("No destination was given, and the inventory group kvmfleet_hosts has no other host.", "Give a destination.")
        return None, {host: settings.libvirt_uri(host, source, args.get("transport")) for host in candidates}
    if not destination:
        raise InvalidArgument("destination is empty.", "Name a host, or leave it out for any of the group kvmfleet_hosts. Nothing was moved.")
    if destination == source:
        raise InvalidArgument(f"The destination {destination} is the host that the domain runs on.", "Name another host. Nothing was moved.")
    return destination, {destination: settings.libvirt_uri(destination, source, args.get("transport"))}


def read_renamings(settings: Settings, source: str, uris: t.Mapping[str, str]) -> dict[str, Renaming]:
    """Return, by URI, the names that differ at each of these hosts. Raises L(InvalidArgument) for an invalid map of one of them, or of the source."""
    before = settings.resource_maps(source)
    found = {uri: Renaming(source, host, before, settings.resource_maps(host)) for host, uri in uris.items()}
    return {uri: renaming for uri, renaming in found.items() if renaming}


def name_destination(uri: str, destination: str | None) -> str:
    """Return the destination's name, that of the URI's host if none was given. Raises L(InvalidArgument) for a URI without a host, or not of QEMU."""
    parts = urllib.parse.urlsplit(uri)
    if parts.scheme.partition("+")[0] != "qemu":
        raise InvalidArgument(f"destination_uri is {uri}, which is not a URI of QEMU.", "Give one like qemu+ssh://kvm2/system. Nothing was moved.")
    name = destination or parts.hostname
    if not name:
        raise InvalidArgument(f"destination_uri {uri} names no host.", "Give a URI by which the source can reach the destination.")
    return name


def _check_link_mib(link_mib: int | None) -> int | None:
    if link_mib is not None and not 1 <= link_mib <= MAX_BANDWIDTH_MIB:
        raise InvalidArgument(f"link_mib is {link_mib}.", f"Give the capacity of the link in MiB/s, a whole number from 1 to {MAX_BANDWIDTH_MIB}.")
    return link_mib


def _check_queue_timeout(seconds: int | None) -> int:
    if seconds is not None and seconds < 0:
        raise InvalidArgument(f"queue_timeout_seconds is {seconds}.", "Give a number of seconds; 0 means no limit.")
    return QUEUE_TIMEOUT_SECONDS if seconds is None else seconds


def _check_busy_wait(seconds: int | None) -> int:
    if seconds is not None and seconds < 0:
        raise InvalidArgument(f"busy_wait_seconds is {seconds}.", "Give a number of seconds; 0 means that a domain with a job is refused.")
    return seconds or 0


def apply_policy(request: MoveRequest, domain: SurveyedDomain, settings: Settings, source: str) -> list[str]:
    """Give the request the policy of the surveyed domain. Return a warning for each feature that the task enables and the domain forbids.

    Raises as L(read_move_policy).

    :arg source: inventory name of the host that the domain leaves.
    """
    what = f"domain {request.label} on {source}"
    policy = read_move_policy(PolicyOwner(what, source, domain.policy or OwnPolicy()), settings, request.given, request.override)
    request.policy, request.scheduling = policy.moves, policy.scheduling
    vetoed = vetoed_features(request.policy, request.given)
    return [_describe_veto(feature, what, request.policy.source_of(feature)) for feature in vetoed]


def _describe_veto(feature: str, what: str, source: str) -> str:
    who = "its own policy" if source == SOURCE_DOMAIN else "its profile"
    return f"{feature}: true in the task is ignored for {what}: {who} forbids it. Only override_policy: true overrides this."


_FEATURES_BY_TRAIT = {trait: feature for feature, trait in TRAITS.items()}


def check_source_traits(request: MoveRequest, facts: HostFacts, source: str) -> list[str]:
    """Return a warning for each required trait that is unverified on the source. Raises L(NotSupported), with the reason, for one that it lacks."""
    required = required_traits(request.policy.required_features)
    missing = facts.missing_traits or {}
    lacking = [f"it needs {trait} ({_FEATURES_BY_TRAIT[trait]}). {missing[trait]}" for trait in required if trait in missing]
    if lacking:
        raise NotSupported(f"{source} cannot move domain {request.label} as requested: {' '.join(lacking)}", "Nothing was moved.")
    return [
        f"{_FEATURES_BY_TRAIT[trait]} for domain {request.label} is unverified on {source} ({trait}). "
        "QEMU itself checks it at the start, before anything moves."
        for trait in required
        if trait not in (facts.traits or ())
    ]
