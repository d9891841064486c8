# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A feature that one side is too old for is refused before anything moves; one that a version is known to break is not tried with it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.mixed.support import fleet as m
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Record
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

Make = t.Callable[..., str]

WRITER = ("--mib", "96", "--dirty-mib", "32", "--rate", "2000", "--integrity", "--machine", m.OLD_MACHINE)
CALM = ("--mib", "64", "--dirty-mib", "40", "--rate", "500", "--integrity", "--machine", m.OLD_MACHINE)
# It stays in post-copy for a while.
POST_COPY = {"timeout_seconds": 2, "on_timeout": "force_complete", "post_copy": True, "bandwidth_mib": 4, "post_copy_bandwidth_mib": 3, "stall_seconds": 4}
WAYS = [pytest.param(m.OLD, m.NEW, id="to-newer"), pytest.param(m.NEW, m.OLD, id="to-older")]


def acts(record: Record) -> list[str]:
    return [entry["act"] for entry in record["acts"]]


def events(record: Record) -> list[str]:
    return [line["status"] for line in record["history"]]


@pytest.mark.parametrize("method", ["zlib", "zstd"])
def test_compressed_streams_need_the_newer_libvirt_on_both_sides(lab: Lab, control: m.Mixed, guest: Make, method: str) -> None:
    name = guest("web", *WRITER)
    wanted = {"compression": method, "parallel_connections": 2}
    refused = control.migrate(name, m.OLD, m.NEW, **wanted)
    assert refused.refused() == "not_supported"
    assert f"compression {method} needs libvirt 9.4.0 on both hosts; {lab.host(m.OLD)} has 9.0.0" in refused.msg
    m.check_stayed(lab, name, m.OLD)
    m.check_moved(lab, control.migrate(name, m.OLD, m.NEW, parallel_connections=2), name, m.NEW)
    refused = control.migrate(name, m.NEW, m.OLD, force=True, **wanted)
    assert refused.refused() == "not_supported"
    assert f"{lab.host(m.OLD)} has 9.0.0" in refused.msg
    m.check_stayed(lab, name, m.NEW)
    m.check_moved(lab, control.migrate(name, m.NEW, m.NEWER, **wanted), name, m.NEWER)


def test_a_compression_method_that_newer_qemu_removed_is_refused(lab: Lab, control: m.Mixed, guest: Make) -> None:
    name = guest("web", *WRITER)
    done = control.migrate(name, m.OLD, m.NEW, compression="mt")
    assert done.code != 0
    assert "xbzrle, zlib, zstd" in done.msg
    m.check_stayed(lab, name, m.OLD)


@pytest.mark.parametrize(("source", "destination"), [*WAYS, pytest.param(m.NEW, m.NEWER, id="both-newer")])
def test_parallel_post_copy_is_refused_below_qemu_10_1(lab: Lab, control: m.Mixed, guest: Make, source: int, destination: int) -> None:
    name = guest("web", *WRITER, on=source)
    refused = control.migrate(name, source, destination, force=destination == m.OLD, parallel_connections=2, post_copy=True)
    assert refused.refused() == "not_supported"
    assert "before QEMU 10.1 the guest is lost" in refused.msg
    m.check_stayed(lab, name, source)


def test_a_guest_with_several_cores_is_refused_between_the_two_releases(lab: Lab, control: m.Mixed, guest: Make) -> None:
    """QEMU 10.0 tells libvirt of them, QEMU 7.2 does not, and libvirt 11.3 takes that for another processor; so does 9.0 on the way back."""
    up, down = guest("up", *WRITER, "--cores", "2"), guest("down", *WRITER, "--cores", "2", on=m.NEW)
    for name, source, destination, version in ((up, m.OLD, m.NEW, "11.3.0"), (down, m.NEW, m.OLD, "9.0.0")):
        uri = f"qemu+tcp://{lab.host(destination)}/system"
        by_libvirt = lab.try_("virsh", lab.host(source), "migrate", "--live", "--p2p", "--persistent", name, uri)
        assert (by_libvirt.returncode != 0, "features: ht" in by_libvirt.stderr) == (True, True), by_libvirt.stderr
        for force in (False, True):
            refused = control.migrate(name, source, destination, force=force)
            assert (refused.refused(), refused.ended()[0]) == ("conflict", "conflict"), refused.text
            assert f"Its libvirt {version} would refuse {name}: its QEMU" in refused.msg
            assert "2 threads in a processor package" in refused.msg
        m.check_stayed(lab, name, source)


def test_a_guest_with_several_cores_moves_between_hosts_of_the_newer_release(lab: Lab, control: m.Mixed, guest: Make) -> None:
    """No host can give the feature that QEMU makes of them: libvirt's own comparison refuses it on the very host that the guest runs on."""
    name = guest("web", *WRITER, "--cores", "2", on=m.NEW)
    assert "name='ht'" in lab.virsh(m.NEW, "dumpxml", name)
    m.check_moved(lab, control.migrate(name, m.NEW, m.NEWER), name, m.NEWER)


def test_a_broken_post_copy_is_resumed_on_a_destination_with_libvirt_9_0(lab: Lab, control: m.Mixed, guest: Make) -> None:
    name = guest("web", *CALM, on=m.NEW)
    running = control.begin_migration(name, m.NEW, m.OLD, force=True, **POST_COPY)
    m.await_status(lab, name, m.NEW, "running (post-copy)")
    lab("cut", lab.host(m.NEW), "--data", "--peer", lab.host(m.OLD))
    uuid = lab.uuid(name, m.NEW)
    eventually(lambda: "recover: pause" in acts(lab.state_file(uuid, m.NEW) or {"acts": []}), "the stream is broken")
    lab("heal", lab.host(m.NEW))
    done = running.wait()
    m.check_moved(lab, done, name, m.OLD)
    assert "recover: resume" in acts(done.record)
    assert done.record["result"]["mode"] == "post-copy"


def test_a_stalled_post_copy_is_awaited_if_the_destination_libvirtd_would_crash_at_a_resume(lab: Lab, control: m.Mixed, guest: Make) -> None:
    """libvirt 11.3 could not resume it, so it is not paused: it continues by itself when the network works again."""
    name = guest("web", *CALM)
    running = control.begin_migration(name, m.OLD, m.NEW, **POST_COPY)
    m.await_status(lab, name, m.OLD, "running (post-copy)")
    uuid = lab.uuid(name)
    lab("cut", lab.host(m.OLD), "--data", "--peer", lab.host(m.NEW))
    eventually(lambda: "not_paused" in events(lab.state_file(uuid) or {"history": []}), "the stall is noted")
    lab("heal", lab.host(m.OLD))
    done = running.wait()
    m.check_moved(lab, done, name, m.NEW)
    assert not [act for act in acts(done.record) if act.startswith("recover")]
    assert "(11.2 or 11.3) crashes" in next(line["detail"] for line in done.record["history"] if line["status"] == "not_paused")


def test_a_broken_post_copy_is_not_resumed_if_the_destination_libvirtd_would_crash(lab: Lab, control: m.Mixed, guest: Make) -> None:
    """libvirt 11.3 would crash, and the state of the guest, whose memory is on two hosts, would be lost. A person has broken the stream."""
    name = guest("web", *CALM)
    daemon = lab.on(m.NEW, "cat", "/run/libvirtd.pid")
    running = control.begin_migration(name, m.OLD, m.NEW, **POST_COPY)
    m.await_status(lab, name, m.OLD, "running (post-copy)")
    lab.virsh(m.OLD, "domjobabort", name, "--postcopy")
    done = running.wait()
    assert done.code != 0, done.text
    assert done.ended() == ("error", "post_copy_failed"), done.text
    assert not [act for act in acts(done.record) if act.startswith("recover")]
    assert "(11.2 or 11.3) crashes" in done.msg
    assert lab.on(m.NEW, "cat", "/run/libvirtd.pid") == daemon
    assert set(lab.places(name)) == {m.OLD, m.NEW}
    again = control.migrate(name, m.OLD, m.NEW)
    assert (again.code != 0, again.ended()) == (True, ("error", "post_copy_failed")), again.text
    assert lab.on(m.NEW, "cat", "/run/libvirtd.pid") == daemon
