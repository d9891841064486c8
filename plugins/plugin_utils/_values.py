# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Values out of dictionaries of the inventory that hold secrets: texts that may be vaulted, and whom TLS trusts. Errors name the key and show no value."""

from __future__ import annotations

import ssl
import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument


def text_of(value: t.Any, key: str, variable: str) -> t.Optional[str]:
    """Return the text, and None for none or an empty one. Raises L(InvalidArgument) for what is no text."""
    if value is None or value == "":
        return None
    if isinstance(value, (bool, int, float, Mapping, list, tuple)):
        raise InvalidArgument(f"'{key}' of {variable} is not a text.")
    # A vaulted one is a text only when it is asked for as one.
    return "".join(str(value))


def decrypted(value: t.Any) -> t.Any:
    """Return the value with the plain text of each vaulted one in it. Raises Ansible's own error where a text cannot be decrypted."""
    if isinstance(value, Mapping):
        return {key: decrypted(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [decrypted(item) for item in value]
    # ansible-core 2.18 hands out the encrypted text, later releases the plain one.
    return "".join(str(value)) if getattr(value, "__ENCRYPTED__", False) else value


def trusting(ca_file: t.Optional[str], variable: str) -> ssl.SSLContext:
    """Return a context for clients that trusts the authorities in the file; the system's for None. Raises L(InvalidArgument)."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise unusable(f"ca_file {ca_file}", variable, error) from error


def unusable(what: str, variable: str, error: Exception) -> InvalidArgument:
    """Return the error for a file of TLS that cannot be used."""
    cause = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return InvalidArgument(f"The {what} of {variable} cannot be used: {cause}.", "Name PEM files that the control node can read; a key has no passphrase.")
