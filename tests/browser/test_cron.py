"""The text of a schedule in Chromium: said in words while a person types."""

import pytest
from playwright.async_api import Browser, expect

from tests.browser.conftest import Site
from tests.browser.test_pages import Watched

pytestmark = pytest.mark.anyio


async def test_the_meaning_of_a_text_follows_what_is_typed(browser: Browser, site: Site) -> None:
    watched = Watched(await browser.new_page())
    page = watched.page
    await page.goto(f"{site.address}/cron/nightly")
    times, field = page.locator("#times"), page.locator("#expression")
    await expect(times).to_contain_text("At 02:30")
    await field.fill("0 6 * * 1-5")
    await expect(times).to_contain_text("At 06:00, Monday through Friday")
    await page.locator("#timezone").fill("Asia/Tokyo")
    await expect(times).to_contain_text("06:00:00 JST")
    await field.fill("61 * * * *")
    await expect(times).to_contain_text("is not a cron expression")
    await expect(field).to_have_attribute("aria-invalid", "true")
    await page.locator("#timezone").fill("Europe/Berlin")
    await field.fill("30 2 * * *")
    await expect(times).to_contain_text("At 02:30")
    await field.fill("0 7 * * *")
    await page.get_by_role("button", name="Change").click()
    await expect(page.locator("h1")).to_contain_text("0 7 * * *")
    await expect(page.locator("main")).to_contain_text("At 07:00")
    await page.get_by_role("button", name="Change nightly").click()
    await expect(page.locator("h1")).to_have_text("Done")
    assert watched.complaints == []
