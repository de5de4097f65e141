"""Drills by clicks: the Overview names the incident, and the offered action ends the problem."""

from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from forge_jobs.clock import ManualClock
from forge_jobs.policy.judgement.problems.judging import RULES
from forge_jobs.policy.judgement.problems.problem import Code
from forge_jobs.web import dashboard
from tests.browser.conftest import ADA, served
from tests.support.backends import BACKENDS, pass_on
from tests.support.drills import Drill
from tests.support.fleets import MINUTE, Fleet
from tests.support.incidents import INCIDENTS
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

AFTER = {rule.code: rule.after for rule in RULES}


@pytest.mark.parametrize(
    ("code", "evidence", "button"),
    [
        (Code.PAUSED_WITH_WORK, "Queue default is paused with work due.", "Resume default"),
        (Code.COOLING_WITH_WORK, "Queue default cools down", "End the cool-down of default"),
        (Code.ERROR_BURST, "12 failures", "Pause default"),
        (Code.UNSERVED_QUEUE, "Queue default is not served.", "Pause default"),
    ],
)
async def test_what_the_overview_offers_ends_the_problem(
    browser: Browser, tmp_path: Path, code: Code, evidence: str, button: str
) -> None:
    clock = ManualClock()
    async with BACKENDS["sqlite"](tmp_path, clock) as storage:
        fleet = Fleet(storage, clock)
        await fleet.start("steady")
        planted = await INCIDENTS[code](Drill(storage, fleet, clock))
        clock.advance(max(planted.since + AFTER[code] - clock.now(), timedelta(0)))
        async with served(dashboard(storage, authorize=lambda _: ADA, hosts=())) as address:
            page = await browser.new_page()
            await page.goto(address)
            card = page.locator("article.problem").first
            await expect(card).to_contain_text(evidence)
            await card.get_by_role("link", name=button).click()
            await page.locator("form button.primary").click()
            await expect(page.locator("h1")).to_have_text("Done")
            if code is Code.ERROR_BURST:
                clock.advance(6 * MINUTE)

            async def is_gone() -> bool:
                await page.goto(address)
                # Below the cards the Overview still names the last problem that has ended.
                return evidence not in "".join(
                    await page.locator("article.problem").all_inner_texts()
                )

            await wait_until(is_gone, description="the Overview names the problem no more")
    await pass_on("sqlite", tmp_path)


async def test_a_limit_that_starves_jobs_is_raised_where_the_problem_leads(
    browser: Browser, tmp_path: Path
) -> None:
    clock = ManualClock()
    async with BACKENDS["sqlite"](tmp_path, clock) as storage:
        fleet = Fleet(storage, clock)
        await fleet.start("steady")
        planted = await INCIDENTS[Code.LIMIT_STARVING](Drill(storage, fleet, clock))
        clock.advance(max(planted.since + AFTER[Code.LIMIT_STARVING] - clock.now(), timedelta(0)))
        async with served(dashboard(storage, authorize=lambda _: ADA, hosts=())) as address:
            page = await browser.new_page()
            await page.goto(address)
            card = page.locator("article.problem").first
            await expect(card).to_contain_text("for the limit api")
            await card.get_by_role("link", name="Look there").click()
            await expect(page.locator("td[data-label='who waits']")).to_contain_text("1 job")
            await page.locator("summary").get_by_text("Change").click()
            await page.get_by_label("Tokens in a time").fill("10/1s")
            await page.get_by_role("button", name="Preview").click()
            await page.locator("form button.primary").click()
            await expect(page.locator("h1")).to_have_text("Done")

            async def is_gone() -> bool:
                await page.goto(address)
                cards = await page.locator("article.problem").all_inner_texts()
                return "for the limit api" not in "".join(cards)

            await wait_until(is_gone, description="the Overview names the problem no more")
    await pass_on("sqlite", tmp_path)
