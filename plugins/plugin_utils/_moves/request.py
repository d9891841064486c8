# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a task asks for: its options, read into one request a move, before any host was asked."""

from __future__ import annotations

import typing as t
import urllib.parse
import uuid as uuid_module
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import move_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.uri import check_migrate_uri, check_uri
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MAX_BANDWIDTH_MIB, NO_COPY, MoveOptions, check_options
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import DEFAULTS, FEATURES, SOURCE_HOST, SOURCE_TASK, Policy, merged, resolve
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import check_domain_name
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings

MAX_PARALLEL = 64
QUEUE_TIMEOUT_SECONDS = 3600


@dataclass
class MoveRequest:
    """One domain to move. C(uris) has the destination's URI by its name, or those of all candidates.

    C(policy) is what task and host say; once the domain was surveyed, what it and its profile say is worked in, and C(place) has its group, labels,
    priority and drain.
    """

    name: str | None
    uuid: str | None
    destination: str | None
    uris: dict[str, str]
    migrate_uri: str | None
    options: MoveOptions
    policy: Policy
    link_mib: int | None = None
    given: dict[str, t.Any] = field(default_factory=dict)
    known_uuids: list[str] = field(default_factory=list)
    label: str = ""
    override: bool = False
    force: bool = False
    queue_timeout_seconds: int = QUEUE_TIMEOUT_SECONDS
    place: dict[str, t.Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Name the domain in messages as the task does, until its name is known."""
        self.label = self.label or self.name or str(self.uuid)

    def wanted(self) -> dict[str, t.Any]:
        """Return what the survey on the source has to look for."""
        return {
            "name": self.name,
            "uuid": self.uuid,
            "known_uuids": self.known_uuids,
            "destination_uris": list(self.uris.values()),
            "copy_storage": self.options.copy_storage != NO_COPY,
        }


def requests_of(args: dict[str, t.Any], settings: Settings, source: str) -> list[MoveRequest]:
    """Return one request for each move of a task. Raises L(InvalidArgument) or L(NotSupported); nothing was asked of any host yet.

    :arg args: the validated options of C(live_migrate).
    :arg source: inventory name of the host that the task runs on.
    """
    if not 1 <= args["parallel"] <= MAX_PARALLEL:
        raise InvalidArgument(f"parallel is {args['parallel']}.", f"Give a whole number from 1 to {MAX_PARALLEL}.")
    if args.get("moves") is None:
        return [_request(args, settings, source)]
    if args.get("name") is not None or args.get("uuid") is not None:
        raise InvalidArgument("moves was given together with name or uuid.", "Name the domains in moves alone.")
    shared = {option: args.get(option) for option in move_spec() if option not in ("name", "uuid")}
    own = [{option: value for option, value in move.items() if value is not None} for move in args["moves"]]
    return [_request({**shared, **move}, settings, source) for move in own]


def check_unique(uuids: t.Sequence[str]) -> None:
    """Raise L(InvalidArgument) when a domain stands twice among the moves."""
    for uuid in uuids:
        if uuids.count(uuid) > 1:
            raise InvalidArgument(f"Domain {uuid} stands more than once in moves.", "Name each domain once. Nothing was moved.")


def _request(args: dict[str, t.Any], settings: Settings, source: str) -> MoveRequest:
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
        copy_storage=args.get("copy_storage") or NO_COPY,
        copy_storage_overwrite=tuple(args.get("copy_storage_overwrite") or ()),
    )
    check_options(options)
    destination, uris = destinations_of(args, settings, source)
    if args.get("force") and destination is None:
        raise InvalidArgument("force is true, and no destination is named.", "Name the host that the domain is to be forced onto. Nothing was moved.")
    migrate_uri = args.get("migrate_uri")
    return MoveRequest(
        name=args.get("name"),
        uuid=canonical_uuid(args.get("uuid")),
        destination=destination,
        uris=uris,
        migrate_uri=check_migrate_uri(migrate_uri) if migrate_uri else None,
        options=options,
        policy=_policy(args, settings.policy(source)),
        link_mib=_link_mib(args.get("link_mib")),
        given={name: args[name] for name in DEFAULTS if args.get(name) is not None},
        override=bool(args.get("override_policy")),
        force=bool(args.get("force")),
        queue_timeout_seconds=_queue_timeout_seconds(args.get("queue_timeout_seconds")),
    )


def _policy(args: dict[str, t.Any], host: t.Mapping[str, t.Any]) -> Policy:
    """Return what is known before the domain was asked, whose veto may still part the two features unless the task itself wants both."""
    resolve([(SOURCE_TASK, {feature: args.get(feature) for feature in FEATURES})])
    return merged([(SOURCE_TASK, args), (SOURCE_HOST, host)], bool(args.get("override_policy")))


def destinations_of(args: dict[str, t.Any], settings: Settings, source: str) -> tuple[str | None, dict[str, str]]:
    """Return the destination that C(destination) or C(destination_uri) names, and its URI by its name; without either, those of all candidates.

    Raises L(InvalidArgument) for the source itself, a bad URI, and where there is no candidate.
    """
    destination, uri = args.get("destination"), args.get("destination_uri")
    if uri is not None:
        name = named_in(check_uri(uri, "destination_uri"), destination)
        return name, {name: uri}
    if destination is None:
        candidates = [host for host in settings.fleet() if host != source]
        if not candidates:
            raise InvalidArgument("No destination was given, and the inventory group kvmfleet_hosts has no other host.", "Give a destination.")
        return None, {host: settings.libvirt_uri(host, source, args.get("transport")) for host in candidates}
    if destination == source:
        raise InvalidArgument(f"The destination {destination} is the host that the domain runs on.", "Name another host. Nothing was moved.")
    return destination, {destination: settings.libvirt_uri(destination, source, args.get("transport"))}


def named_in(uri: str, destination: str | None) -> str:
    """Return the destination's name, that of the URI's host where none was given. Raises L(InvalidArgument) for a URI without a host."""
    name = destination or urllib.parse.urlsplit(uri).hostname
    if not name:
        raise InvalidArgument(f"destination_uri {uri} names no host.", "Give a URI that the source can reach the destination by.")
    return name


def _link_mib(link_mib: int | None) -> int | None:
    if link_mib is not None and not 1 <= link_mib <= MAX_BANDWIDTH_MIB:
        raise InvalidArgument(f"link_mib is {link_mib}.", f"Give what the link carries in MiB/s, a whole number from 1 to {MAX_BANDWIDTH_MIB}.")
    return link_mib


def _queue_timeout_seconds(seconds: int | None) -> int:
    if seconds is not None and seconds < 0:
        raise InvalidArgument(f"queue_timeout_seconds is {seconds}.", "Give a number of seconds; 0 is no limit.")
    return QUEUE_TIMEOUT_SECONDS if seconds is None else seconds


def canonical_uuid(uuid: str | None) -> str | None:
    """Return the UUID as libvirt writes it. Raises L(InvalidArgument) for what is none."""
    if uuid is None:
        return None
    try:
        return str(uuid_module.UUID(uuid))
    except ValueError as error:
        raise InvalidArgument(f"uuid is {uuid!r}, which is no UUID.") from error
