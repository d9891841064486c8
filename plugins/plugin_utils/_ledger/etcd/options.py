# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How to speak to etcd: TLS and who one is, from the inventory variable C(kvmfleet_etcd)."""

from __future__ import annotations

import os
import ssl
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

from ..._values import text_of, trusting, unusable
from .address import Address

VARIABLE = "kvmfleet_etcd"
_FILES = ("ca_file", "cert_file", "key_file")
_KNOWN = ("tls", *_FILES, "user", "password")


@dataclass(frozen=True)
class Options:
    """Files are paths on the control node. What is secret is in no representation."""

    tls: bool = False
    ca_file: t.Optional[str] = None
    cert_file: t.Optional[str] = None
    key_file: t.Optional[str] = None
    user: t.Optional[str] = None
    password: t.Optional[str] = field(default=None, repr=False)

    def context(self) -> t.Optional[ssl.SSLContext]:
        """Return what TLS is spoken with, or None. Raises L(InvalidArgument) naming a file that cannot be used."""
        if not self.tls:
            return None
        context = trusting(self.ca_file, VARIABLE)
        if self.cert_file:
            try:
                # An empty password, so that nobody is asked for that of an encrypted key.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except (OSError, ValueError) as error:
                raise unusable(f"certificate {self.cert_file} with key {self.key_file or self.cert_file}", VARIABLE, error) from error
        return context


def options_of(value: t.Any, address: Address) -> Options:
    """Return the options in a value of C(kvmfleet_etcd), which may be None. Raises L(InvalidArgument), never showing a password."""
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{VARIABLE} is no dictionary.", f"It knows {', '.join(_KNOWN)}.")
    unknown = sorted(str(key) for key in value if key not in _KNOWN)
    if unknown:
        raise InvalidArgument(f"{VARIABLE} has the unknown {unknown[0]!r}.", f"It knows {', '.join(_KNOWN)}.")
    texts = {key: text_of(value.get(key), key, VARIABLE) for key in (*_FILES, "user", "password")}
    files = {key: os.path.expanduser(text) if text else None for key, text in texts.items() if key in _FILES}
    options = Options(_is_tls(value.get("tls"), files), **files, user=texts["user"], password=texts["password"])
    _check(options, address)
    return options


def _is_tls(value: t.Any, files: Mapping[str, t.Optional[str]]) -> bool:
    if value is None:
        return any(files.values())
    if not isinstance(value, bool):
        raise InvalidArgument(f"'tls' of {VARIABLE} is neither true nor false.")
    return value


def _check(options: Options, address: Address) -> None:
    if options.key_file and not options.cert_file:
        raise InvalidArgument(f"{VARIABLE} has a key_file and no cert_file.", "Give both, or neither.")
    if bool(options.user) != bool(options.password):
        raise InvalidArgument(f"{VARIABLE} has only one of user and password.", "Give both, or neither.")
    if not options.tls and any((options.ca_file, options.cert_file)):
        raise InvalidArgument(f"{VARIABLE} has certificates, and 'tls' is false.", "Leave 'tls' out, or the certificates.")
    far = [str(endpoint) for endpoint in address.endpoints if not endpoint.is_local]
    if options.password and not options.tls and far:
        raise InvalidArgument(f"The password of {VARIABLE} would go to {far[0]} in clear text.", f"Set 'tls: true' or 'ca_file' in {VARIABLE}.")
