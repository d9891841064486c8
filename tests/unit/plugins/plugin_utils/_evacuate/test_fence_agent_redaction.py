# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import html
import json
import shlex
import urllib.parse

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_agent import SHOWN_OUTPUT_BYTES, plain_text, redact_secrets
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import SECRET

FORMS = {
    "plain": SECRET,
    "upper": SECRET.upper(),
    "percent": urllib.parse.quote(SECRET, safe=""),
    "percent, lower case": urllib.parse.quote(SECRET, safe="").lower(),
    "path": urllib.parse.quote(SECRET),
    "form": urllib.parse.quote_plus(SECRET),
    "json": json.dumps(SECRET),
    "repr": repr(SECRET),
    "repr of bytes": repr(SECRET.encode()),
    "shell": shlex.quote(SECRET),
    "html": html.escape(SECRET),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "hex": SECRET.encode().hex(),
    "hex bytes": SECRET.encode().hex(" "),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_secret_is_masked_in_each_of_its_forms(form: str) -> None:
    shown = redact_secrets(f"login with {form} failed", [SECRET])
    assert "***" in shown
    assert shown.startswith("login with ")
    assert shown.endswith(" failed")
    assert SECRET[2:10] not in shown
    assert form not in shown


@pytest.mark.parametrize("user", ["a", "ab", "abc", "admin"])
def test_a_secret_is_masked_in_basic_authentication(user: str) -> None:
    text = base64.b64encode(f"{user}:{SECRET}".encode()).decode()
    shown = redact_secrets(f"Authorization: Basic {text}", [SECRET])
    left = shown.removeprefix("Authorization: Basic ").split("***")
    assert len(left) == 2
    # What is left beside the mask are the user's name and at most one character that belongs to the secret.
    assert len(left[0]) <= len(base64.b64encode(f"{user}:".encode()))
    assert len(left[1].rstrip("=")) <= 1


def test_the_longest_secret_is_masked_first_and_an_empty_one_masks_nothing() -> None:
    assert redact_secrets("abc abcdef x", ["abc", "abcdef", ""]) == "*** *** x"


def test_a_secret_with_escape_sequences_inside_is_masked() -> None:
    assert redact_secrets(plain_text(b"hun\x1b[31mter\x002\x07"), ["hunter2"]) == "***"


def test_control_characters_are_removed() -> None:
    assert plain_text(b"\x1b]0;title\x07a\tb\r\nc\x00\x08\xff\xe2\x80\xaed") == "a b\nc\ufffdd"


def test_the_end_of_a_long_output_is_kept() -> None:
    shown = redact_secrets("x" * 100_000 + " Status: OFF", [])
    assert shown.endswith("Status: OFF")
    assert len(shown.encode()) == SHOWN_OUTPUT_BYTES
    assert len(redact_secrets("é" * 100_000, []).encode()) <= SHOWN_OUTPUT_BYTES


def test_a_secret_is_masked_before_the_output_is_cut() -> None:
    for length in range(SHOWN_OUTPUT_BYTES - 20, SHOWN_OUTPUT_BYTES + 5):
        assert "unter" not in redact_secrets("hunter2" + "x" * length, ["hunter2"])


@pytest.mark.parametrize("lost", range(1, 7))
def test_a_torn_output_does_not_begin_with_the_rest_of_a_secret(lost: int) -> None:
    assert (
        redact_secrets("hunter2"[lost:] + " and then " + "y" * 60, ["hunter2"], torn=True)
        == ("hunter2"[lost:] + " and then " + "y" * 60)[longest("hunter2") :].strip()
    )


def test_a_torn_output_of_only_secrets_is_masked() -> None:
    assert redact_secrets("ter2" + "hunter2" * 9000, ["hunter2"], torn=True) == "***"


@pytest.mark.parametrize("end", range(1, 8))
def test_the_output_of_a_killed_program_does_not_end_with_the_beginning_of_a_secret(end: int) -> None:
    assert redact_secrets("password is " + "hunter2"[:end], ["hunter2"], killed=True) == "password is ***"
    assert redact_secrets("password is 2", ["hunter2"], killed=True) == "password is 2"


def longest(secret: str) -> int:
    """Return the length of the longest form of an ASCII secret: its bytes in hexadecimal with separators."""
    return len(secret) * 3 - 1
