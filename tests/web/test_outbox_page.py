"""The pages of outboxes: what waits, what was set aside and why, and what people do then."""

import re
from datetime import timedelta
from html import unescape

import httpx
import pytest

from forge_jobs.model.processes import OutboxGauge, PodGauges
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.protocols.letters import HasOutbox
from forge_jobs.web import Access, Actor, dashboard
from tests.support.factories import register
from tests.support.fleets import HOUR
from tests.support.outboxes import write_down
from tests.web.conftest import client_of
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio

REFUSED = 'Conflict: job is stored with <other> "parcels"'


async def test_what_waits_and_what_is_refused_and_why(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    if not isinstance(storage.jobs, HasOutbox):
        assert "This database has no outbox" in await page(caller, "/store/outbox")
        return
    [first, *_] = await write_down(storage, "billing", 3, REFUSED)
    await write_down(storage, "mail", 2)
    text = await page(caller, "/store/outbox")
    assert "<h1>4 jobs to be relayed, 1 set aside</h1>" in text
    assert re.findall(r'data-label="waiting">(\d+)', text) == ["2", "2"]
    assert 'href="/store/outbox/billing"' in text
    assert 'href="/store/outbox"' in await page(caller, "/store")

    text = await page(caller, "/store/outbox/billing")
    assert "<h1>billing: 2 jobs to be relayed, 1 set aside</h1>" in text
    assert unescape(text).count(REFUSED) == 1
    assert "<other>" not in text
    assert text.index(first) == min(text.index(each) for each in re.findall(r"[0-9A-Z]{26}", text))


@pytest.mark.parametrize(("act", "done"), [("retry_outbox", (3, 0)), ("discard_outbox", (2, 0))])
async def test_one_that_was_refused_is_retried_or_discarded_with_a_record(
    sqlite: Storage, act: str, done: tuple[int, int]
) -> None:
    boss = Actor(name="ada", access=Access(actions=frozenset({"*"})))
    [first, *_] = await write_down(sqlite, "billing", 3, REFUSED)
    async with client_of(dashboard(sqlite, authorize=lambda _: boss)) as client:
        text = unescape(await page(client, "/store/outbox/billing"))
        assert f"/act/{act}?name=billing&id={first}" in text
        asked = f"/act/{act}?name=billing&id={first}"
        assert "1 job of the outbox for billing" in await page(client, asked)
        assert "<h1>Done</h1>" in (await client.post(asked)).text
        assert 'href="/audit/' in await page(client, "/audit")
        assert "/act/" not in await page(client, "/store/outbox/billing")
    assert isinstance(sqlite.jobs, HasOutbox)
    state = (await sqlite.jobs.outboxes())["billing"]
    assert (state.waiting, state.set_aside) == done


async def test_the_last_one_leaves_an_empty_page(sqlite: Storage) -> None:
    boss = Actor(name="ada", access=Access(actions=frozenset({"*"})))
    [only] = await write_down(sqlite, "billing", 1, REFUSED)
    async with client_of(dashboard(sqlite, authorize=lambda _: boss)) as client:
        answer = await client.post(f"/act/discard_outbox?name=billing&id={only}")
        assert 'href="/store/outbox/billing"' in answer.text
        assert "<h1>billing: Nothing waits</h1>" in await page(client, "/store/outbox/billing")
        await page(client, "/act/discard_outbox?name=billing", 400)


async def test_who_may_not_is_offered_nothing_and_reads_no_values(sqlite: Storage) -> None:
    await write_down(sqlite, "billing", 1, REFUSED)
    eve = Actor(name="eve", access=Access(payloads=False))
    async with client_of(dashboard(sqlite, authorize=lambda _: eve)) as client:
        text = await page(client, "/store/outbox/billing")
        assert "Conflict" in text
        assert "parcels" not in text
        assert "/act/" not in text
    some = Actor(name="eve", access=Access(queues=frozenset({"gh"})))
    async with client_of(dashboard(sqlite, authorize=lambda _: some)) as client:
        await page(client, "/store/outbox", 403)
        await page(client, "/store/outbox/billing", 403)


async def test_pods_tell_when_an_outbox_was_last_relayed(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    lease = await register(storage, lease_for=HOUR)
    now = await storage.cron.now()
    told = OutboxGauge(
        name="jobs",
        waiting=7,
        waiting_since=now - timedelta(minutes=3),
        relayed_at=now - timedelta(minutes=2),
    )
    minute = now.replace(second=0, microsecond=0)
    await storage.procs.record_gauges(lease, minute, PodGauges(outboxes=(told,)))
    text = await page(caller, "/store/outbox")
    [row] = re.findall(r'<tr>\s*<td class="lead"><b>jobs</b>.*?</tr>', text, re.DOTALL)
    assert re.findall(r'data-label="waiting">(\d+)', row) == ["7"]
    [last] = re.findall(r'data-label="last relayed">(.*?)</td>', row)
    assert "2 min" in last
