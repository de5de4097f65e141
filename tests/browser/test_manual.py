"""The manual in Chromium: pages and search work from the disk, without a network or a server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

MANUAL = Path(__file__).parents[2] / "build" / "manual"

pytestmark = pytest.mark.anyio


@pytest.fixture
async def offline(browser: Browser) -> AsyncIterator[Page]:
    """A page of a browser that has no network. Addresses beside the disk fail the test."""
    if not (MANUAL / "index.html").exists():
        pytest.fail("there is no manual; make docs")
    context = await browser.new_context(offline=True)
    page = await context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    failed: list[str] = []
    page.on("pageerror", lambda error: failed.append(error.message))
    yield page
    await context.close()
    assert failed == []
    assert [address for address in asked if not address.startswith(("file:", "data:"))] == []


async def test_a_search_finds_the_page_and_leads_there(offline: Page) -> None:
    await offline.goto((MANUAL / "docs" / "start.html").as_uri())
    box = offline.locator(".sidebar-search:visible")
    await box.fill("debounce")
    await box.press("Enter")

    found = offline.locator("#search-results .search li a", has_text="Unique keys")
    await expect(found.first).to_be_visible()
    await found.first.click()
    await expect(offline.locator("h1")).to_contain_text("Unique keys")


async def test_a_public_name_is_found_in_the_reference(offline: Page) -> None:
    await offline.goto(f"{(MANUAL / 'search.html').as_uri()}?q=SyncJobClient")

    found = offline.locator("#search-results .search li a", has_text="forge_jobs.SyncJobClient")
    await expect(found.first).to_be_visible()
