"""Things with any name that is allowed have pages and routes, which browsers reach by links."""

import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape

import httpx
import pytest

from forge_jobs import EnqueueRequest, RateLimit
from forge_jobs.clients.schedules import put_schedule, schedule
from forge_jobs.model.names import name_of_part, path_part
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim, new_job, register
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio

API = "/api/v1"
NAMES = (
    *(".", "..", "~.", "~~..", "...", "~", "a/b", "/", "//", "../..", "x/.", "./x", "%2e", "%2F"),
    *("?", "a?b=c", "#", "a+b", "+", "&amp;", "\\", "💥", "\u202eevil", "edit", "new", "{name}"),
)


async def fill(storage: Storage) -> None:
    """Store a queue, schedule, rate limit and limit of each name, with a job at each full key."""
    lease = await register(storage, queues=[*NAMES, "q"], lease_for=timedelta(hours=1))
    for name in NAMES:
        await storage.config.set_queue(name, QueueChange(max_workers=1))
        await storage.config.ensure_rate_limit(name, RateLimit(1, 60))
        await storage.config.ensure_limits(name, {name: 1})
        spec = schedule(name, EnqueueRequest("k", {}, queue="q"), "@daily")
        await put_schedule(storage.cron, spec)
        jobs = [new_job(queue=name, limit_name=name, limit_key=name) for _ in range(2)]
        await storage.jobs.enqueue(jobs)
        await claim(storage, lease, queue=name, limit=2)


def links(text: str, section: str) -> Iterator[tuple[str, str]]:
    """Yield what the links of a page into a section show, and where they lead."""
    for address, shown in re.findall(rf'<a[^>]* href="(/{section}/[^"]*)"[^>]*>([^<]*)<', text):
        yield unescape(shown), unescape(address)


@pytest.mark.parametrize("section", ["queues", "cron", "limits"])
async def test_each_link_of_a_list_leads_to_a_page(
    storage: Storage, caller: httpx.AsyncClient, section: str
) -> None:
    await fill(storage)
    found = dict(links(await page(caller, f"/{section}"), section))
    assert set(found) >= set(NAMES)
    for name in NAMES:
        shown = await page(caller, found[name])
        assert name in unescape(shown.partition("<h1>")[2].partition("</h1>")[0]), found[name]
        deeper = [each for _, each in links(shown, section) if each.startswith(found[name])]
        for address in deeper:
            await page(caller, address)
        if section == "limits":
            assert any("key=" in each for each in deeper), name


async def test_each_name_has_its_routes(storage: Storage, caller: httpx.AsyncClient) -> None:
    await fill(storage)
    for name in NAMES:
        part = path_part(name)
        queue = await caller.post(f"{API}/queues/{part}/pause")
        assert (queue.status_code, queue.json()["name"]) == (200, name)
        schedule = await caller.post(f"{API}/schedules/{part}/pause")
        assert (schedule.status_code, schedule.json()["spec"]["name"]) == (200, name)
        limit = await caller.get(f"{API}/concurrency/{part}/{part}", params={"key": name})
        assert limit.status_code == 200, name
        assert len(limit.json()["waiting"]) == 1, name
        for path in (f"limits/{part}", f"concurrency/{part}/{part}", f"schedules/{part}"):
            gone = await caller.delete(f"{API}/{path}")
            assert (gone.status_code, gone.json()["name"]) == (200, name), path


def test_no_part_of_an_address_is_one_that_clients_take_away() -> None:
    parts = [path_part(name) for name in NAMES]
    assert not {".", "..", "%2e", "%2E"} & set(parts)
    assert len(set(parts)) == len(NAMES)
    assert path_part(".") == "~."
    for name in (".", "..", "~.", "~~..", "~", "...", "~a"):
        assert name_of_part(path_part(name)) == name
