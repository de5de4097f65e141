"""Charts of the Overview: what they show, in how many calls, and in how many bytes."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.support.backends import BACKENDS, pass_on
from tests.support.factories import deaf_gauges, register
from tests.support.faulty import Faults, faulty
from tests.support.waiting import wait_until
from tests.web.conftest import ADA, client_of
from tests.web.past import Past

pytestmark = pytest.mark.anyio

HTML = {"Accept": "text/html"}
MOST_BYTES = 70_000


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test moves."""
    return ManualClock()


@pytest.fixture(params=sorted(BACKENDS))
async def past(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Past]:
    """Return a store with a past, on each backend."""
    async with BACKENDS[request.param](tmp_path, clock) as storage:
        past = Past(storage, clock)
        await past.live()
        yield past
    await pass_on(request.param, tmp_path)


@pytest.fixture
async def sqlite_past(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Past]:
    """Return a store with a past on SQLite alone."""
    async with BACKENDS["sqlite"](tmp_path, clock) as storage:
        past = Past(storage, clock)
        await past.live()
        yield past


def columns(text: str, chart: str) -> dict[str, list[str]]:
    """Return the table behind a chart, oldest first: values by the name of the column."""
    found = re.search(rf'id="chart-{chart}".*?<thead>(.*?)</thead><tbody>(.*?)</tbody>', text, re.S)
    assert found is not None
    heads, body = found.groups()
    names = re.findall(r"<th[^>]*>([^<]*)</th>", heads)
    rows = [re.findall(r"<td[^>]*>([^<\n]*)", row) for row in body.split("<tr>")[1:]]
    return {name: [row[at] for row in reversed(rows)] for at, name in enumerate(names)}


async def overview(storage: Storage, query: str = "", actor: Actor = ADA) -> str:
    async with client_of(dashboard(storage, authorize=lambda _: actor)) as client:
        answer = await client.get(f"/{query}", headers=HTML)
    assert answer.status_code == 200, answer.text
    assert len(answer.content) <= MOST_BYTES
    return answer.text


async def test_the_tables_say_what_happened_in_each_minute(past: Past) -> None:
    text = await overview(past.storage)
    flow = columns(text, "flow")
    assert set(flow["in"][20:58]) == {"4"}
    # The pod was lost in minute 25 of 40, and the hour began 20 minutes before.
    assert flow["done"][21:44] == ["3"] * 23
    assert set(flow["done"][46:58]) == {"0"}
    assert flow["dead"][30] == "1"
    times = columns(text, "times")
    # Five hundred milliseconds and two seconds, at most 5 % off.
    assert times["delay p95"][30] == "491 ms"
    assert times["run p50"][30] == "2.1 s"
    assert times["run p50"][50] == "\u2013"
    depth = columns(text, "depth")
    assert int(depth["due"][-2]) > int(depth["due"][30]) > 0
    assert "deploy 7a11" in text
    assert "Pause queue mail" in text
    assert "new leader" in text


@pytest.mark.parametrize("over", ["5m", "6h", "24h", "7d", "30d"])
async def test_every_span_has_its_steps(past: Past, over: str) -> None:
    text = await overview(past.storage, f"?over={over}&compare=day")
    found = columns(text, "flow")["in"]
    assert 4 <= len(found) <= 97
    assert any(value not in ("0", "\u2013") for value in found)


async def test_a_chosen_span_and_the_day_before(past: Past) -> None:
    begin = past.at(5).strftime("%Y-%m-%dT%H:%MZ")
    end = past.at(15).strftime("%Y-%m-%dT%H:%MZ")
    flow = columns(await overview(past.storage, f"?since={begin}&until={end}"), "flow")
    assert flow["in"] == ["4"] * 10
    past.clock.advance(24 * 60 * 60)
    text = await overview(past.storage, "?compare=day")
    assert 'class="line before in"' in text
    assert 'class="line before' not in await overview(past.storage)


@pytest.mark.parametrize("wrong", ["over=2y", "compare=year", "at=yesterday", "since=x&until=y"])
async def test_a_wrong_span_is_named(sqlite_past: Past, wrong: str) -> None:
    async with client_of(dashboard(sqlite_past.storage, authorize=lambda _: ADA)) as client:
        answer = await client.get(f"/?{wrong}", headers=HTML)
    assert answer.status_code == 400
    assert wrong.partition("=")[0] in answer.text


async def test_thirty_days_take_ten_calls_with_all_that_is_wrong(past: Past) -> None:
    lease = await register(past.storage, queues=("mail",), kinds=("t.kind",))
    await past.storage.procs.record_gauges(lease, past.clock.now(), deaf_gauges())
    faults = Faults()
    app = dashboard(faulty(past.storage, faults), authorize=lambda _: ADA)
    async with client_of(app) as client:
        # Another page has read what lies ahead, which is kept for half a minute.
        await client.get("/queues", headers=HTML)
        await client.post("/nowhere")
        faults.calls.clear()
        page = await client.get("/?over=30d&compare=week", headers=HTML)
    assert "30d" in page.text
    assert faults.calls["gauges"] == 1
    assert faults.calls.total() <= 10, faults.calls


async def test_a_hundred_viewers_at_once_share_the_look(sqlite_past: Past) -> None:
    faults = Faults()
    app = dashboard(faulty(sqlite_past.storage, faults), authorize=lambda _: ADA)
    faults.hold_replies("look")
    async with client_of(app) as client, asyncio.TaskGroup() as group:
        asked = [group.create_task(client.get("/queues", headers=HTML)) for _ in range(100)]
        await wait_until(lambda: faults.waiting["look"] == 1, description="a reader")
        faults.let_go("look")
    assert {each.result().status_code for each in asked} == {200}
    # One look for all. What else a page needs is in the look.
    assert faults.calls["counts"] <= 2
    assert faults.calls.total() <= 2 * 7 + 3, faults.calls


async def test_who_sees_some_queues_sees_no_series_of_all(sqlite_past: Past) -> None:
    eve = Actor(name="eve", access=Access(queues=frozenset({"mail"})))
    text = await overview(sqlite_past.storage, actor=eve)
    assert "chart-flow" not in text
    assert 'href="/queues/gh"' not in text
    assert "badge" not in text


async def test_tabs_count_the_problems_that_they_help_with(sqlite_past: Past) -> None:
    async with client_of(dashboard(sqlite_past.storage, authorize=lambda _: ADA)) as client:
        text = (await client.get("/jobs", headers=HTML)).text
    assert re.search(r'href="/queues"[^>]*>Queues<span class="badge"[^>]*>\d+<', text)
