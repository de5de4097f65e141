"""The page of a queue: the oldest jobs, the kinds by time used, and who has set what."""

import re
from datetime import timedelta
from html import unescape

import pytest

from forge_jobs.model.metrics import Histogram
from forge_jobs.model.queues import QueueChange
from forge_jobs.model.series import FlowSample
from forge_jobs.policy.percentiles import bucket_of
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.support.factories import enqueue_one, new_job
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


async def test_what_if_is_asked_on_the_page_and_kept_in_the_address(sqlite: Storage) -> None:
    await sqlite.config.set_queue("mail", QueueChange(max_workers=4))
    await sqlite.jobs.enqueue([new_job(queue="mail") for _ in range(3)])
    async with client_of(dashboard(sqlite, authorize=lambda _: ADA)) as client:
        plain = part(await page(client, "/queues/mail?over=6h"), "What if")
        assert 'name="over" value="6h"' in plain
        assert 'value="4"' in plain
        asked = part(await page(client, "/queues/mail?max_workers=20&arrivals=1.5"), "What if")
        said = (await client.get("/api/v1/queues/mail/what-if?max_workers=20&arrivals=1.5")).json()
        assert said["text"] in unescape(asked)
        assert "forge-jobs what-if mail --max-workers 20 --arrivals 1.5" in asked
        assert "/act/set_queue?name=mail&amp;max_workers=20" in asked
        for field, text in (
            ("max_workers", "many"),
            ("max_workers", "-1"),
            ("max_workers", "9" * 20),
            ("arrivals", "nan"),
            ("arrivals", "-1"),
            ("arrivals", "1e999"),
        ):
            wrong = part(await page(client, f"/queues/mail?{field}={text}"), "What if")
            assert f"<b>{field}</b>" in wrong, text
            assert 'aria-invalid="true"' in wrong, text
    eve = Actor(name="eve", access=Access())
    async with client_of(dashboard(sqlite, authorize=lambda _: eve)) as client:
        read = part(await page(client, "/queues/mail?max_workers=20"), "What if")
        assert "set_queue" not in read
