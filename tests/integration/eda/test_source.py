# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Events of real hosts in a rulebook."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.integration.eda.conftest import Begin
from ansible_collections.kvmfleet.migration.tests.integration.eda.support.rulebook import GONE_AFTER_SECONDS, START_SECONDS, Event, Rulebook
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import eventually
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS, Site


def listening(site: Site, rulebook: Rulebook) -> None:
    """Wait until a rulebook hears of every host: of a domain that is made and removed again."""
    for number in HOSTS:

        def heard(number: int = number) -> bool:
            make_and_remove(site, number)
            return any(event["domain"] == f"ping{number}" for event in rulebook.events())

        rulebook.meanwhile(heard, f"events of {site.name(number)} are heard", START_SECONDS)


def make_and_remove(site: Site, number: int) -> None:
    """Define a domain that never runs, and take it away again."""
    xml = f"<domain type='qemu'><name>ping{number}</name><memory>16384</memory><os><type>hvm</type></os></domain>"
    site.lab.on(number, "sh", "-c", f"cat > /run/ping.xml <<'END'\n{xml}\nEND\nvirsh define /run/ping.xml && virsh undefine ping{number}")


def said(events: list[Event], host: str, domain: str) -> list[str]:
    """Return the events of a domain on a host, iterations as one."""
    told = [f"{event['event']} {event['detail']}".strip() for event in events if (event["host"], event["domain"]) == (host, domain)]
    return [what for number, what in enumerate(told) if what not in told[:number]]


def test_the_source_reports_a_move_and_hosts_that_go_and_return(site: Site, guest: Make, begin: Begin) -> None:
    guest("web", storage="none")
    rulebook = begin("kvmfleet.migration.watch")
    listening(site, rulebook)
    moved = site.move("web", 2)
    assert moved.code == 0, moved.text
    job = rulebook.tells(event="job_completed", domain="web")
    assert (job["host"], job["detail"], job["uuid"]) == (site.name(1), "migration_out", site.lab.uuid("web", 2))
    assert job["elapsed_ms"] > 0
    assert set(job) >= {"host", "uri", "domain", "uuid", "event", "detail", "time"}
    away = said(rulebook.events(), site.name(1), "web")
    assert [what for what in away if not what.startswith("undefined")] == [
        "migration_iteration",
        "suspended migrated",
        "stopped migrated",
        "job_completed migration_out",
    ]
    rulebook.tells(host=site.name(2), domain="web", event="resumed", detail="migrated")
    assert said(rulebook.events(), site.name(2), "web")[0] == "started migrated"

    # One host hangs and another one loses its power; the third is heard as before.
    site.lab("cut", site.lab.host(3))
    site.lose(1)
    gone = rulebook.tells(host=site.name(1), event="host_gone")
    assert gone["seconds"] >= GONE_AFTER_SECONDS
    assert gone["detail"]
    site.lab.virsh(2, "destroy", "web")
    rulebook.tells(host=site.name(2), domain="web", event="stopped", detail="destroyed")
    rulebook.tells(host=site.name(3), event="host_gone")
    site.bring_back(1)
    site.lab("heal", site.lab.host(3))
    for number in (1, 3):
        back = rulebook.tells(host=site.name(number), event="host_back")
        assert back["seconds"] >= GONE_AFTER_SECONDS
        told = [event["event"] for event in rulebook.events() if event["host"] == site.name(number) and event["event"] in ("host_gone", "host_back")]
        assert told == ["host_gone", "host_back"]
    rulebook.end()


ENDS = """
- name: Ends when a domain of that name appears
  hosts: all
  sources:
    - kvmfleet.migration.libvirt:
        hosts: "{{ kvmfleet_events_hosts }}"
  rules:
    - name: End
      condition: event.event == "defined" and event.domain == "ping3"
      action:
        shutdown:
          delay: 1
"""


def ends(site: Site, rulebook: Rulebook) -> bool:
    make_and_remove(site, 3)
    return rulebook.is_over()


def test_a_rulebook_can_end_while_a_host_hangs(site: Site, begin: Begin) -> None:
    """Its daemon is stopped while it is connected, so that no call to it returns."""
    rules = site.folder / "ends.yml"
    rules.write_text(ENDS)
    site.lab.on(1, "sh", "-c", "kill -STOP $(cat /run/libvirtd.pid)")
    try:
        rulebook = begin(str(rules))
        eventually(lambda: ends(site, rulebook), "the rulebook ends", START_SECONDS)
        assert rulebook.code() == 0, rulebook.text()
    finally:
        site.lab.on(1, "sh", "-c", "kill -CONT $(cat /run/libvirtd.pid)")
