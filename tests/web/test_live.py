"""The live stream: one reader for all, the newest state for each, and nothing without viewers."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from starlette.requests import Request

from forge_jobs.model.ids import new_job_id
from forge_jobs.operating.access import ALL
from forge_jobs.operating.live.reading import EVERY
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from forge_jobs.web.live.hub import Hub, Viewer, end_streams
from forge_jobs.web.source import Source
from tests.support.factories import enqueue_one
from tests.support.faulty import Faults, faulty
from tests.support.waiting import IN_PROCESS, wait_until
from tests.web.conftest import ADA, client_of
from tests.web.streaming import viewing

pytestmark = pytest.mark.anyio

LIVE = "/api/v1/live"


def has_due(queue: str, due: int) -> Any:
    def fits(name: str, state: Any) -> bool:
        return name == "state" and any(
            each["name"] == queue and each["due"] == due for each in state["queues"]
        )

    return fits


async def test_a_stream_begins_whole_and_tells_what_changes(storage: Storage) -> None:
    job = await enqueue_one(storage, queue="mail")
    app = dashboard(storage, authorize=lambda _: ADA)
    async with viewing(app, query=f"job={job}&job={new_job_id()}") as view:
        name, state = await view.event()
        assert view.status == 200
        assert (b"content-type", b"text/event-stream; charset=utf-8") in view.started["headers"]
        assert (name, state["whole"]) == ("state", True)
        assert [each["name"] for each in state["queues"]] == ["mail"]

        await enqueue_one(storage, queue="mail")

        told = await view.until(has_due("mail", 2))
        assert not told["whole"]


async def test_a_viewer_gets_what_the_access_lets_read(sqlite: Storage) -> None:
    hidden, shown = (
        await enqueue_one(sqlite, queue="vault"),
        await enqueue_one(sqlite, queue="mail"),
    )
    access = Access(queues=frozenset({"mail"}))
    app = dashboard(sqlite, authorize=lambda _: Actor(name="bob", access=access))
    async with viewing(app, query=f"job={hidden}&job={shown}") as view:
        state = await view.until(lambda _, state: bool(state["jobs"]))

    assert [each["id"] for each in state["jobs"]] == [shown]
    assert state["gone"] == [hidden]
    assert {each["name"] for each in state["queues"]} <= {"mail"}
    assert state["problems"] is None


async def test_nobody_looks_on_without_the_right_to_read(sqlite: Storage) -> None:
    app = dashboard(sqlite, authorize=lambda _: Actor(name="eve", access=Access(read=False)))
    async with viewing(app) as view:
        assert view.status == 403


async def test_hundred_viewers_have_one_reader_and_none_when_they_left(sqlite: Storage) -> None:
    faults, hub = Faults(), None
    store = faulty(sqlite, faults)
    job = await enqueue_one(sqlite)
    hub = Hub(Source(store))
    began = asyncio.get_running_loop().time()
    async with AsyncExitStack() as all_viewers:
        streams = [hub.stream(Viewer(actor=ADA, jobs=(job,))) for _ in range(100)]
        for stream in streams:
            all_viewers.push_async_callback(stream.aclose)
        first = await asyncio.gather(*(anext(stream) for stream in streams))
        assert len(set(first)) == 1
        await wait_until(lambda: faults.calls["counts"] >= 3, description="three counts")
        readings = (asyncio.get_running_loop().time() - began) / EVERY + 1
        # One reading in the worst case: pods and queues, counts, and once the problems.
        assert faults.calls["counts"] <= readings
        assert faults.calls["states"] <= readings
        assert faults.calls["look"] <= readings + 1
        assert hub.is_reading
    await wait_until(lambda: not hub.is_reading, description="the reader has ended")


async def test_what_a_slow_viewer_has_missed_is_in_one_event(sqlite: Storage) -> None:
    await enqueue_one(sqlite, queue="mail")
    hub = Hub(Source(sqlite))
    slow, quick = (hub.stream(Viewer(actor=ADA)) for _ in range(2))
    await anext(slow)
    for due in range(2, 5):
        await enqueue_one(sqlite, queue="mail")
        while f'"due":{due}'.encode() not in await anext(quick):
            pass

    missed = await anext(slow)

    assert b'"due":4' in missed
    for stream in (slow, quick):
        await stream.aclose()
    await wait_until(lambda: not hub.is_reading, description="the reader has ended")


async def test_the_stream_says_that_the_store_is_away_and_goes_on(sqlite: Storage) -> None:
    faults = Faults()
    app = dashboard(faulty(sqlite, faults), authorize=lambda _: ADA)
    async with viewing(app) as view, client_of(app) as client:
        await view.event()
        faults.down = True
        lost = await view.until(lambda name, _: name == "lost")
        assert lost["problem"] == "the store does not answer"
        assert lost["at"]
        assert "switched" not in str(lost)
        polled = await client.get(LIVE)
        assert polled.status_code == 503
        assert polled.headers["Retry-After"]

        await enqueue_one(sqlite, queue="mail")
        faults.down = False
        await view.until(has_due("mail", 1))


async def test_a_viewer_who_polls_gets_the_same_document(storage: Storage) -> None:
    job = await enqueue_one(storage, queue="mail")
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
        answer = await client.get(LIVE, params={"job": job})

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    state = answer.json()
    assert state["whole"]
    assert [each["id"] for each in state["jobs"]] == [job]
    assert state["problems"] is not None


async def test_hundred_who_poll_share_one_reading(sqlite: Storage) -> None:
    faults = Faults()
    job = await enqueue_one(sqlite)
    app = dashboard(faulty(sqlite, faults), authorize=lambda _: ADA)
    began = asyncio.get_running_loop().time()
    async with client_of(app) as client:
        for _ in range(100):
            answer = await client.get(LIVE, params={"job": job})
            assert answer.status_code == 200
    assert faults.calls["states"] <= (asyncio.get_running_loop().time() - began) / EVERY + 1


async def test_one_stream_too_many_is_told_when_to_come_again(
    sqlite: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.web.live.hub.MAX_STREAMS", 1)
    app = dashboard(sqlite, authorize=lambda _: ADA)
    async with viewing(app) as view:
        await view.event()
        async with viewing(app) as other:
            assert other.status == 503
            headers = dict(other.started["headers"])
            assert int(headers[b"retry-after"]) > 0
            assert b"too-many-viewers" in other.sent.get_nowait()
        async with client_of(app) as client:
            assert (await client.get(LIVE)).status_code == 200
    async with viewing(app) as view:
        assert view.status == 200


async def test_a_stream_outlives_the_bound_of_a_request(
    sqlite: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.web.guard.MAX_SECONDS", 0.2)
    app = dashboard(sqlite, authorize=lambda _: ADA)
    async with viewing(app) as view:
        await view.event()
        for due in range(1, 3):
            await enqueue_one(sqlite, queue="mail")
            await view.until(has_due("mail", due))


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("jobs=x", "unknown-parameter"),
        ("job=x", "invalid"),
        ("&".join(f"job={new_job_id()}" for _ in range(101)), "invalid"),
    ],
)
async def test_a_wrong_question_is_refused(sqlite: Storage, query: str, code: str) -> None:
    async with client_of(dashboard(sqlite, authorize=lambda _: ADA)) as client:
        answer = await client.get(f"{LIVE}?{query}")
    assert answer.status_code == 400
    assert answer.json()["code"] == code


async def test_a_viewer_comes_before_the_store_is_open(sqlite: Storage) -> None:
    opened: list[Storage] = []
    app = dashboard(lambda: opened[0] if opened else None, authorize=lambda _: ADA)
    async with viewing(app) as view:
        name, lost = await view.event()
        assert (name, lost["at"]) == ("lost", None)
        opened.append(sqlite)
        await view.until(lambda name, _: name == "state")


async def test_two_dashboards_of_a_process_share_no_viewers(sqlite: Storage) -> None:
    def local(_: Request) -> Actor:
        return Actor(name="ada", access=ALL)

    apps = [dashboard(sqlite, authorize=local) for _ in range(2)]
    async with viewing(apps[0]) as one, viewing(apps[1]) as two:
        assert [(await view.event())[1]["whole"] for view in (one, two)] == [True, True]


async def test_a_server_that_is_about_to_stop_ends_streams_at_once(sqlite: Storage) -> None:
    app = dashboard(sqlite, authorize=lambda _: ADA)
    async with viewing(app) as first, viewing(app) as second:
        await first.event()
        await second.event()
        end_streams()
        async with asyncio.timeout(IN_PROCESS):
            await first.ended.wait()
            await second.ended.wait()
