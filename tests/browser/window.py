# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real headless Chromium, and what a test asks of the page in it."""

from __future__ import annotations

import base64
import json
import os
import typing as t
from collections.abc import Mapping
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

BROWSER, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
WAIT_SECONDS = 300
PHONE = (360, 740)
TABLET = (768, 1024)
DESK = (1280, 900)


class Window:
    """:arg profile: a folder of the browser's own."""

    def __init__(self, profile: Path) -> None:
        options = Options()
        options.binary_location = BROWSER
        for switch in (
            "headless=new",
            "no-sandbox",
            "disable-gpu",
            "disable-dev-shm-usage",
            "no-first-run",
            "disable-background-networking",
            "hide-scrollbars",
        ):
            options.add_argument(f"--{switch}")
        options.add_argument(f"--user-data-dir={profile}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        environment = {**os.environ, "HOME": str(profile)}
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER, env=environment))
        self.driver.set_page_load_timeout(WAIT_SECONDS)

    def close(self) -> None:
        self.driver.quit()

    def look(self, size: tuple[int, int] = DESK, dark: bool = False, media: str = "") -> None:
        """Look from now on with such a screen: its size in points, its colours, and C(print) for paper."""
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})

    def open(self, page: Path, fragment: str = "") -> None:
        """Open the page anew and wait until it has drawn itself; what the console and the network said before is forgotten."""
        self.driver.get("about:blank")
        self.said()
        self.driver.get_log("performance")
        self.driver.get(f"{page.as_uri()}{fragment}")
        self.until("return document.documentElement.dataset.ready === 'yes'")

    def until(self, script: str, *arguments: t.Any) -> None:
        """Wait until that is so."""
        WebDriverWait(self.driver, WAIT_SECONDS, 0.05).until(lambda driver: driver.execute_script(script, *arguments))

    def run(self, script: str, *arguments: t.Any) -> t.Any:
        return self.driver.execute_script(script, *arguments)

    def said(self) -> list[str]:
        """Return what came to the console since it was asked last."""
        return [f"{line['level']}: {line['message']}" for line in self.driver.get_log("browser")]

    def fetched(self) -> set[str]:
        """Return all that was asked of the network or the disk since the page was opened."""
        events = [json.loads(line["message"])["message"] for line in self.driver.get_log("performance")]
        return {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}

    def find(self, css: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def texts(self, css: str) -> list[str]:
        """Return what these elements say, as it stands on the page."""
        return t.cast("list[str]", self.run("return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText.trim())", css))

    def rows(self, table: str) -> list[Mapping[str, str]]:
        """Return all rows of a table as it can be turned through, by the titles of their columns."""
        found: list[Mapping[str, str]] = []
        while True:
            found += self.run(
                "return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)].map((row) => Object.fromEntries("
                "[...row.children].map((cell) => [cell.dataset.label, cell.innerText.trim()])))",
                table,
            )
            more = self.driver.find_elements(By.CSS_SELECTOR, f"#{table} .pages button:last-child:not([disabled]):not([hidden])")
            if not more:
                return found
            self.run("arguments[0].click()", more[0])

    def scroll_to(self, css: str) -> None:
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", css)

    def on_paper(self) -> bytes:
        """Print the page and return the PDF."""
        done = self.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False, "paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True})
        return base64.b64decode(done["data"])

    def photograph(self, name: str, whole: bool = True) -> None:
        """Keep a picture of the page where KVMFLEET_PICTURES says, if anywhere."""
        folder = os.environ.get("KVMFLEET_PICTURES")
        if not folder:
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        done = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        Path(folder, f"{name}.png").write_bytes(base64.b64decode(done["data"]))
