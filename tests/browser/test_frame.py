"""Scripts of the frame in Chromium: charts that zoom, keys, themes, times, completion."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.conftest import Site
from tests.browser.pictures import at_work
from tests.browser.test_pages import Watched

pytestmark = pytest.mark.anyio


@pytest.fixture
async def past(tmp_path: Path) -> AsyncIterator[str]:
    """Return the address of a dashboard on a store with a past."""
    async with at_work(tmp_path) as (address, _):
        yield address


async def opened(browser: Browser, address: str) -> Watched:
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    watched = Watched(await context.new_page())
    await watched.page.goto(address)
    return watched


async def test_a_drag_on_a_chart_zooms_and_back_undoes_that(browser: Browser, past: str) -> None:
    watched = await opened(browser, f"{past}/?compare=day")
    page = watched.page
    await expect(page.locator(".chart.drawn canvas")).to_have_count(3)
    await page.locator("#chart-flow").scroll_into_view_if_needed()
    box = await page.locator("#chart-flow .u-over").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + box["width"] * 0.4, middle)
    shown = page.locator("#chart-times .legend b").first
    await expect(shown).not_to_have_text("")
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.7, middle, steps=5)
    await page.mouse.up()
    await expect(page).to_have_url(re.compile(r"since=.*until="))
    await expect(page).to_have_url(re.compile("compare=day"))
    await page.go_back()
    await expect(page).not_to_have_url(re.compile("since="))
    assert watched.complaints == []


async def test_one_cursor_moves_on_all_charts(browser: Browser, past: str) -> None:
    page = (await opened(browser, past)).page
    await expect(page.locator(".chart.drawn canvas")).to_have_count(3)
    depth = page.locator("#chart-depth .legend b").first
    newest = await depth.text_content()
    await page.locator("#chart-flow").scroll_into_view_if_needed()
    box = await page.locator("#chart-flow .u-over").bounding_box()
    assert box is not None
    # Before the first minute nothing was due, which is no number at all.
    await page.mouse.move(box["x"] + 5, box["y"] + 20)
    await expect(depth).to_have_text("\u2013")
    assert newest != "\u2013"


async def test_keys_go_look_select_and_act(browser: Browser, site: Site) -> None:
    page = (await opened(browser, site.address)).page
    await page.keyboard.press("g")
    await page.keyboard.press("j")
    await expect(page).to_have_url(re.compile("/jobs$"))
    await page.keyboard.press("/")
    await expect(page.locator("#search")).to_be_focused()
    await page.keyboard.type("gj?")
    await expect(page).to_have_url(re.compile("/jobs$"))
    await page.goto(f"{site.address}/jobs?q=queue:gh+status:dead")
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await expect(page.locator("tbody tr input:checked")).to_have_count(1)
    await expect(page.locator("tbody tr").nth(1).locator("input")).to_be_checked()
    await page.keyboard.press("?")
    await expect(page.locator("#keys")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator("#keys")).not_to_be_visible()
    await page.keyboard.press("Shift+R")
    await expect(page.locator("h1")).to_have_text("Requeue 1 job")


async def test_theme_and_times_stay_over_pages(browser: Browser, site: Site) -> None:
    page = (await opened(browser, site.address)).page
    await _pressed(page, "scheme", "dark")
    await _pressed(page, "times", "local")
    await page.goto(f"{site.address}/pods")
    await expect(page.locator("html")).to_have_attribute("data-scheme", "dark")
    await expect(page.locator("td time").first).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d "))


async def _pressed(page: Page, tool: str, until: str) -> None:
    button = page.locator(f'[data-tool="{tool}"]')
    for _ in range(3):
        if (await button.locator("b").text_content()) == until:
            return
        await button.click()
    await expect(button.locator("b")).to_have_text(until)


async def test_the_last_word_of_a_filter_is_completed(browser: Browser, site: Site) -> None:
    page = (await opened(browser, f"{site.address}/jobs")).page
    await page.locator("#q").fill("status:dead que")
    first = page.locator("#words option").first
    await expect(first).to_have_attribute("value", "status:dead queue:")
