"""The live part of the pages in Chromium: values change in their places, and nothing else moves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from forge_jobs.clock import SystemClock, from_us
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import Claim, JobStatus
from forge_jobs.model.progress import NewLine, NewProgress, ProgressNote
from forge_jobs.operating.live.reading import LiveReader
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from tests.browser.conftest import ADA
from tests.browser.conftest import served as address_of
from tests.support.backends import BACKENDS
from tests.support.factories import DAY, claim_one, enqueue_one, failed, finish, register
from tests.support.faulty import Faults, faulty
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


class Served:
    """A dashboard whose store can be switched off."""

    def __init__(self, address: str, storage: Storage, faults: Faults) -> None:
        self.address = address
        self.storage = storage
        self.faults = faults


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    faults = Faults()
    async with BACKENDS["sqlite"](folder, None) as storage:
        app = dashboard(faulty(storage, faults), authorize=lambda _: ADA, hosts=())
        async with address_of(app) as address:
            yield Served(address, storage, faults)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as each:
        yield each


@asynccontextmanager
async def opened(browser: Browser, address: str) -> AsyncIterator[Page]:
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    page = await context.new_page()
    await page.goto(address)
    yield page
    await context.close()


def due(page: Page, queue: str) -> str:
    return f'[data-queue="{queue}"] [data-live="due"]'


async def says_paused(page: Page) -> bool:
    """Return whether the page as the server writes it says that mail is paused."""
    answer = await page.request.get(page.url)
    return '"standing">paused<' in await answer.text()


async def is_live(page: Page) -> None:
    await expect(page.locator("#live")).to_have_attribute("data-state", "live")


async def test_values_change_in_their_places(browser: Browser, served: Served) -> None:
    for queue in ("gh", "mail"):
        await enqueue_one(served.storage, queue=queue)
    async with opened(browser, f"{served.address}/queues") as page:
        await is_live(page)
        box = await page.locator('[data-queue="mail"]').bounding_box()
        await served.storage.config.set_paused("mail", True)
        for _ in range(3):
            await enqueue_one(served.storage, queue="mail")

        await expect(page.locator(due(page, "mail"))).to_have_text("4")
        standing = page.locator('[data-queue="mail"] [data-live="standing"]')
        await expect(standing).to_have_text("paused")
        await expect(standing).to_have_class("state warn fresh")
        assert await page.locator('[data-queue="mail"]').bounding_box() == box
        await page.reload()
        await expect(page.locator(due(page, "mail"))).to_have_text("4")
        await expect(standing).to_have_text("paused")


async def test_an_older_reading_is_not_written_into_a_newer_page(
    browser: Browser, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reading for all viewers is from before the pause, and so are all events for now."""
    is_held = True
    due_by_itself = LiveReader._is_due
    monkeypatch.setattr(
        LiveReader,
        "_is_due",
        lambda self, part: (self.now.at is None or not is_held) and due_by_itself(self, part),
    )
    await enqueue_one(served.storage, queue="mail")
    async with (
        opened(browser, f"{served.address}/queues") as before,
        opened(browser, f"{served.address}/queues") as page,
    ):
        await is_live(before)
        await enqueue_one(served.storage, queue="mail")
        await served.storage.config.set_paused("mail", True)
        # Pages share a look of the last second.
        await wait_until(lambda: says_paused(page), description="a page says paused")
        await page.reload()
        await is_live(page)
        standing = page.locator('[data-queue="mail"] [data-live="standing"]')
        await expect(standing).to_have_text("paused")
        await expect(page.locator(due(page, "mail"))).to_have_text("2")

        # As in the old reading: no event ever tells of a change.
        await served.storage.config.set_paused("mail", False)
        is_held = False
        await expect(standing).not_to_have_text("paused")


async def test_what_is_selected_stays_until_the_selection_is_gone(
    browser: Browser, served: Served
) -> None:
    for queue in ("gh", "mail"):
        await enqueue_one(served.storage, queue=queue)
    async with opened(browser, f"{served.address}/queues") as page:
        await is_live(page)
        await page.locator(due(page, "mail")).select_text()
        for queue in ("gh", "mail"):
            await enqueue_one(served.storage, queue=queue)

        await expect(page.locator(due(page, "gh"))).to_have_text("2")
        await expect(page.locator(due(page, "mail"))).to_have_text("1")
        await page.evaluate("document.getSelection().removeAllRanges()")
        await expect(page.locator(due(page, "mail"))).to_have_text("2")


async def test_a_row_that_has_changed_stays_and_a_note_says_so(
    browser: Browser, served: Served
) -> None:
    jobs = [await enqueue_one(served.storage, queue="gh") for _ in range(3)]
    async with opened(browser, f"{served.address}/jobs?q=status:pending") as page:
        await is_live(page)
        await page.locator(f'input[value="{jobs[0]}"]').check()
        await served.storage.jobs.cancel(JobFilter(ids=(jobs[0],)))

        state = page.locator(f'[data-job="{jobs[0]}"] [data-live="status"]')
        await expect(state).to_have_text(JobStatus.CANCELLED.value)
        await expect(page.get_by_text("A job of this list has changed.")).to_be_visible()
        await expect(page.locator(f'input[value="{jobs[0]}"]')).to_be_checked()
        await page.get_by_role("link", name="Load the page again").click()
        await expect(page.locator(f'[data-job="{jobs[0]}"]')).to_have_count(0)


async def test_progress_and_lines_of_a_run_come_by_themselves(
    browser: Browser, served: Served
) -> None:
    jobs = served.storage.jobs
    lease = await register(served.storage, lease_for=DAY)
    job_id = await enqueue_one(served.storage)

    async def tell(attempt: int, *texts: str, progress: NewProgress | None = None) -> Claim:
        claim = (await claim_one(served.storage, lease)).claim
        now = from_us(SystemClock().time_us())
        lines = tuple(NewLine(number, now, 20, text) for number, text in enumerate(texts, 1))
        note = ProgressNote(claim=claim, attempt=attempt, progress=progress, lines=lines)
        assert await jobs.note_progress([note]) == [True]
        return claim

    async with opened(browser, f"{served.address}/jobs/{job_id}") as page:
        await is_live(page)
        log = page.locator("[data-log]")
        await expect(log).to_be_hidden()
        claim = await tell(1, "one <b>", "two", progress=NewProgress(3, 4, "pages"))
        await expect(log.locator("pre")).to_contain_text("  one <b>")
        await expect(log.locator("pre")).to_contain_text("  two")
        await expect(page.locator("[data-live=progress]")).to_have_text("3 of 4 (75 %) pages")

        assert await finish(served.storage, claim, failed(timedelta(0)))
        await tell(2, "again")
        await expect(log.locator("h2")).to_contain_text("attempt 2")
        await expect(log.locator("pre")).to_contain_text("  again")
        await expect(log.locator("pre")).not_to_contain_text("two")


async def test_a_pause_holds_over_pages_and_ends(browser: Browser, served: Served) -> None:
    await enqueue_one(served.storage, queue="gh")
    async with opened(browser, f"{served.address}/queues") as page:
        await is_live(page)
        await page.locator("#live button").click()
        await expect(page.locator("#live")).to_have_attribute("data-state", "paused")
        await page.reload()
        await expect(page.locator("#live")).to_have_attribute("data-state", "paused")
        await enqueue_one(served.storage, queue="gh")
        await page.locator("#live button").click()
        await is_live(page)
        await expect(page.locator(due(page, "gh"))).to_have_text("2")
        await expect(page.locator("#live button")).to_have_text("live")


async def test_a_lost_store_is_said_and_found_again(browser: Browser, served: Served) -> None:
    async with opened(browser, f"{served.address}/queues") as page:
        await is_live(page)
        served.faults.down = True
        lost = page.locator("#live button")
        await expect(lost).to_contain_text("lost, showing ")
        served.faults.down = False
        await is_live(page)


async def test_a_page_without_a_place_polls(
    browser: Browser, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.web.live.hub.MAX_STREAMS", 0)
    await enqueue_one(served.storage, queue="gh")
    async with opened(browser, f"{served.address}/queues") as page:
        await is_live(page)
        await enqueue_one(served.storage, queue="gh")
        await expect(page.locator(due(page, "gh"))).to_have_text("2")
