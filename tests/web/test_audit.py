"""The pages of what operators did: listed, shown, aborted, undone."""

import re

import pytest

from forge_jobs import EnqueueRequest
from forge_jobs.clients.client import JobClient
from forge_jobs.model.actions import Action
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.web.conftest import ADA, client_of
from tests.web.test_many import send
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio


async def test_an_action_on_many_has_a_page(storage: Storage) -> None:
    async with JobClient(storage) as jobs:
        outcomes = [await jobs.enqueue(EnqueueRequest("a", {}, queue="a")) for _ in range(3)]
    path = "/act/cancel_jobs?q=queue:a"
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
        done = await send(client, path, await page(client, path), reason="<b>wrong</b> file")
        [record] = set(re.findall(r'href="(/audit/[^"]+)"', done))
        listed = await page(client, "/audit")
        assert record in listed
        assert "Cancel 3 jobs of a" in listed
        assert "&lt;b&gt;wrong&lt;/b&gt; file" in listed
        shown = await page(client, record)
        assert "ada from web" in shown
        assert "3 jobs cancelled" in shown
        assert all(each.job_id in shown for each in outcomes)
        assert "--where queue:a --all-matching --preview" in shown
        path = f"/act/undo_action?name={record.removeprefix('/audit/')}"
        assert path in shown
        assert "Cancelled jobs wait again" in await page(client, path)
        undone = (await client.post(path)).text
        assert "3 jobs restored" in undone
        [of_undo] = set(re.findall(r'href="(/audit/[^"]+)"', undone)) - {record}
        takes_back = await page(client, of_undo)
        assert "Undo: restore 3 jobs of a" in takes_back
        assert f'href="{record}"' in takes_back
        assert "undo_action" not in takes_back
        assert "Restore" not in await page(client, f"/jobs/{outcomes[0].job_id}")
        assert "abort_action" not in shown
        assert f"forge-jobs actions show {record.removeprefix('/audit/')}" in shown


async def test_an_action_that_runs_is_aborted_or_goes_on(storage: Storage) -> None:
    async with JobClient(storage) as jobs:
        await jobs.enqueue_many([EnqueueRequest("a", {}, queue="a") for _ in range(3)])
    ids = []
    for _ in range(2):
        action = Action(
            id=new_job_id(),
            actor="ada",
            surface="web",
            verb="cancel_jobs",
            which=JobFilter(queues=("a",)),
            queues=("a",),
            matched=3,
        )
        await storage.jobs.put_action(action)
        ids.append(action.id)
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
        assert "running 0 %" in await page(client, "/audit")
        assert "2 actions run" in await page(client, "/audit")
        for action_id, operation, state in (
            (ids[0], "abort_action", "aborted"),
            (ids[1], "continue_action", "done"),
        ):
            path = f"/act/{operation}?name={action_id}"
            assert path.replace("&", "&amp;") in await page(client, f"/audit/{action_id}")
            word = operation.removesuffix("_action")
            assert f"forge-jobs actions {word} {action_id}" in await page(client, path)
            await client.post(path)
            shown = await page(client, f"/audit/{action_id}")
            assert f">{state}</span>" in shown
            assert "/act/abort_action" not in shown
            assert "/act/continue_action" not in shown
            assert ("/act/undo_action" in shown) == (state == "done")
        assert "0 jobs cancelled" in await page(client, f"/audit/{ids[0]}")
        assert "3 jobs cancelled" in await page(client, f"/audit/{ids[1]}")


async def test_a_setting_is_undone_once(storage: Storage) -> None:
    await storage.config.set_queue("mail", QueueChange(max_workers=4))
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
        await client.post("/act/set_queue?name=mail&max_workers=9")
        [record] = set(re.findall(r'href="(/audit/[^"]+)"', await page(client, "/audit")))
        shown = await page(client, record)
        assert "Set queue mail" in shown
        path = f"/act/undo_action?name={record.removeprefix('/audit/')}"
        assert path in shown
        assert "Done" in (await client.post(path)).text
        assert 'value="4"' in await page(client, "/queues/mail")
        assert "Undo: Set queue mail" in await page(client, "/audit")
        again = await client.post(path)
        assert "Nothing was changed" in again.text
        assert "was changed since" in again.text


async def test_an_action_on_a_record_needs_the_right_of_the_action(sqlite: Storage) -> None:
    await sqlite.config.set_queue("mail", QueueChange(max_workers=4))
    async with client_of(dashboard(sqlite, authorize=lambda _: ADA)) as client:
        await client.post("/act/pause_queue?name=mail")
    for access, status in (
        (Access(), 403),
        (Access(actions=frozenset({"undo_action"})), 403),
        (Access(actions=frozenset({"pause_queue"})), 200),
    ):
        async with client_of(_app_of(sqlite, access)) as client:
            [record] = set(re.findall(r'href="(/audit/[^"]+)"', await page(client, "/audit")))
            path = f"/act/undo_action?name={record.removeprefix('/audit/')}"
            assert (path in await page(client, record)) is (status == 200)
            await page(client, path, status)
            assert (await client.post(path)).status_code == status
    assert not (await sqlite.config.queues())[0].paused


async def test_a_record_that_is_not_there(sqlite: Storage) -> None:
    async with client_of(dashboard(sqlite, authorize=lambda _: ADA)) as client:
        await page(client, "/audit/01ARZ3NDEKTSV4RRFFQ69G5FAV", 404)
        await page(client, "/audit/none", 400)
        await page(client, "/act/abort_action?name=01ARZ3NDEKTSV4RRFFQ69G5FAV", 404)
        await page(client, "/audit?cursor=none", 400)


def _app_of(storage: Storage, access: Access) -> object:
    eve = Actor(name="eve", access=access)
    return dashboard(storage, authorize=lambda _: eve)
