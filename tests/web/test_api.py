"""The HTTP API on every store."""

from typing import Any

import httpx
import msgspec
import pytest

from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.support.faulty import Faults, faulty
from tests.web.conftest import client_of

pytestmark = pytest.mark.anyio

API = "/api/v1"
_MISSING = "01M84XS13751WA5VGBWBY417EQ"
LARGE = '{"n": 9223372036854775808,   "x": 1.10, "t": "\\u00e9"}'


async def enqueue(caller: httpx.AsyncClient, payload: str = "{}", **options: Any) -> str:
    """Enqueue a job with a payload that is sent byte for byte. Return the id."""
    rest = msgspec.json.encode({"kind": "gh.sync", "queue": "gh"} | options).decode()
    body = f'{rest[:-1]},"payload":{payload}}}'
    answer = await caller.post(
        f"{API}/jobs", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 200, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def test_a_payload_comes_back_byte_for_byte(caller: httpx.AsyncClient) -> None:
    job_id = await enqueue(caller, LARGE)

    answer = await caller.get(f"{API}/jobs/{job_id}")

    assert f'"payload":{LARGE}' in answer.text
    assert answer.json()["payload"]["n"] == 2**63


async def test_jobs_are_listed_by_filter_and_cursor(caller: httpx.AsyncClient) -> None:
    ids = [await enqueue(caller, tags=["odd"] if index % 2 else []) for index in range(5)]
    first = (await caller.get(f"{API}/jobs", params={"limit": 2})).json()
    rest = (
        await caller.get(f"{API}/jobs", params={"cursor": first["cursor"], "limit": 1000})
    ).json()
    odd = (await caller.get(f"{API}/jobs", params={"q": "queue:gh tag:odd"})).json()

    assert [job["id"] for job in first["jobs"] + rest["jobs"]] == ids[::-1]
    assert [job["id"] for job in odd["jobs"]] == [ids[3], ids[1]]


async def test_a_queue_with_other_numbers_and_the_pods_for_an_objective(
    caller: httpx.AsyncClient,
) -> None:
    await enqueue(caller)

    told = await caller.get(f"{API}/queues/gh/what-if", params={"max_workers": 0, "arrivals": 1.5})
    pods = await caller.get(f"{API}/queues/gh/desired-pods", params={"objective": "95% within 30s"})

    assert (told.status_code, told.json()["verdict"]) == (200, "grows")
    assert (pods.status_code, pods.json()["pods"]) == (200, 1)
    without = await caller.get(f"{API}/queues/gh/desired-pods")
    assert (without.status_code, without.json()["field"]) == (400, "objective")


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/jobs?limit=0", "limit"),
        ("/queues/gh/what-if?arrivals=inf", "arrivals"),
        ("/queues/gh/what-if?arrivals=many", "arrivals"),
        ("/queues/gh/desired-pods?objective=soon", "objective"),
        ("/jobs?limit=1001", "limit"),
        ("/jobs?limit=x", "limit"),
        ("/jobs?limit=1&limit=2", "limit"),
        ("/jobs?lmit=1", "lmit"),
        ("/jobs?q=satus:dead", "satus"),
        ("/jobs?cursor=x", "cursor"),
        ("/queues?x=", "x"),
    ],
)
async def test_a_bad_parameter_is_named(caller: httpx.AsyncClient, path: str, field: str) -> None:
    answer = await caller.get(API + path)

    assert answer.status_code == 400
    assert answer.json()["field"] == field
    assert answer.json()["fix"]


@pytest.mark.parametrize(
    "path",
    [
        f"/jobs/{_MISSING}",
        f"/jobs/{_MISSING}/explain",
        f"/jobs/{_MISSING}/timeline",
        f"/jobs/{_MISSING}/logs",
        f"/jobs/{_MISSING}/result",
        "/schedules/none/fires",
        "/nowhere",
    ],
)
async def test_an_unknown_name_is_not_found(caller: httpx.AsyncClient, path: str) -> None:
    answer = await caller.get(API + path)

    assert answer.status_code == 404
    assert answer.headers["Content-Type"] == "application/problem+json"


async def test_an_etag_saves_the_body_until_something_changes(caller: httpx.AsyncClient) -> None:
    job_id = await enqueue(caller)
    path = f"{API}/jobs/{job_id}"
    etag = (await caller.get(path)).headers["ETag"]

    again = await caller.get(path, headers={"If-None-Match": f'"x", W/{etag}'})
    await caller.post(f"{API}/jobs/cancel", json={"ids": [job_id]})
    later = await caller.get(path, headers={"If-None-Match": etag})

    assert (again.status_code, again.content) == (304, b"")
    assert "default-src 'none'" in again.headers["Content-Security-Policy"]
    assert later.status_code == 200


async def test_an_idempotency_key_stores_one_job(caller: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "order-7"}
    body = {"kind": "gh.sync", "queue": "gh", "payload": {"n": 1}}

    first = await caller.post(f"{API}/jobs", json=body, headers=headers)
    again = await caller.post(f"{API}/jobs", json=body, headers=headers)
    other = await caller.post(f"{API}/jobs", json=body | {"payload": {"n": 2}}, headers=headers)

    assert first.json() == again.json()
    assert other.status_code == 409
    assert len((await caller.get(f"{API}/jobs")).json()["jobs"]) == 1


async def test_a_change_of_every_job_must_be_meant(caller: httpx.AsyncClient) -> None:
    await enqueue(caller)

    for body in ({}, {"q": " "}, {"all": True, "q": "queue:gh"}, {"ids": [], "q": "queue:gh"}):
        answer = await caller.post(f"{API}/jobs/delete", json=body)
        assert answer.status_code == 400
    assert (await caller.post(f"{API}/jobs/delete", json={"ids": []})).json()["changed"] == []
    assert len((await caller.post(f"{API}/jobs/delete", json={"all": True})).json()["changed"]) == 1


@pytest.mark.parametrize(
    ("content", "media", "status"),
    [
        (b'{"kind":"a"}', "text/plain", 415),
        (b'{"kind":"a"', "application/json", 400),
        (b'{"kind":1}', "application/json", 400),
        (b'{"kind":"a","payload":[]}', "application/json", 400),
        (b'{"kind":"a","oops":1}', "application/json", 400),
        (b'{"kind":"a","delay":1e300}', "application/json", 400),
        (b'{"kind":"\xff"}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"", "application/json", 400),
    ],
)
async def test_a_bad_body_is_refused(
    caller: httpx.AsyncClient, content: bytes, media: str, status: int
) -> None:
    answer = await caller.post(f"{API}/jobs", content=content, headers={"Content-Type": media})
    assert answer.status_code == status, answer.text


async def test_a_wrong_method_is_405(caller: httpx.AsyncClient) -> None:
    answer = await caller.put(f"{API}/jobs", json={})

    assert answer.status_code == 405
    assert {"GET", "POST"} <= set(answer.headers["Allow"].replace(" ", "").split(","))


async def test_queues_are_set_paused_and_deleted(caller: httpx.AsyncClient) -> None:
    name = "a/bü"
    path = f"{API}/queues/a%2Fb%C3%BC"

    made = await caller.patch(path, json={"max_workers": 7, "retention": {"done": 60}})
    assert made.status_code == 200, made.text
    assert made.json()["settings"]["retention"]["done"] == 60
    assert (await caller.post(f"{path}/pause")).json()["paused"] is True
    [queue] = (await caller.get(f"{API}/queues")).json()["queues"]
    assert (queue["name"], queue["standing"]) == (name, "paused")
    assert (await caller.post(f"{path}/resume")).json()["paused"] is False
    assert (await caller.delete(path)).json()["name"] == name
    assert (await caller.delete(path)).status_code == 404


async def test_schedules_and_limits(caller: httpx.AsyncClient) -> None:
    cron = f"{API}/schedules/nightly"
    body = {"kind": "gh.sync", "queue": "gh", "expression": "@daily", "payload": '{"n":1}'}
    assert (await caller.put(cron, json=body)).status_code == 200
    assert (await caller.put(cron, json=body)).status_code == 409
    assert len((await caller.get(f"{cron}/fires?count=3")).json()["fires"]) == 3
    assert (await caller.post(f"{cron}/pause")).json()["paused"] is True
    assert (await caller.patch(cron, json={"expression": "61 * * * *"})).status_code == 400
    assert (await caller.post(f"{cron}/trigger")).status_code == 200
    assert (await caller.delete(cron)).status_code == 200

    limit = f"{API}/limits/smtp"
    assert (await caller.put(limit, json={"capacity": 5, "per": 60})).json()["available"] == 5
    assert (await caller.post(f"{limit}/drain")).json()["available"] == 0
    assert (await caller.delete(limit)).status_code == 200


async def test_rights_are_those_of_the_actor(sqlite: Storage) -> None:
    reader = Actor(name="eve", access=Access(queues=frozenset({"gh"})))
    async with client_of(dashboard(sqlite, authorize=lambda _: reader)) as client:
        refused = await client.post(f"{API}/jobs/delete", json={"all": True})
        log = await client.get(f"{API}/jobs/{_MISSING}/logs")
        me = (await client.get(f"{API}/me")).json()

    assert [refused.status_code, log.status_code] == [403, 403]
    assert (me["name"], me["surface"], me["queues"]) == ("eve", "api", ["gh"])


async def test_a_store_that_is_away_is_503(sqlite: Storage) -> None:
    faults = Faults()
    app = dashboard(faulty(sqlite, faults), authorize=lambda _: Access())
    async with client_of(app) as client:
        faults.down = True
        answer = await client.get(f"{API}/queues")

    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
