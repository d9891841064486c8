# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of the report in a browser: its content agrees with the ledger, and it is accessible."""

from __future__ import annotations

import typing as t

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import read_record
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report import formats
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.moves import describe_move, summarize_downtimes
from ansible_collections.kvmfleet.migration.tests.browser.conftest import MANY, Page
from ansible_collections.kvmfleet.migration.tests.browser.window import DESK, PHONE, TABLET, Window
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report import nights
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.report.nights import Body

NOT_MOVED = ("conflict", "cancelled", "failed", "error")
# What README and docs/report.md show of a page.
PICTURE, RATES_PICTURE, BALANCES_PICTURE = (960, 1060), (960, 880), (1120, 880)
CHARTS = ("timeline-chart", "rates-chart", "convergence-chart", "downtimes-chart")


def named(page: Page, name: str) -> Body:
    """Return the record of that domain."""
    return next(record for record in page.records if record["domain"]["name"] == name)


def see_all(window: Window) -> None:
    """Scroll past every chart, so that each is drawn."""
    for chart in CHARTS:
        window.scroll_to(f"#{chart}")
        window.until("return document.querySelector(`#${arguments[0]} :is(svg, canvas)`) !== null", chart)
    window.run("window.scrollTo(0, 0)")


# -- what it loads and says ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("which", "dark"), [("night", False), ("night", True), ("nothing", False), ("nothing", True), ("month", False)])
def test_page_opens_without_console_messages_or_network_requests(window: Window, request: pytest.FixtureRequest, which: str, dark: bool) -> None:
    page: Page = request.getfixturevalue(which)
    window.look(dark=dark)
    window.open(page.path)
    if page.records:
        see_all(window)
    window.photograph(f"{which}{'-dark' if dark else ''}")
    assert window.said() == []
    assert window.fetched() == {page.path.as_uri()}


@pytest.mark.parametrize(
    ("name", "size", "dark"), [("demo", PICTURE, False), ("demo-desk", DESK, False), ("demo-dark", DESK, True), ("demo-phone", PHONE, False)]
)
def test_demo_report_shows_every_record_in_table_and_timeline(window: Window, demo: Page, name: str, size: tuple[int, int], dark: bool) -> None:
    window.look(size, dark)
    window.open(demo.path)
    see_all(window)
    window.photograph(name, whole=size != PICTURE)
    assert window.said() == []
    assert len(window.rows("moves-table")) == len(demo.records)
    named = window.run("return [...document.querySelectorAll('#timeline-chart svg text')].map((one) => one.textContent)")
    assert {record["domain"]["name"] for record in demo.records} - set(named) == set()


def test_content_security_policy_blocks_injected_scripts_and_remote_images(window: Window, night: Page) -> None:
    window.open(night.path)
    window.run("const one = document.createElement('script'); one.textContent = 'window.taken = true'; document.body.append(one);")
    window.run("const one = document.createElement('img'); one.src = 'https://example.invalid/x.png'; document.body.append(one);")
    assert window.run("return window.taken") is None
    assert len([line for line in window.said() if "Content Security Policy" in line]) == 2


# -- what it shows ---------------------------------------------------------------------------------------------------


def test_moves_table_matches_the_records_of_the_ledger(window: Window, night: Page) -> None:
    window.open(night.path)
    shown = {(row["Domain"], row["Begun"]): row for row in window.rows("moves-table")}
    assert len(shown) == len(night.records)
    for record in night.records:
        move, result = describe_move(read_record(record)), record["result"]
        row = shown[record["domain"]["name"], formats.format_time(move.started_at or move.created_at)]
        assert row["From → to"].replace("\u00a0", " ") == formats.route_text(move)
        assert (row["Took"], row["Downtime"]) == (formats.format_duration(result["elapsed_ms"]), formats.format_duration(result["downtime_ms"]))
        assert (row["Data"], row["Mode"]) == (formats.format_bytes(result["bytes"]), result["mode"] or formats.DASH)
        assert row["Outcome"] == move.outcome


def test_summary_figures_match_the_records_of_the_ledger(window: Window, night: Page) -> None:
    window.open(night.path)
    arrived = sum(1 for record in night.records if record["status"] in ("completed", "done"))
    stayed = sum(1 for record in night.records if record["status"] in NOT_MOVED)
    downtimes = summarize_downtimes([describe_move(read_record(record)) for record in night.records])
    moved = formats.format_bytes(sum(record["result"]["bytes"] or 0 for record in night.records))
    assert window.texts(".tile-figure") == [str(arrived), str(stayed), formats.format_duration(downtimes.median_ms), moved, "1"]
    assert window.texts("#downtimes-figures dd") == [str(downtimes.count), *(formats.format_duration(getattr(downtimes, key)) for key in QUANTILES)]


QUANTILES = ("least_ms", "median_ms", "p95_ms", "p99_ms", "most_ms")


def test_hosts_refusals_forced_moves_and_evidence_are_shown(window: Window, night: Page) -> None:
    window.open(night.path)
    hosts = {row["Host"]: row for row in window.rows("hosts-table")}
    assert [hosts[name]["Safe to reboot"] for name in ("kvm1", "kvm2", "kvm6")] == ["yes", "no", "not known"]
    assert "gpu1 is running here." in hosts["kvm2"]["Why"]
    assert hosts["kvm6"]["State"].startswith("fenced")
    refused = {row["Domain"]: row["Why"] for row in window.rows("refused-table")}
    assert set(refused) == {record["domain"]["name"] for record in night.records if record["status"] in NOT_MOVED}
    assert refused["gpu1"].endswith("(vfio) cannot leave the host.")
    forced = {row["Domain"]: row for row in window.rows("forced-table")}
    assert (forced["erp1"]["How"], forced["db2"]["How"]) == ("FORCED_MIGRATE", "ended by suspend")
    assert "It is in maintenance" in forced["erp1"]["What was overridden"]
    assert {row["Domain"] for row in window.rows("evacuations-table")} == {"shop1", "shop2", "search1"}
    window.run("document.querySelectorAll('#evacuations-table details').forEach((one) => { one.open = true; })")
    assert "Status: OFF" in window.find("#evacuations-table").text


def test_the_last_fleet_check_names_hosts_and_findings(window: Window, night: Page) -> None:
    window.open(night.path)
    text = window.find("#fleet-check").text
    assert all(words in text for words in ("cannot be lost alone", "kvm2, kvm3", "2 can, 0 unknown, 1 cannot", "1 of 3 hosts cannot be lost. <img"))
    window.run("document.querySelector('#fleet-check details').open = true")
    assert "1 finding for a person." in window.find("#fleet-check .check-lines").text


def test_a_maintenance_run_has_its_hosts_with_their_steps_and_what_people_did(window: Window, night: Page) -> None:
    window.open(night.path)
    rows = {row["Host"]: row for row in window.rows("run-0-hosts")}
    assert {host: row["State"] for host, row in rows.items()} == {"kvm1": "done", "kvm2": "failed", "kvm3": "waiting"}
    assert "drain 60 s, maintain 60 s, reboot (fenced) 60 s" in rows["kvm1"]["Steps"]
    assert rows["kvm1"]["Took"] == "7 min 0 s"
    assert rows["kvm2"]["Why"] == nights.MARKUP
    window.run("document.querySelector('#runs details').open = true")
    assert "pause_requested: alarm (ann@control pid 4)" in " ".join(window.find("#runs .check-lines").text.split())


def test_balances_have_their_scores_and_what_each_move_brought(window: Window, night: Page) -> None:
    window.open(night.path)
    first, second = sorted(window.rows("balances-table"), key=lambda row: row["Begun"])
    assert (first["Score before"], first["Predicted gain"], first["Measured gain"]) == ("1.500", "1.000", "0.375")
    assert (second["Score before"], second["Measured"]) == ("0.750", "–")
    window.run("document.querySelectorAll('#balances details').forEach((one) => { one.open = true; })")
    moves = {row["Domain"]: row["Measured gain"] for row in window.rows("balance-0")}
    assert moves == {"g3": "0.375", nights.MARKUP: "–"}
    window.scroll_to("#balances-chart")
    window.until("return document.querySelectorAll('#balances-chart svg path').length > 4")


def test_a_week_of_balances_has_every_run_in_chart_and_table(window: Window, balanced_week: Page) -> None:
    window.look(BALANCES_PICTURE)
    window.open(balanced_week.path)
    rows = window.rows("balances-table")
    assert sorted(row["Moves"] for row in rows) == sorted(str(len(run["moves"])) for run in balanced_week.records)
    measured = [run["measured"] for run in balanced_week.records if "measured" in run]
    assert len([row for row in rows if row["Measured"] != "–"]) == len(measured)
    window.scroll_to("#balances-chart")
    window.until("return document.querySelectorAll('#balances-chart svg path').length > 8")
    window.run("document.querySelector('.jump').hidden = true; window.scrollBy(0, document.querySelector('#balances').getBoundingClientRect().top - 16)")
    window.photograph("balances", whole=False)


def test_a_move_is_shown_with_its_samples(window: Window, night: Page) -> None:
    db1 = named(night, "db1")
    window.open(night.path, f"#move={db1['id']}")
    assert window.find("#move-h").text.startswith("db1")
    window.until("return document.querySelectorAll('#convergence-chart svg path').length > 5")
    window.run("document.querySelectorAll('#move details').forEach((one) => { one.open = true; })")
    readings = window.run("return [...document.querySelectorAll('#move .plain tbody tr')].map((row) => [...row.children].map((cell) => cell.innerText))")
    keys = (("elapsed_ms", formats.format_duration), ("remaining_bytes", formats.format_bytes))
    assert [reading[:2] for reading in readings] == [[say(sample[key]) for key, say in keys] for sample in db1["samples"]]
    assert window.texts("#move .history strong") == [line["status"] for line in db1["history"]]
    assert "284 ms" in window.find("#move .facts").text


def rate_rows(window: Window) -> list[list[str]]:
    """Return the cells of the table of the rates by move."""
    cells = "[...row.children].map((cell) => cell.innerText.trim())"
    rows = window.run(f"return [...document.querySelectorAll('#rates-tables > .sideways tbody tr')].map((row) => {cells})")
    return t.cast("list[list[str]]", rows)


def test_rates_show_the_moves_of_a_drain_beside_the_link(window: Window, night: Page) -> None:
    window.open(night.path)
    window.scroll_to("#rates-chart")
    window.until("return document.querySelectorAll('#rates-chart svg path').length > 20")
    window.run("document.querySelector('#rates-group').value = arguments[0]; document.querySelector('#rates-group').dispatchEvent(new Event('change'))", 0)
    shown = {row[0]: row for row in rate_rows(window)}
    sampled = [record for record in night.records if record["source"]["host"] == "kvm1" and record["samples"]]
    # The smallest moves of a large drain are one row.
    assert len(rate_rows(window)) == min(len(sampled), 25)
    for record in sampled:
        row = shown.get(record["domain"]["name"])
        if row and record["domain"]["name"] != "ledger-db":
            assert row[1] == record["destination"]["host"]
            assert row[2] == formats.format_duration(record["result"]["elapsed_ms"])
            assert row[4] == f"{formats.format_bytes(max(sample['bandwidth_bytes'] for sample in record['samples']))}/s"
    label = window.find("#rates-chart").get_attribute("aria-label")
    assert f"{len(sampled)} moves from kvm1" in label
    assert "The link carries 1.2 GiB/s." in label
    assert "Share of the link" in window.texts("#rates-figures dt")
    window.until("return document.querySelectorAll('#rates-chart svg text').length > 0")
    assert "the link, 1.2 GiB/s" in " ".join(window.run("return [...document.querySelectorAll('#rates-chart svg text')].map((one) => one.textContent)"))


def test_another_drain_can_be_chosen_and_its_bytes_are_those_of_its_readings(window: Window, night: Page) -> None:
    window.open(night.path)
    words = window.texts("#rates-group option")
    (alone,) = [index for index, one in enumerate(words) if one.startswith("kvm3") and one.endswith("1 move") and "01:19" in one]
    window.run("document.querySelector('#rates-group').value = arguments[0]; document.querySelector('#rates-group').dispatchEvent(new Event('change'))", alone)
    record = named(night, "report1")
    assert [row[0] for row in rate_rows(window)] == ["report1"]
    assert "Link" not in window.texts("#rates-figures dt")
    samples = record["samples"]
    spans = zip([0, *(sample["elapsed_ms"] for sample in samples)], samples, strict=False)
    bytes_moved = sum((sample["bandwidth_bytes"] or 0) * (sample["elapsed_ms"] - since) for since, sample in spans)
    mean = round(bytes_moved / samples[-1]["elapsed_ms"])
    assert rate_rows(window)[0][3] == f"{formats.format_bytes(mean)}/s"
    window.run("document.querySelector('#rates-tables details').open = true")
    assert len(window.texts("#rates-tables details tbody tr")) == 60


def test_the_rates_of_a_drain_over_a_slow_cable_stay_at_the_rate_of_the_cable(window: Window, slow_drain: Page) -> None:
    window.look(RATES_PICTURE)
    window.open(slow_drain.path)
    window.scroll_to("#rates-chart")
    window.until("return document.querySelectorAll('#rates-chart svg path').length > 8")
    window.run("document.querySelector('.jump').hidden = true; window.scrollBy(0, document.querySelector('#rates').getBoundingClientRect().top - 16)")
    window.photograph("rates", whole=False)
    assert {row[0] for row in rate_rows(window)} == {record["domain"]["name"] for record in slow_drain.records}
    label = window.find("#rates-chart").get_attribute("aria-label") or ""
    assert "The link carries 64.0 MiB/s." in label
    shares = dict(zip(window.texts("#rates-figures dt"), window.texts("#rates-figures dd"), strict=True))
    assert 80 < int(shares["Share of the link"].removesuffix(" %")) <= 102


def test_a_report_without_readings_has_no_rates(window: Window, unread: Page) -> None:
    window.open(unread.path)
    assert window.run("return document.querySelector('#rates').hidden") is True
    assert "Rates" not in window.texts("#jump a")
    assert window.said() == []


def test_clicking_a_timeline_bar_opens_its_move(window: Window, night: Page) -> None:
    window.open(night.path)
    see_all(window)
    window.run("document.querySelector('#timeline-chart').scrollIntoView({block: 'start'})")
    place = window.run(
        "const bars = [...document.querySelectorAll('#timeline-chart svg text')].filter((one) => one.textContent.startsWith('db1'));"
        "const box = bars[0].getBoundingClientRect(); return [box.x + 3, box.y + box.height / 2];"
    )
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        window.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1})
    window.until("return document.querySelector('#move-h').innerText.startsWith('db1')")
    assert window.run("return location.hash") == f"#move={named(night, 'db1')['id']}"


def test_names_with_markup_are_shown_as_text(window: Window, night: Page) -> None:
    window.open(night.path)
    see_all(window)
    for name in (nights.MARKUP, nights.BREAKOUT):
        box = window.find("#moves-table input")
        box.clear()
        box.send_keys(name.rsplit("=", maxsplit=1)[-1])
        assert name in window.texts("#moves-table tbody th")
        window.run("document.querySelector('#moves-table tbody button').click()")
        window.until("return document.querySelector('#move-h').innerText.startsWith(arguments[0])", name)
    assert window.run("return document.querySelectorAll('main img, main script').length") == 0
    assert window.driver.title == "Kernel updates in November"


# -- how it is used --------------------------------------------------------------------------------------------------


def test_tables_sort_by_figures_and_by_names(window: Window, night: Page) -> None:
    window.open(night.path)
    lived = sorted((record["result"]["downtime_ms"] for record in night.records if record["result"]["downtime_ms"] is not None), reverse=True)
    heading = window.find("#moves-table thead th:nth-child(6) button")
    heading.click()
    assert window.find("#moves-table thead th:nth-child(6)").get_attribute("aria-sort") == "descending"
    assert [row["Downtime"] for row in window.rows("moves-table")][: len(lived)] == [formats.format_duration(one) for one in lived]
    heading.send_keys(Keys.ENTER)
    assert window.find("#moves-table thead th:nth-child(6)").get_attribute("aria-sort") == "ascending"
    window.find("#moves-table thead th:nth-child(1) button").click()
    assert window.texts("#moves-table thead [aria-sort=ascending]") == ["Domain↑"] or window.texts("#moves-table thead [aria-sort=ascending]") == ["Domain"]


def test_tables_can_be_searched_by_cell_text_and_by_record_id(window: Window, night: Page) -> None:
    window.open(night.path)
    for words_typed, found in (("kvm2 db2", ["db2"]), (named(night, "db1")["id"], ["db1"]), ("no such guest", [])):
        box = window.find("#moves-table input")
        box.clear()
        box.send_keys(words_typed)
        assert [row["Domain"] for row in window.rows("moves-table")] == found
    assert window.find("#moves-table .table-status").text == "No row is found."


@pytest.mark.parametrize(("size", "dark"), [(DESK, False), (DESK, True), (PHONE, False)])
def test_the_accessibility_checker_finds_nothing(window: Window, night: Page, axe: str, size: tuple[int, int], dark: bool) -> None:
    window.look(size, dark)
    window.open(night.path)
    see_all(window)
    window.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    window.run(axe + "; window.axe = axe;")
    found: list[t.Any] = window.driver.execute_async_script("const done = arguments[0]; axe.run().then((told) => done(told.violations));")
    assert [(one["id"], one["impact"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found] == []


@pytest.mark.parametrize("size", [PHONE, TABLET, PICTURE, DESK])
def test_page_needs_no_horizontal_scrolling(window: Window, night: Page, size: tuple[int, int]) -> None:
    window.look(size)
    window.open(night.path)
    see_all(window)
    window.photograph(f"night-{size[0]}")
    assert window.run("return document.documentElement.scrollWidth") <= size[0]
    wide = "[...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > arguments[0])"
    wider = window.run(f"return {wide}.filter((one) => !one.closest('.sideways, svg'))", size[0] + 1)
    assert [one.get_attribute("outerHTML")[:200] for one in wider[:5]] == []


def test_dark_mode_changes_the_colours_of_page_and_charts(window: Window, night: Page) -> None:
    window.open(night.path)
    see_all(window)
    background = "getComputedStyle(document.body).backgroundColor"
    fills = "[...document.querySelectorAll('#downtimes-chart svg :is(rect, path)')].map((one) => one.getAttribute('fill')).join()"
    by_day = {colours: window.run(f"return {colours}") for colours in (background, fills)}
    window.look(dark=True)
    # The page changes at once, and a chart when it is drawn anew.
    for colours, before in by_day.items():
        window.until(f"return {colours} !== arguments[0]", before)


def test_printing_shows_all_rows_in_light_colours_and_restores_the_page(window: Window, night: Page) -> None:
    window.look(dark=True)
    window.open(night.path)
    window.run("window.addEventListener('beforeprint', () => { window.printed = document.querySelectorAll('#moves-table tbody tr').length; })")
    assert window.on_paper().startswith(b"%PDF")
    assert window.run("return window.printed") == len(night.records)
    assert window.run("return document.querySelectorAll('#moves-table tbody tr').length") == 25
    assert window.run("return document.documentElement.classList.contains('on-paper')") is False
    assert window.said() == []


def test_page_without_javascript_shows_the_report_as_text(window: Window, night: Page) -> None:
    window.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        window.driver.get(night.path.as_uri())
        text = window.driver.find_element(By.CSS_SELECTOR, "noscript pre").text
    finally:
        window.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "## Moves" in text
    assert named(night, "db1")["id"] in text


def test_report_of_ten_thousand_moves_opens_and_renders_one_page_of_rows(window: Window, month: Page, record_property: t.Callable[[str, object], None]) -> None:
    window.open(month.path)
    timing = window.run("const one = performance.getEntriesByType('navigation')[0]; return [one.domInteractive, one.loadEventEnd];")
    record_property("milliseconds until the page could be used", timing[0])
    record_property("megabytes", month.path.stat().st_size // 10**6)
    assert window.find("#moves-table .table-status").text.replace("\u202f", "") == f"1–25 of {MANY}"
    assert window.run("return document.querySelectorAll('*').length") < 2500
    box = window.find("#moves-table input")
    box.send_keys(month.records[-1]["id"])
    assert [row["Downtime"] for row in window.rows("moves-table")] == [formats.format_duration(month.records[-1]["result"]["downtime_ms"])]
