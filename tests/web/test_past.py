"""Time travel: Overview, Queues and Pods as they were, on every store."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind
from forge_jobs.model.retention import Kept
from forge_jobs.operating.past.reading import read_then
from forge_jobs.operating.snapshots.reading import problems
from forge_jobs.web import Access, Actor, dashboard
from tests.support.backends import BACKENDS, pass_on
from tests.support.factories import cleaned_up
from tests.web.conftest import ADA, client_of
from tests.web.past import LOST, PAUSED, RESUMED, Past

pytestmark = pytest.mark.anyio


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
        yield Past(storage, clock)
    await pass_on(request.param, tmp_path)


async def shown(past: Past, path: str, minute: int, actor: Actor = ADA) -> str:
    """Return a page as it was in a minute of the past."""
    at = past.at(minute).strftime("%Y-%m-%dT%H:%MZ")
    async with client_of(dashboard(past.storage, authorize=lambda _: actor)) as client:
        answer = await client.get(f"{path}?at={at}", headers={"Accept": "text/html"})
    assert answer.status_code == 200, answer.text
    return answer.text


def line(text: str, name: str) -> str:
    """Return the words of the line of a queue or pod."""
    [row] = [row for row in re.findall(r"<tr>(.*?)</tr>", text, re.S) if f">{name}<" in row]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", row))


async def test_problems_of_then_are_those_that_were_seen_then(past: Past) -> None:
    seen = {}
    for stop, until in ((PAUSED + 3, "paused"), (RESUMED + 3, "open"), (LOST + 5, "lost")):
        await past.live_to(stop)
        # The rules of then, at the time itself.
        seen[stop] = {(p.code, p.about) for p in await problems(past.storage)}, until
    await past.live_to(40)
    past.clock.advance(timedelta(hours=3))
    for stop, (was, _) in seen.items():
        then = await read_then(past.storage, past.at(stop - 1))
        found = {(p.code, p.about) for p in then.problems}
        kept = {each for each in was if each[0] in _KEPT}
        assert {each for each in found if each[0] in _KEPT} == kept, stop
        assert then.at == past.at(stop - 1)
    assert ("paused_with_work", "mail") in seen[PAUSED + 3][0]
    assert ("unserved_queue", "mail") in seen[LOST + 5][0]


_KEPT = {"paused_with_work", "unserved_queue", "error_burst", "backlog_growing"}
"""Problems of which all is kept."""


async def test_pages_of_then_show_what_was_and_offer_nothing(past: Past) -> None:
    await past.live()
    text = await shown(past, "/", PAUSED + 2)
    assert "As it was at 2026-01-01 00:12:00 UTC" in text
    assert "paused by ada" in line(text, "mail")
    assert "is paused with work due" in text
    assert "/act/" not in text
    assert "What cannot be said" in text
    text = await shown(past, "/queues", RESUMED + 2)
    assert "paused" not in line(text, "mail")
    assert "open" in line(text, "gh")
    # Three came and three ended a minute, and 18 had come to mail.
    assert " 18 " in line(text, "mail")
    assert " 3 3 " in line(text, "gh")
    assert "/act/" not in text
    text = await shown(past, "/pods", 5)
    assert "7a11" in line(text, "web-1")
    assert "41 %" in line(text, "web-1")
    assert "No pod is known" in await shown(past, "/pods", LOST + 5)
    assert "unserved" in line(await shown(past, "/queues", LOST + 5), "mail")


async def test_where_minutes_are_folded_the_hour_is_shown(past: Past) -> None:
    await past.live()
    past.clock.advance(timedelta(hours=2))
    # Nothing of minutes is kept, as after thirty days.
    kept = Kept(minutes=timedelta(minutes=10))
    await cleaned_up(past.storage, kept=kept)
    then = await read_then(past.storage, past.at(12))
    assert then.length == timedelta(hours=1)
    assert then.at == past.start
    assert "The minutes of that hour are folded" in " ".join(then.unknown)
    assert "in the hour from" in await shown(past, "/queues", 12)


async def test_of_an_unknown_minute_nothing_is_made_up(past: Past) -> None:
    await past.live()
    then = await read_then(past.storage, past.start - timedelta(days=3))
    assert then.problems == ()
    assert {queue.depth for queue in then.queues} == {None}
    assert then.pods == ()
    assert "No numbers are kept of that minute" in then.unknown[0]


async def test_who_sees_one_queue_sees_that_one_of_then(past: Past) -> None:
    await past.live()
    eve = Actor(name="eve", access=Access(queues=frozenset({"gh"})))
    for path in ("/", "/queues"):
        text = await shown(past, path, PAUSED + 2, eve)
        assert ">gh<" in text
        assert "mail" not in text
    text = await shown(past, "/pods", 5, eve)
    assert "mail" not in text
    assert "41 %" not in text


async def test_a_pod_that_drained_is_shown_so(past: Past) -> None:
    past.dies_at = 100
    await past.live(5)
    await past.tell(EventKind.POD_DRAINING, host_id=past.pod.host_id, detail="grace 30s")
    await past.live_to(10)
    assert "draining" in line(await shown(past, "/pods", 8), "web-1")
    assert "live" in line(await shown(past, "/pods", 3), "web-1")
