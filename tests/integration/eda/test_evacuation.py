# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host loses its power: no action without consent, an evacuation with it, and never more hosts than the brake permits."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.integration.eda.conftest import Begin
from ansible_collections.kvmfleet.migration.tests.integration.eda.support.rulebook import PLAY_SECONDS
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site


def slots(site: Site) -> list[tuple[str, str]]:
    """Return the slots of the brake that are taken: the reaction and the host of each."""
    found = site.ledger.read_brake()
    return [(slot.reaction, slot.host) for slot in found.brake.slots] if found else []


def evacuated(site: Site, guest: str) -> bool:
    return any(name == guest and status == "done" for name, status, *_rest in site.record_summaries())


def test_a_disarmed_rulebook_does_not_evacuate(site: Site, guest: Make, begin: Begin) -> None:
    """Neither without the variable that arms the rulebook, nor with the file that disarms it."""
    guest("web")
    site.protect()
    unarmed = begin("kvmfleet.migration.host_gone")
    unarmed.says("Evacuation on events is off")
    site.lose(1)
    unarmed.says(f"{site.name(1)} has been silent")
    unarmed.says("Nothing is done")
    unarmed.end()
    code, text = site.playbook("react_host_gone", source=site.name(3))
    assert code == 0, text
    assert f"no domain may be on {site.name(3)}" in text

    folder = site.folder / "events"
    folder.mkdir()
    (folder / "disarmed").touch()
    armed = begin("kvmfleet.migration.host_gone", kvmfleet_events_evacuate=True)
    # The playbook that arms, and the one that reacts.
    refusal = f"Nothing was done for {site.name(1)}"
    armed.meanwhile(lambda: " ".join(armed.text().split()).count(refusal) >= 2, f"both say: {refusal}", 2 * PLAY_SECONDS)
    assert "Reactions to events are disarmed" in armed.text()
    site.check_end_state({2: [], 3: []})
    assert slots(site) == []


def test_the_brake_counts_an_evacuation_of_a_rulebook_that_was_killed(site: Site, guest: Make, begin: Begin) -> None:
    for number in (1, 2):
        guest(f"web{number}", on=number)
    site.protect()
    # A consent that is given for the first host, and would be for any.
    asked = site.folder / "asked"
    for number in (1, 2, 3):
        site.variable(number, "kvmfleet_events_consent", ["sh", "-c", f'echo "$0" >> {asked}'])
    rulebook = begin("kvmfleet.migration.host_gone", kvmfleet_events_evacuate=True)
    rulebook.says(f"Evacuation on events is armed for {', '.join(map(site.name, (1, 2, 3)))}.")
    site.lose(1)
    rulebook.meanwhile(lambda: evacuated(site, "web1"), "web1 is evacuated", PLAY_SECONDS)
    rulebook.kill()
    before = site.fleet()
    assert [host for host, active in before.items() if "web1" in active] in ([2], [3])
    assert slots(site) == [("evacuate", site.name(1))]

    site.lose(2)
    again = begin("kvmfleet.migration.host_gone", kvmfleet_events_evacuate=True)
    again.says(f"Nothing was done for {site.name(2)}", 2 * PLAY_SECONDS)
    again.says("The brake holds")
    again.end()
    assert "web2" not in site.fleet()[3]
    assert set(asked.read_text().split()) == {site.name(1)}
    assert not evacuated(site, "web2")


def test_without_consent_nothing_is_fenced_and_the_brake_counts_nothing(site: Site, guest: Make, begin: Begin) -> None:
    guest("web")
    site.protect()
    for number in (1, 2, 3):
        site.variable(number, "kvmfleet_events_consent", ["sh", "-c", 'echo "The owner of $0 says no" >&2; exit 1'])
    rulebook = begin("kvmfleet.migration.host_gone", kvmfleet_events_evacuate=True)
    site.lose(1)
    rulebook.says(f"The owner of {site.name(1)} says no", PLAY_SECONDS)
    rulebook.end()
    site.check_end_state({2: [], 3: []})
    assert slots(site) == []
