# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt import connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.connection import libvirt_errors, translate_error
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e


class LibvirtError(Exception):
    """As python3-libvirt has it."""

    def __init__(self, code: int, text: t.Optional[str] = "some text", domain: int = 10, system_error: int = -1) -> None:
        super().__init__("libvirtError")
        self.numbers = (code, domain)
        self.system_error = system_error
        self.text = text

    def get_error_code(self) -> int:
        return self.numbers[0]

    def get_error_domain(self) -> int:
        return self.numbers[1]

    def get_int1(self) -> int:
        return self.system_error

    def get_error_message(self) -> t.Optional[str]:
        return self.text


class Binding:
    libvirtError = LibvirtError


@pytest.mark.parametrize(
    ("code", "domain", "error_code"),
    [
        (5, 0, "unreachable"),
        (38, 7, "unreachable"),
        (39, 7, "unreachable"),
        (1, 7, "unreachable"),
        (1, 10, "internal"),
        (9, 10, "internal"),
        (8, 10, "invalid_argument"),
        (42, 10, "not_found"),
        (55, 10, "invalid_state"),
        (68, 10, "timeout"),
        (74, 10, "not_supported"),
        (84, 10, "not_supported"),
        (78, 10, "aborted"),
        (81, 10, "unsafe"),
        (29, 20, "forbidden"),
        (45, 7, "forbidden"),
        (88, 7, "forbidden"),
        (94, 60, "forbidden"),
        (91, 31, "conflict"),
        (9999, 10, "internal"),
    ],
)
def test_libvirt_codes_are_mapped_to_error_codes(code: int, domain: int, error_code: str) -> None:
    error = translate_error(LibvirtError(code, "Domäne nicht gefunden", domain), "look up domain web1")
    assert error.error_code == error_code
    assert str(error) == f"Failed to look up domain web1: Domäne nicht gefunden (libvirt error {code})."
    assert error.as_result()["libvirt_code"] == code


def test_an_error_without_a_text_has_a_message() -> None:
    assert "libvirtError" in str(translate_error(LibvirtError(42, None), "x"))


def test_libvirt_errors_are_translated_and_others_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_libvirt", Binding)
    with pytest.raises(e.NotFound) as caught, libvirt_errors("find it"):
        raise LibvirtError(42)
    assert isinstance(caught.value.__cause__, LibvirtError)
    with pytest.raises(ZeroDivisionError), libvirt_errors("find it"):
        raise ZeroDivisionError


def test_a_missing_binding_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_libvirt", None)
    with pytest.raises(e.NotSupported, match="python3-libvirt"):
        connection.libvirt_binding()
