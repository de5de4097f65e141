"""The pages of schedules: words, occurrences of a text that is being edited, and histories."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from forge_jobs.clients.schedules import job_of, put_schedule, schedule
from forge_jobs.clock import ManualClock, to_us
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import occurrence_job_id
from forge_jobs.model.schedules import Firing
from forge_jobs.policy.cron import parse_cron
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from forge_jobs.web.pages.cron.phrases import phrase
from tests.support.backends import BACKENDS
from tests.support.factories import claim_one, done, finish, register
from tests.support.faulty import Faults, faulty
from tests.web.conftest import ADA, client_of
from tests.web.hostile import hostile
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio

QUEUE = "mail"


async def scheduled(storage: Storage, name: str = "nightly", text: str = "30 2 * * *") -> None:
    request = EnqueueRequest("mail.send", {}, queue=QUEUE)
    spec = schedule(name, request, text, timezone="Europe/Berlin")
    await put_schedule(storage.cron, spec)


async def fired(storage: Storage, name: str, *occurrences: datetime) -> None:
    """Let a schedule fire at these instants."""
    for at in occurrences:
        stored = await storage.cron.get_schedule(name)
        assert stored is not None
        job = structs.replace(job_of(stored.spec), id=occurrence_job_id(name, to_us(at)))
        firing = Firing(
            name=name,
            version=stored.version,
            jobs=(job,),
            next_at=at + timedelta(minutes=1),
            fired_at=at,
        )
        assert await storage.cron.fire([firing]) == [True]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("30 6 * * 1-5", "At 06:30, Monday through Friday"),
        ("*/10 * * * *", "Every 10 minutes"),
        ("0 12 1,15 * fri", "At 12:00, on day 1 and 15 of the month, or on Friday"),
        ("30 6 * * 1-5 15", "At 06:30:15, Monday through Friday"),
        ("@daily", "Every day at 00:00"),
        ("@every 1h30m", "Every 1 h 30 min"),
        # Both days must fit, which the library does not know.
        ("0 0 */2 * 1", ""),
        ("0 0 1-7 * */2", ""),
    ],
)
def test_times_in_words(expression: str, words: str) -> None:
    assert phrase(expression) == words


@given(st.from_regex(r"[0-9*,/\-a-zL#? ]{1,25}", fullmatch=True))
@example("* * * * 0-6")
@example("0 0 l * *")
@example("? * ? * ? 5")
def test_whatever_is_taken_has_words_or_none(text: str) -> None:
    try:
        parse_cron(text)
    except InvalidInput:
        return
    assert phrase(text) == phrase(text).strip()


async def test_a_text_is_shown_before_it_is_stored(storage: Storage) -> None:
    await scheduled(storage)
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
        stored = await page(client, "/cron/nightly")
        assert "At 02:30" in stored
        assert "which is not stored" not in stored
        draft = await page(client, "/cron/nightly?expression=0+6+*+*+1-5&timezone=Asia/Tokyo")
        assert "At 06:00, Monday through Friday" in draft
        assert "which is not stored" in draft
        assert 'value="Asia/Tokyo"' in draft
        assert draft.count("06:00:00 JST") == 5
        wrong = await page(client, "/cron/nightly?expression=61+*+*+*+*&timezone=UTC")
        assert "is not a cron expression" in wrong
        assert 'value="61 * * * *"' in wrong
        zone = await page(client, "/cron/nightly?expression=@daily&timezone=Mars/Base")
        assert "give an IANA name" in zone
        kept = await storage.cron.get_schedule("nightly")
        assert kept is not None
        assert kept.spec.expression == "30 2 * * *"


async def test_a_change_says_what_it_means_and_changes_the_zone(storage: Storage) -> None:
    await scheduled(storage)
    path = "/act/set_schedule?name=nightly&expression=0+6+*+*+*&timezone=Asia/Tokyo"
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
        shown = await page(client, path)
        assert "At 06:00" in shown
        assert "--timezone Asia/Tokyo" in shown
        assert 'method="post"' in shown
        wrong = await page(client, path.replace("0+6", "61+6"))
        assert 'method="post"' not in wrong
        await client.post(path)
    kept = await storage.cron.get_schedule("nightly")
    assert kept is not None
    assert (kept.spec.expression, kept.spec.timezone) == ("0 6 * * *", "Asia/Tokyo")


async def test_while_typing_only_the_meaning_is_sent_and_nothing_is_read(sqlite: Storage) -> None:
    faults = Faults()
    await scheduled(sqlite)
    app = dashboard(faulty(sqlite, faults), authorize=lambda _: ADA)
    async with client_of(app) as client:
        await page(client, "/cron/nightly")
        faults.calls.clear()
        path = "/cron/nightly?part=times&timezone=Europe/Berlin&expression="
        text = await page(client, f"{path}*/5+*+*+*+*")
        assert "Every 5 minutes" in text
        assert "<html" not in text
        assert set(faults.calls) <= {"now"}
        assert "has 1001 characters" in await page(client, f"{path}{'1' * 1001}")


async def test_who_may_not_read_learns_no_times(sqlite: Storage) -> None:
    nobody = Actor(name="eve", access=Access(read=False))
    async with client_of(dashboard(sqlite, authorize=lambda _: nobody)) as client:
        answer = await client.get("/cron/x?part=times&expression=@daily")
    assert answer.status_code == 403


@pytest.mark.long
async def test_hostile_texts_of_schedules_are_text(sqlite: Storage) -> None:
    await scheduled(sqlite)
    async with client_of(dashboard(sqlite, authorize=lambda _: ADA)) as client:
        for text in hostile(60):
            for name in ("expression", "timezone"):
                given = {"expression": "@daily", "timezone": "UTC", name: text}
                for part in ("", "times"):
                    answer = await client.get("/cron/nightly", params=given | {"part": part})
                    assert answer.status_code in (200, 400), text
                    assert "<script>alert" not in answer.text
                    assert "<img src=x" not in answer.text


async def test_the_change_of_clocks_is_marked(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2027, 3, 27, 12, tzinfo=UTC))
    async with BACKENDS["sqlite"](tmp_path, clock) as storage:
        await scheduled(storage)
        async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
            text = await page(client, "/cron/nightly")
        # On the 28th there is no 02:30: the job comes at the end of the gap.
        assert "03:00:00 CEST <span" in text.replace("\n", "")
        assert text.count("clocks change before") == 1


async def test_the_list_shows_how_the_last_occurrences_went(storage: Storage) -> None:
    await scheduled(storage, "tick", "* * * * *")
    start = (await storage.cron.now()).replace(second=0, microsecond=0) - timedelta(minutes=20)
    times = [start + timedelta(minutes=each) for each in range(16)]
    await fired(storage, "tick", *times[:5], *times[6:])
    await scheduled(storage, "never")
    lease = await register(storage, queues=(QUEUE,), kinds=("mail.send",))
    await storage.config.set_paused(QUEUE, False)
    for _ in range(5):
        claimed = await claim_one(storage, lease, queue=QUEUE, kinds=("mail.send",))
        await finish(storage, claimed, done())
    faults = Faults()
    app = dashboard(faulty(storage, faults), authorize=lambda _: ADA)
    async with client_of(app) as client:
        await page(client, "/cron")
        faults.calls.clear()
        text = await page(client, "/cron")
    assert faults.calls["states"] == 1
    assert faults.calls["list"] == 0
    titles = text.partition('class="history"')[2].partition('aria-label="')[2].partition('"')[0]
    assert titles.split(", ") == ["done", "skipped or no longer kept", *["waiting"] * 10]
    assert text.count('class="history"') == 1


async def test_bars_of_a_closed_queue_are_not_shown(sqlite: Storage) -> None:
    await scheduled(sqlite, "tick", "* * * * *")
    now = (await sqlite.cron.now()).replace(second=0, microsecond=0)
    await fired(sqlite, "tick", now - timedelta(minutes=1))
    stored = await sqlite.cron.get_schedule("tick")
    assert stored is not None
    await put_schedule(sqlite.cron, structs.replace(stored.spec, queue="open"))
    eve = Actor(name="eve", access=Access(queues=frozenset({"open"})))
    async with client_of(dashboard(sqlite, authorize=lambda _: eve)) as client:
        text = await page(client, "/cron")
    assert "tick" in text
    assert 'class="history"' not in text
