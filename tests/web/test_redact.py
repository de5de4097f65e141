"""Hidden fields on pages and in the API, and the page that reveals them."""

import httpx
import pytest

from forge_jobs.model.ids import JobId
from forge_jobs.model.queues import QueueChange
from forge_jobs.operating.access import ALL
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.support.factories import enqueue_one
from tests.web.conftest import ADA, client_of

pytestmark = pytest.mark.anyio

API = "/api/v1"
SECRET = "swordfish"
PAYLOAD = '{"user":{"password":"swordfish","name":"ada"},"n":9223372036854775808}'
BOSS = Actor(name="ada", access=ALL)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def client(storage: Storage, actor: Actor = ADA) -> httpx.AsyncClient:
    return client_of(dashboard(storage, authorize=lambda _: actor, redact=["password"]))


async def a_job(storage: Storage) -> JobId:
    await storage.config.set_queue("gh", QueueChange(max_workers=2))
    return await enqueue_one(storage, queue="gh", kind="login", payload=PAYLOAD)


async def test_no_page_and_no_answer_shows_a_hidden_field(storage: Storage) -> None:
    job_id = await a_job(storage)
    paths = [
        f"/jobs/{job_id}",
        f"/jobs/{job_id}/edit",
        "/jobs?q=queue:gh",
        f"/act/cancel_jobs?id={job_id}",
        f"{API}/jobs/{job_id}",
        f"{API}/jobs/export",
        f"{API}/live?job={job_id}",
    ]
    async with client(storage) as caller:
        for path in paths:
            answer = await caller.get(path)
            assert answer.status_code == 200, (path, answer.text)
            assert SECRET not in answer.text, path
        shown = (await caller.get(f"{API}/jobs/{job_id}")).json()
        page = (await caller.get(f"/jobs/{job_id}")).text

    assert shown["payload"] == {"user": {"password": "***", "name": "ada"}, "n": 2**63}
    assert shown["is_hidden"] is True
    # The caller may do everything but that.
    assert "reveal" not in page.lower()


async def test_a_reveal_over_http_is_recorded(storage: Storage) -> None:
    job_id = await a_job(storage)
    async with client(storage, BOSS) as caller:
        answer = await caller.post(f"{API}/jobs/{job_id}/reveal", json={"reason": "asked"})
        actions = (await caller.get(f"{API}/actions")).json()["actions"]

    assert answer.json()["payload"]["user"]["password"] == SECRET
    assert answer.headers["Cache-Control"] == "no-store"
    assert "ETag" not in answer.headers
    [record] = actions
    assert (record["verb"], record["target"], record["actor"]) == ("reveal_job", job_id, "ada")
    assert (record["id"], record["surface"]) == (answer.json()["action_id"], "api")


async def test_the_page_asks_first_and_the_answer_is_recorded(storage: Storage) -> None:
    job_id = await a_job(storage)
    async with client(storage, BOSS) as caller:
        page = (await caller.get(f"/jobs/{job_id}")).text
        asked = await caller.get(f"/jobs/{job_id}/reveal")
        before = (await caller.get(f"{API}/actions")).json()["actions"]
        told = await caller.post(f"/jobs/{job_id}/reveal", content="reason=why", headers=FORM)
        [record] = (await caller.get(f"{API}/actions")).json()["actions"]

    assert f"/jobs/{job_id}/reveal" in page
    assert asked.status_code == 200
    assert SECRET not in asked.text
    assert before == []
    assert SECRET in told.text
    assert f"/audit/{record['id']}" in told.text
    assert told.headers["Cache-Control"] == "no-store"
    assert (record["verb"], record["reason"], record["surface"]) == ("reveal_job", "why", "web")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_who_may_not_reveal_gets_neither_the_page_nor_the_answer(
    sqlite: Storage, method: str
) -> None:
    job_id = await a_job(sqlite)
    some = Actor(name="eve", access=Access(actions=frozenset({"*"}), payloads=True))
    async with client(sqlite, some) as caller:
        page = await caller.request(method, f"/jobs/{job_id}/reveal", headers=FORM)
        answer = await caller.post(f"{API}/jobs/{job_id}/reveal")

    assert [page.status_code, answer.status_code] == [403, 403]
    assert SECRET not in page.text + answer.text
