"""Actions on many jobs by pages: previewed, applied by token, and recorded."""

import re
from html import unescape
from urllib.parse import urlencode

import httpx
import pytest

from forge_jobs import After, EnqueueRequest
from forge_jobs.clients.client import JobClient
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.actions.documents import ActionView
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from forge_jobs.web.pages import acting
from tests.web.conftest import ADA, client_of
from tests.web.scene import playing
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SLOWEST = 0.0


async def send(client: httpx.AsyncClient, path: str, preview: str, **fields: str) -> str:
    """Send the form of a preview, as a browser does."""
    [token] = re.findall(r'name="token" value="([^"]+)"', preview)
    content = urlencode({"token": unescape(token), **fields})
    return (await client.post(path, content=content, headers=FORM)).text


async def records(storage: Storage) -> list[ActionView]:
    """Return the records of all actions."""
    async with Operator(storage, Actor(name="eve", access=ALL)) as operator:
        return list((await operator.list_actions()).actions)


async def test_an_action_is_previewed_then_done(storage: Storage) -> None:
    app = dashboard(storage, authorize=lambda _: ADA)
    async with playing(storage) as scene, client_of(app) as client:
        path = "/act/requeue_jobs?q=queue:gh+status:dead,done"
        preview = await page(client, path)
        assert "Requeue 3 jobs" in preview
        assert "17 jobs match" in preview
        assert "14 will be left alone: they have ended" in preview
        assert "There is no undo" in preview
        assert "The newest ten of them" in preview
        assert preview.count('class="lead"') == 10
        assert "forge-jobs jobs requeue --where" in preview
        assert await records(storage) == []

        done = await send(client, path, preview, reason="the bank is back")
        assert "3 jobs requeued" in done
        assert "14 left alone: they have ended" in done
        again = await send(client, path, preview, reason="a second click")
        assert "3 jobs requeued" in again
        [record] = await records(storage)
        assert (record.actor, record.surface, record.verb) == ("ada", "web", "requeue_jobs")
        assert (record.reason, record.changed, record.refused) == ("the bank is back", 3, 14)

        path = f"/act/cancel_jobs?id={scene.jobs['scheduled']}"
        preview = await page(client, path)
        assert "1 blocked job waits for these" in preview
        assert scene.jobs["blocked"][-6:] in preview
        assert "1 of the newest have a unique key" in preview
        await send(client, path, preview)
        assert "cancelled" in await page(client, f"/jobs/{scene.jobs['scheduled']}")


async def test_jobs_that_come_after_the_preview_are_not_meant(storage: Storage) -> None:
    path = "/act/delete_jobs?q=queue:a"
    async with JobClient(storage) as jobs, client_of(_app(storage)) as client:
        await jobs.enqueue_many([EnqueueRequest("a", {}, queue="a") for _ in range(20)])
        preview = await page(client, path)
        late = await jobs.enqueue(EnqueueRequest("a", {}, queue="a"))
        assert "20 jobs deleted" in await send(client, path, preview)
        left = await storage.jobs.list(JobFilter(queues=("a",)))
        assert [job.id for job in left.jobs] == [late.job_id]


async def test_a_change_of_many_jobs_is_typed(sqlite: Storage) -> None:
    async with JobClient(sqlite) as jobs:
        await jobs.enqueue_many([EnqueueRequest("a", {}, queue="a") for _ in range(1_001)])
    path = "/act/cancel_jobs?q=queue:a"
    async with client_of(_app(sqlite)) as client:
        preview = await page(client, path)
        assert "type 1,001 to go on" in preview
        for typed in ("", "1000"):
            refused = await send(client, path, preview, typed=typed)
            assert "type 1,001" in refused
            assert "Preview again" in refused
        assert await records(sqlite) == []
        assert "1,001 jobs cancelled" in await send(client, path, preview, typed="1,001")


async def test_an_action_needs_jobs_and_a_token(caller: httpx.AsyncClient) -> None:
    await page(caller, "/act/delete_jobs", 400)
    await page(caller, "/act/list_jobs?q=queue:a", 404)
    assert 'name="token"' not in await page(caller, "/act/delete_jobs?q=queue:a")
    for path in ("/act/delete_jobs", "/act/delete_jobs?q=queue:a"):
        answer = await caller.post(path)
        assert "Nothing was changed" in answer.text
        assert "token" in answer.text


async def test_a_token_is_for_its_own_action_and_actor(sqlite: Storage) -> None:
    async with JobClient(sqlite) as jobs:
        await jobs.enqueue(EnqueueRequest("a", {}, queue="a"))
    bob = dashboard(sqlite, authorize=lambda _: Actor(name="bob", access=ALL))
    async with client_of(_app(sqlite)) as client, client_of(bob) as other:
        preview = await page(client, "/act/cancel_jobs?q=queue:a")
        text = await send(client, "/act/delete_jobs?q=queue:a", preview)
        assert "is of another action" in text
        text = await send(other, "/act/cancel_jobs?q=queue:a", preview)
        assert "is of another actor" in text
    assert await records(sqlite) == []


async def test_jobs_that_are_gone_are_counted(sqlite: Storage) -> None:
    async with JobClient(sqlite) as jobs:
        there = await jobs.enqueue(EnqueueRequest("a", {}, queue="a"))
        await jobs.enqueue(EnqueueRequest("a", {}, queue="a", after=[After(there.job_id)]))
    path = f"/act/cancel_jobs?id={there.job_id}&id=01ARZ3NDEKTSV4RRFFQ69G5FAV"
    async with client_of(_app(sqlite)) as client:
        preview = await page(client, path)
        assert "Cancel 1 job<" in preview
        assert "1 will be left alone: there is no such job" in preview


async def test_a_page_does_not_wait_for_ever_and_goes_on(
    sqlite: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with JobClient(sqlite) as jobs:
        await jobs.enqueue_many([EnqueueRequest("a", {}, queue="a") for _ in range(1_001)])
    path = "/act/cancel_jobs?q=queue:a"
    async with client_of(_app(sqlite)) as client:
        preview = await page(client, path)
        with monkeypatch.context() as patched:
            patched.setattr(acting, "LONGEST", SLOWEST)
            waiting = await send(client, path, preview, typed="1001")
        assert "Still at work" in waiting
        assert 'name="typed" value="1001"' in waiting
        assert "1,001 jobs cancelled" in await send(client, path, waiting, typed="1001")
    cancelled = JobFilter(statuses=(JobStatus.CANCELLED,))
    assert (await sqlite.jobs.count(cancelled)).number == 1_001


def _app(storage: Storage) -> object:
    return dashboard(storage, authorize=lambda _: ADA)
