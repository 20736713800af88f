"""Opens a page, from a file or a server, in a real browser, Chromium, at the width of a desk and of a phone.

The browser is the machine's own (Debian: ``apt-get install chromium``); playwright drives it. Without them tests are
skipped.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from patience import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The size of a window."""

    name: str
    width: int
    height: int
    is_touched: bool = False


SCREENS: Final = (
    Screen(name="desk", width=1_280, height=900),
    Screen(name="phone", width=390, height=844, is_touched=True),
)


@contextmanager
def launched() -> Iterator[Browser]:
    """Start the machine's browser; skip the test if there is none."""
    path = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if path is None:
        pytest.skip("there is no Chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        # Containers often forbid Chromium's own sandbox; the page is ours, and reaches no network.
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, file: Path, screen: Screen = SCREENS[0], *, scripts: bool = True) -> Iterator[Page]:
    """Open a page from a file; fail at the end if it asked for anything else, or if its script complained."""
    with _windowed(browser, screen, scripts=scripts) as (page, complaints, asked):
        page.goto(file.as_uri())
        yield page
    assert complaints == []
    assert {address for address in asked if not address.startswith("blob:")} == {file.as_uri()}


@contextmanager
def visited(
    browser: Browser, url: str, screen: Screen = SCREENS[0], *, is_dark: bool = False, may_complain: bool = False
) -> Iterator[Page]:
    """Open a page of a server; fail at the end if it asked another one for anything, or if its script complained.

    The browser itself reports error answers and requests that a policy forbids; ``may_complain`` allows these reports.
    """
    with _windowed(browser, screen, is_dark=is_dark) as (page, complaints, asked):
        page.goto(url)
        yield page
    if not may_complain:
        assert complaints == [], complaints
    origin = "/".join(url.split("/")[:3]) + "/"
    assert [address for address in asked if not address.startswith(origin)] == []


@contextmanager
def _windowed(
    browser: Browser, screen: Screen, *, scripts: bool = True, is_dark: bool = False
) -> Iterator[tuple[Page, list[str], list[str]]]:
    """Open an empty window; yield it with the lists of the complaints and the requests of its pages."""
    context = browser.new_context(
        viewport={"width": screen.width, "height": screen.height},
        has_touch=screen.is_touched,
        accept_downloads=True,
        java_script_enabled=scripts,
        color_scheme="dark" if is_dark else "light",
    )
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(PATIENCE_S * 1_000)
    page = context.new_page()
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    yield page, complaints, asked
    context.close()
