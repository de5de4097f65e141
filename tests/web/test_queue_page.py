"""The page of a queue: the oldest jobs, the kinds by time used, and who has set what."""

import re
from datetime import timedelta

import pytest

from forge_jobs.model.metrics import Histogram
from forge_jobs.model.queues import QueueChange
from forge_jobs.model.series import FlowSample
from forge_jobs.policy.percentiles import bucket_of
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.support.factories import enqueue_one
from tests.web.conftest import ADA, client_of
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio


def part(text: str, title: str) -> str:
    """Return the part of a page below a heading."""
    return text.partition(f"<h2>{title}")[2].partition("</section>")[0]


async def test_the_oldest_jobs_come_first(storage: Storage) -> None:
    soon = await enqueue_one(storage, queue="mail")
    later = await enqueue_one(storage, queue="mail", delay=timedelta(hours=2))
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
        text = part(await page(client, "/queues/mail"), "Oldest waiting")
    assert re.findall(r'data-job="([^"]+)"', text) == [soon, later]


async def test_kinds_are_listed_by_the_time_they_used(storage: Storage) -> None:
    await storage.config.set_queue("mail", QueueChange(max_workers=2))
    minute = (await storage.cron.now()).replace(second=0, microsecond=0) - timedelta(minutes=3)
    none = Histogram({})
    flows = [
        FlowSample(
            queue="mail",
            kind=kind,
            minute=minute,
            counts={"succeeded": runs},
            delay=none,
            processing=Histogram({bucket_of(seconds): runs}),
            total=none,
        )
        for kind, runs, seconds in (("many.short", 100, 0.1), ("few.long", 3, 30.0))
    ]
    assert not await storage.jobs.add_flows(flows)
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
        text = part(await page(client, "/queues/mail"), "Kinds")
    assert re.findall(r'class="main"[^>]*>([^<]+)<', text) == ["few.long", "many.short"]
    assert re.findall(r"(\d+) %", text.replace(" % of all", "")) == ["90", "10"]


async def test_a_setting_names_who_has_set_it(sqlite: Storage) -> None:
    await sqlite.config.set_queue("mail", QueueChange(max_workers=4))
    async with client_of(dashboard(sqlite, authorize=lambda _: ADA)) as client:
        assert "an operator" in part(await page(client, "/queues/mail"), "Settings")
        await client.post("/act/set_queue?name=mail&objective=90%25+within+30s")
        text = part(await page(client, "/queues/mail"), "Settings")
    assert re.search(r"Objective</td><td[^>]*><b>90% within 30s</b></td><td[^>]*>none</td>", text)
    assert re.search(r"ada</a>, <time[^>]*>(now|[^<]+ ago)<", text)
    assert re.search(r"Max workers</td>.*?an operator</td>", text, re.DOTALL)
    assert re.search(r"Keeps jobs</td>.*?the same</td>.*?>code<", text, re.DOTALL)
    eve = Actor(name="eve", access=Access())
    async with client_of(dashboard(sqlite, authorize=lambda _: eve)) as client:
        assert "an operator" in part(await page(client, "/queues/mail"), "Settings")
