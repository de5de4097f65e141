"""The edit of a job: the form of the page and the PATCH of the API, on every store."""

import re
from datetime import timedelta
from html import unescape

import httpx
import pytest

from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.support.factories import enqueue_one, get_job, only, register
from tests.support.situations import a_job
from tests.web.conftest import client_of

pytestmark = pytest.mark.anyio

HTML = {"Accept": "text/html"}
DAY = timedelta(days=1)


def fields(text: str) -> dict[str, str]:
    """The values of a form, as a browser without JavaScript sends them."""
    found = dict(re.findall(r'<input[^>]*name="(\w+)"[^>]*? value="([^"]*)"', text))
    found |= dict(re.findall(r'<textarea[^>]*name="(\w+)"[^>]*>([^<]*)</textarea>', text))
    return {name: unescape(value).replace("\n", "\r\n") for name, value in found.items()}


async def form(caller: httpx.AsyncClient, path: str) -> dict[str, str]:
    answer = await caller.get(path, headers=HTML)
    assert answer.status_code == 200
    return fields(answer.text)


async def test_the_form_changes_what_was_typed_and_nothing_else(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    job_id = await enqueue_one(
        storage, payload='{"n":1.10,"big":9223372036854775808}', tags=("a",), delay=DAY,
        timeout=timedelta(seconds=90), metadata='{"who":"ada"}', expires_at=None,
    )  # fmt: skip
    before = await get_job(storage, job_id)
    assert f"/jobs/{job_id}/edit" in (await caller.get(f"/jobs/{job_id}", headers=HTML)).text
    typed = await form(caller, f"/jobs/{job_id}/edit")
    answer = await caller.post(f"/jobs/{job_id}/edit", data=typed | {"priority": "-4"})
    assert answer.status_code == 200
    assert "has the new content" in answer.text
    job = await get_job(storage, job_id)
    assert job.priority == -4
    assert job.payload == before.payload
    assert (job.due_at, job.timeout, job.tags) == (before.due_at, before.timeout, before.tags)
    [record] = re.findall(r'href="(/audit/[^"]+)"', answer.text)[:1]
    shown = (await caller.get(record, headers=HTML)).text
    assert "undo_action" in shown
    [at] = set(re.findall(r"/audit/(\w+)", record))
    await caller.post(f"/act/undo_action?name={at}", data={})
    assert await get_job(storage, job_id) == before


async def test_what_was_typed_stays_beside_what_is_wrong(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    job_id = await enqueue_one(storage)
    before = await get_job(storage, job_id)
    path = f"/jobs/{job_id}/edit"
    for name, value, said in (
        ("priority", "high", "give a whole number"),
        ("priority", "101", "-100"),
        ("payload", "[1]", "object"),
        ("payload", "{", "JSON"),
        ("due_at", "tomorrow", "not an instant"),
        ("expires_at", "2020-01-01T00:00:00Z", "has passed"),
        ("timeout", "soon", "duration"),
        ("metadata", "[]", "no object of texts"),
        ("tags", "<b>, \0", "tags"),
    ):
        typed = await form(caller, path) | {name: value}
        answer = await caller.post(path, data=typed)
        assert answer.status_code == 200, name
        text = unescape(answer.text)
        assert said in text, (name, text)
        assert "<b>, " not in answer.text
        assert fields(answer.text)[name].strip() == value.strip() or "\0" in value
    assert await get_job(storage, job_id) == before


async def test_a_form_that_is_too_late_says_so(storage: Storage, caller: httpx.AsyncClient) -> None:
    job_id = await enqueue_one(storage)
    path = f"/jobs/{job_id}/edit"
    first, second = await form(caller, path), await form(caller, path)
    await caller.post(path, data=first | {"priority": "1"})
    answer = await caller.post(path, data=second | {"priority": "2"})
    assert "changed since you looked" in unescape(answer.text)
    assert (await get_job(storage, job_id)).priority == 1
    await storage.jobs.cancel(only(job_id))
    assert "only a waiting job is edited" in (await caller.get(path, headers=HTML)).text


@pytest.mark.parametrize("status", [JobStatus.IN_PROGRESS, JobStatus.DONE])
async def test_an_edit_that_would_be_refused_is_not_offered(
    sqlite: Storage, status: JobStatus
) -> None:
    job_id = await a_job(sqlite, await register(sqlite), status)
    access = Access(actions=frozenset({"edit_job"}))
    app = dashboard(sqlite, authorize=lambda _: Actor(name="ada", access=access))
    async with client_of(app) as client:
        assert f"{job_id}/edit" not in (await client.get(f"/jobs/{job_id}", headers=HTML)).text


async def test_without_the_right_there_is_no_form_and_without_payloads_no_payload(
    sqlite: Storage,
) -> None:
    job_id = await enqueue_one(sqlite, payload='{"token":"swordfish"}')
    for access, status in ((Access(), 403), (Access(actions=frozenset({"edit_job"})), 200)):
        actors = iter([Actor(name="ada", access=access)])
        async with client_of(dashboard(sqlite, authorize=lambda _: next(actors))) as client:  # noqa: B023
            answer = await client.get(f"/jobs/{job_id}/edit", headers=HTML)
            assert answer.status_code == status
            assert "swordfish" not in answer.text
            assert 'name="payload"' not in answer.text


async def test_the_api_edits_and_refuses(storage: Storage, caller: httpx.AsyncClient) -> None:
    job_id = await enqueue_one(storage)
    path = f"/api/v1/jobs/{job_id}"
    version = (await caller.get(path)).json()["version"]
    body = {"payload": {"n": 2}, "timeout": 90, "max_attempts": None, "version": version}
    answer = await caller.patch(path, json=body)
    assert answer.status_code == 200
    assert answer.json()["after"] == {"payload": {"n": 2}, "max_attempts": None, "timeout": "PT90S"}
    job = await get_job(storage, job_id)
    assert (job.payload, job.timeout) == ('{"n":2}', timedelta(seconds=90))
    assert (await caller.patch(path, json={"priority": 3, "version": version})).status_code == 409
    assert (await caller.patch(path, json={"priority": 1000})).status_code == 400
    assert (await caller.patch(path, json={"kind": "other"})).status_code == 400
    assert (await get_job(storage, job_id)).priority == 0
