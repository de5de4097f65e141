"""Requests that say what the caller has seen, and requests that are sent twice."""

import asyncio
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from forge_jobs.model.filters import JobFilter
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.support.factories import enqueue_one
from tests.web.conftest import ADA, client_of

pytestmark = pytest.mark.anyio

API = "/api/v1"
CRON = {"kind": "gh.sync", "expression": "@daily", "queue": "gh", "payload": {"n": 1}}


async def queue_of(caller: httpx.AsyncClient, name: str = "gh") -> Any:
    found = (await caller.get(f"{API}/queues")).json()["queues"]
    return next(each for each in found if each["name"] == name)


async def set_most(caller: httpx.AsyncClient, most: int, etag: str | None) -> httpx.Response:
    headers = {} if etag is None else {"If-Match": etag}
    return await caller.patch(f"{API}/queues/gh", json={"max_workers": most}, headers=headers)


async def test_settings_of_a_queue_are_changed_as_they_were_seen(
    caller: httpx.AsyncClient,
) -> None:
    await set_most(caller, 2, None)
    seen = f'"{(await queue_of(caller))["etag"]}"'

    mine = await set_most(caller, 3, seen)
    late = await set_most(caller, 4, seen)

    assert mine.status_code == 200
    assert late.status_code == 412
    assert late.json()["code"] == "changed-meanwhile"
    assert (await queue_of(caller))["settings"]["max_workers"] == 3
    assert mine.headers["ETag"] == f'"{(await queue_of(caller))["etag"]}"'
    assert (await set_most(caller, 5, mine.headers["ETag"])).status_code == 200


async def test_what_changes_by_itself_is_no_change_of_the_settings(
    caller: httpx.AsyncClient, storage: Storage
) -> None:
    tag = (await set_most(caller, 2, None)).headers["ETag"]
    await enqueue_one(storage, queue="gh")
    await caller.post(f"{API}/queues/gh/pause")

    assert (await set_most(caller, 3, f'"other", {tag}')).status_code == 200


async def test_a_condition_of_something_that_is_not_there(caller: httpx.AsyncClient) -> None:
    assert (await set_most(caller, 2, "*")).status_code == 412
    await set_most(caller, 2, None)
    assert (await set_most(caller, 3, "*")).status_code == 200
    assert (await set_most(caller, 3, "no tag")).status_code == 412


async def test_a_schedule_is_changed_as_it_was_seen(caller: httpx.AsyncClient) -> None:
    await caller.put(f"{API}/schedules/nightly", json=CRON)
    [seen] = (await caller.get(f"{API}/schedules")).json()["schedules"]

    async def change(expression: str) -> httpx.Response:
        return await caller.patch(
            f"{API}/schedules/nightly",
            json={"expression": expression},
            headers={"If-Match": f'"{seen["etag"]}"'},
        )

    first, second = await change("@hourly"), await change("@weekly")

    assert (first.status_code, second.status_code) == (200, 412)
    [now] = (await caller.get(f"{API}/schedules")).json()["schedules"]
    assert now["spec"]["expression"] == "@hourly"
    assert first.headers["ETag"] == f'"{now["etag"]}"'


async def test_of_ten_who_saw_the_same_one_changes(caller: httpx.AsyncClient) -> None:
    tag = (await set_most(caller, 1, None)).headers["ETag"]

    answers = await asyncio.gather(*(set_most(caller, most, tag) for most in range(2, 12)))

    assert sorted(each.status_code for each in answers) == [200, *[412] * 9]


async def test_a_condition_where_none_is_possible_is_refused(caller: httpx.AsyncClient) -> None:
    await set_most(caller, 1, None)
    answer = await caller.post(f"{API}/queues/gh/pause", headers={"If-Match": '"x"'})
    assert answer.status_code == 400
    assert answer.json()["field"] == "If-Match"
    assert not (await queue_of(caller))["paused"]


async def test_a_condition_tells_nothing_of_what_is_closed(sqlite: Storage) -> None:
    async with client_of(dashboard(sqlite, authorize=lambda _: ADA)) as boss:
        tag = (await set_most(boss, 1, None)).headers["ETag"]
    access = Access(actions=frozenset({"*"}), queues=frozenset({"mail"}))
    app = dashboard(sqlite, authorize=lambda _: Actor(name="bob", access=access))
    async with client_of(app) as bob:
        assert (await set_most(bob, 2, tag)).status_code == 412
    reader = dashboard(sqlite, authorize=lambda _: Actor(name="eve"))
    async with client_of(reader) as eve:
        assert (await set_most(eve, 2, tag)).status_code == 403


async def test_one_key_is_one_job_over_several_dashboards(storage: Storage) -> None:
    apps = [dashboard(storage, authorize=lambda _: ADA) for _ in range(3)]
    body = {"kind": "gh.sync", "queue": "gh", "payload": {"n": 1}}

    async def send(app: Any) -> httpx.Response:
        async with client_of(app) as client:
            return await client.post(
                f"{API}/jobs", json=body, headers={"Idempotency-Key": "order-7"}
            )

    answers = await asyncio.gather(*(send(app) for app in apps * 4))

    assert {each.status_code for each in answers} == {200}
    assert len({each.json()["job_id"] for each in answers}) == 1
    assert (await storage.jobs.count(JobFilter())).number == 1


async def test_a_token_is_one_action_over_several_dashboards(storage: Storage) -> None:
    for _ in range(5):
        await enqueue_one(storage, queue="gh")
    apps = [dashboard(storage, authorize=lambda _: ADA) for _ in range(3)]
    async with client_of(apps[0]) as client:
        asked = {"verb": "cancel_jobs", "q": "queue:gh"}
        preview = (await client.get(f"{API}/actions/preview", params=asked)).json()

    async def apply(app: Any) -> httpx.Response:
        async with client_of(app) as client:
            return await client.post(f"{API}/actions", json={"token": preview["token"]})

    answers = await asyncio.gather(*(apply(app) for app in apps * 2))
    again = await apply(apps[1])

    assert {each.status_code for each in answers} == {200}
    assert len({each.json()["id"] for each in answers}) == 1
    assert again.json()["changed"] == 5
    async with client_of(apps[0]) as client:
        assert len((await client.get(f"{API}/actions")).json()["actions"]) == 1


async def preview(client: httpx.AsyncClient, verb: str, q: str = "queue:gh") -> str:
    answer = await client.get(f"{API}/actions/preview", params={"verb": verb, "q": q})
    assert answer.status_code == 200, answer.text
    token: str = answer.json()["token"]
    return token


async def test_one_key_is_one_action_over_several_dashboards(storage: Storage) -> None:
    """A program that has lost the answer, and the token too, previews again."""
    for _ in range(5):
        await enqueue_one(storage, queue="gh")
    apps = [dashboard(storage, authorize=lambda _: ADA) for _ in range(3)]
    key = {"Idempotency-Key": "clean up 7"}

    async def apply(app: Any, verb: str = "cancel_jobs", q: str = "queue:gh") -> httpx.Response:
        async with client_of(app) as client:
            body = {"token": await preview(client, verb, q), "reason": "they are stuck"}
            return await client.post(f"{API}/actions", json=body, headers=key)

    answers = await asyncio.gather(*(apply(app) for app in apps * 2))
    await enqueue_one(storage, queue="gh")
    again = await apply(apps[1])

    assert {each.status_code for each in answers} == {200}
    assert len({each.json()["id"] for each in [*answers, again]}) == 1
    assert again.json()["changed"] == 5
    for other in (await apply(apps[0], "delete_jobs"), await apply(apps[0], q="queue:mail")):
        assert (other.status_code, other.json()["code"]) == (409, "conflict")
    async with client_of(apps[0]) as client:
        actions = (await client.get(f"{API}/actions")).json()["actions"]
    assert [(each["verb"], each["changed"]) for each in actions] == [("cancel_jobs", 5)]


async def test_a_key_is_of_the_caller_who_used_it(sqlite: Storage) -> None:
    await enqueue_one(sqlite, queue="gh")
    ids = []
    for name in ("ada", "bob"):
        caller = Actor(name=name, access=ADA.access)

        def authorize(_: Request, who: Actor = caller) -> Actor:
            return who

        async with client_of(dashboard(sqlite, authorize=authorize)) as client:
            body = {"token": await preview(client, "cancel_jobs")}
            headers = {"Idempotency-Key": "7"}
            answer = await client.post(f"{API}/actions", json=body, headers=headers)
            ids.append(answer.json()["id"])

    assert ids[0] != ids[1]


@pytest.mark.parametrize(
    ("headers", "more", "field"),
    [
        ({"Idempotency-Key": "7" * 201}, {}, "Idempotency-Key"),
        ({"Idempotency-Key": "7"}, {"key": "8"}, "key"),
        ({}, {"key": "7" * 201}, "key"),
    ],
)
async def test_a_key_that_is_none_does_nothing(
    sqlite: Storage, headers: dict[str, str], more: dict[str, str], field: str
) -> None:
    await enqueue_one(sqlite, queue="gh")
    async with client_of(dashboard(sqlite, authorize=lambda _: ADA)) as client:
        body = {"token": await preview(client, "cancel_jobs")} | more
        answer = await client.post(f"{API}/actions", json=body, headers=headers)
        assert (await client.get(f"{API}/actions")).json()["actions"] == []

    assert (answer.status_code, answer.json()["field"]) == (400, field)
