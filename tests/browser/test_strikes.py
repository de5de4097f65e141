"""A strike in Chromium: set by the form after a preview, lifted, and the lift taken back."""

import pytest
from playwright.async_api import Browser, expect

from tests.browser.conftest import Site
from tests.browser.test_pages import Watched

pytestmark = pytest.mark.anyio


async def test_a_strike_is_set_lifted_and_set_again(browser: Browser, site: Site) -> None:
    watched = Watched(await browser.new_page(viewport={"width": 400, "height": 700}))
    page = watched.page
    await page.goto(f"{site.address}/limits")
    await page.get_by_text("Set a strike").click()
    await page.get_by_label("Name of the strike").fill("down")
    await page.get_by_label("Kind of the jobs").fill("no.such")
    await page.get_by_label("The jobs are").select_option("cancel")
    await page.get_by_label("Why, for people").fill("ticket 4711")
    await page.get_by_role("button", name="Preview").click()
    await expect(page.locator("h1")).to_have_text("Set strike down")
    await expect(page.locator("main")).to_contain_text("0 waiting jobs are meant now")
    await page.get_by_role("button", name="Set strike down").click()
    await page.get_by_role("link", name="Go on").click()
    await expect(page.locator("main")).to_contain_text("ticket 4711")
    await page.get_by_role("link", name="Lift").click()
    await page.get_by_role("button", name="Lift down").click()
    await page.get_by_role("link", name="Go on").click()
    await expect(page.locator("main")).to_contain_text("No strike: every job may run.")
    await page.goto(f"{site.address}/audit")
    await page.locator("a[href*='/audit/']").first.click()
    await page.get_by_role("link", name="Undo").click()
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator("h1")).to_have_text("Done")
    await page.goto(f"{site.address}/limits")
    await expect(page.locator("main")).to_contain_text("ticket 4711")
    assert watched.complaints == []
