"""An outbox in Chromium: a record that was refused is found, previewed, and discarded."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from forge_jobs.web import dashboard
from tests.browser.conftest import ADA, served
from tests.browser.test_pages import Watched
from tests.support.backends import BACKENDS
from tests.support.outboxes import write_down

pytestmark = pytest.mark.anyio


async def test_a_refused_record_is_found_and_discarded(browser: Browser, tmp_path: Path) -> None:
    async with BACKENDS["sqlite"](tmp_path, None) as storage:
        await write_down(storage, "billing", 2, "Conflict: the id is taken")
        app = dashboard(storage, authorize=lambda _: ADA, hosts=())
        async with served(app) as address:
            watched = Watched(await browser.new_page())
            page = watched.page
            await page.goto(f"{address}/store")
            await page.get_by_role("link", name="Outboxes").click()
            await expect(page.locator("h1")).to_have_text("1 job to be relayed, 1 set aside")
            await page.get_by_role("link", name="billing").click()
            await expect(page.locator("main")).to_contain_text("Conflict: the id is taken")
            await page.get_by_role("link", name="Discard").click()
            await expect(page.locator("main")).to_contain_text("forge-jobs outbox discard billing")
            await page.get_by_role("button", name="Discard 1 job").click()
            await expect(page.locator("h1")).to_have_text("Done")
            await page.goto(f"{address}/store/outbox/billing")
            await expect(page.locator("h1")).to_have_text(
                "billing: 1 job to be relayed, 0 set aside"
            )
            assert watched.complaints == []
