"""The page in a real browser: no script runs, nothing comes from elsewhere, it fits a telephone and a dark room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .browser import Browser
from .conftest import Site

pytestmark = pytest.mark.slow

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> " + "wide" * 200
PATHS = ["/", "/themes", "/theme?name=ops", "/search?q=which+port&theme=ops", "/row?theme=ops&id=1", "/doctor", "/none"]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path / "profile") as started:
        yield started


@pytest.fixture
def address(site: Site) -> str:
    assert site.entry(HOSTILE, tags=["<script>"]) == 1
    for number in range(60):
        site.turn(f"{number}: which port? {HOSTILE}")
    return site.served()


def test_hostile_text_is_shown_and_runs_nothing(address: str, browser: Browser) -> None:
    browser.look(1200)
    for path in PATHS:
        browser.open(f"{address}{path}")
        assert browser.value("document.title").endswith("· memory"), path
        assert browser.value("document.querySelectorAll('script, img, iframe, [onerror]').length") == 0, path
        loaded = browser.value("performance.getEntriesByType('resource').map(one => one.name)")
        assert set(loaded) <= {f"{address}/style.css", f"{address}/favicon.ico"}, path
    browser.open(f"{address}/row?theme=ops&id=1")
    assert browser.value("document.querySelector('blockquote').innerText").startswith("<script>document.title")


@pytest.mark.parametrize("width", [390, 1200])
def test_no_page_is_wider_than_the_screen(address: str, browser: Browser, width: int) -> None:
    browser.look(width)
    for path in PATHS:
        browser.open(f"{address}{path}")
        assert browser.value("document.documentElement.scrollWidth") <= width, path


def test_it_is_light_or_dark_as_the_browser_wishes(address: str, browser: Browser) -> None:
    def brightness(dark: bool) -> int:
        browser.look(800, dark=dark)
        browser.open(address)
        colour = "getComputedStyle(document.body).backgroundColor"
        return int(browser.value(f"{colour}.match(/\\d+/g).slice(0, 3).reduce((sum, one) => sum + Number(one), 0)"))

    assert brightness(dark=True) < 200 < 600 < brightness(dark=False)


def test_a_search_works_without_javascript(address: str, browser: Browser) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(f"{address}/search?q=which+port&theme=ops")
    assert browser.value("document.querySelectorAll('mark').length") > 0
    assert browser.value("document.querySelector('input[name=q]').value") == "which port"
