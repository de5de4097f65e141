"""Terms of the filter language mean the same on all stores, which a plain reference says."""

import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput
from forge_jobs.model.answering.filters import as_filter
from forge_jobs.model.filters import BulkOutcome, JobFilter, Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Job, JobStatus, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queries.reading import parse_query
from forge_jobs.model.queries.terms import (
    CHOICES,
    COMPARED,
    Choice,
    Compared,
    InPayload,
    JobQuery,
    Sign,
    Term,
)
from forge_jobs.model.queries.writing import format_query
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    QUEUE,
    SECOND,
    claim_one,
    crashed,
    dead,
    enqueue_one,
    error,
    failed,
    finish,
    held,
    new_job,
    only,
    register,
)
from tests.support.reference_filter import is_meant
from tests.support.situations import a_job

pytestmark = pytest.mark.anyio

PAYLOADS = (
    '{"a":1,"b":{"c":["x",{"d":null}]},"e":"\\u0041"}',
    '{"a":"1","b":{"c":[]},"e":"A"}',
    '{"a":true,"big":9223372036854775808123,"f":1.50}',
    '{ "a" : 1.0 , "x y": "\\"q\\"" , "f" : 15e-1 }',
    '{"a":{"a":1}}',
    "[1,2]",
    "42",
    '{"forge_jobs.encrypted":1,"key":"k","of":"o","kind":"k","data":"a"}',
)
PATHS = [("a",), ("b", "c", "0"), ("b", "c", "1", "d"), ("e",), ("big",), ("f",), ("x y",), ("0",)]
SIGNS: tuple[Sign, ...] = ("<", "<=", ">=", ">")
EQUAL: Sign = "="
VALUES = ["1", '"1"', "true", "1.0", "null", '"A"', '"x"', "9223372036854775808123", "1.5", "2"]
VALUES += ['"\\"q\\""']
ERRORS = ("card DECLINED", 'line one\nline "two"', "Straße", "connection refused")


@pytest.fixture
async def world(storage: Storage, clock: ManualClock) -> dict[JobId, Job]:
    """Jobs in every status, of which no two are alike."""
    ids: list[JobId] = []
    for queue in (QUEUE, "other"):
        lease = await register(storage, queues=[queue], kinds=["tests.noop", "b"])
        for number, status in enumerate(JobStatus):
            fields: dict[str, Any] = {
                "queue": queue,
                "payload": PAYLOADS[(number + (queue == QUEUE)) % len(PAYLOADS)],
                "tags": (("x",), ("x", 'y"z'), ())[number % 3],
                "kind": "b" if number % 4 == 0 else "tests.noop",
                "schedule": "nightly" if number % 3 == 1 else "",
            }
            if number % 2:
                fields["unique"] = Unique(f"key-{number}", "keep-last")
            clock.advance(1)
            ids.append(await a_job(storage, lease, status, **fields))
            if number == 3:
                # A follow-up, which has another place of the key.
                await storage.jobs.enqueue([new_job(queue=queue, unique=fields["unique"])])
        for number, text in enumerate(ERRORS):
            ids.append(await enqueue_one(storage, queue=queue, priority=-10))
            claimed = await claim_one(storage, lease, queue=queue)
            why = error(text, traceback="declined\n" * 20, error_group=f"g{number}")
            end = (
                failed(5 * SECOND, error=why),
                dead(error=why),
                crashed(),
                failed(DAY, error=why),
            )
            await finish(storage, claimed, end[number])
        running = await enqueue_one(storage, queue=queue, priority=-9)
        claimed = await claim_one(storage, lease, queue=queue)
        await storage.jobs.heartbeat(lease, [held(claimed, "w")], 15 * SECOND)
        ids.append(running)
        await enqueue_one(storage, queue=queue, delay=timedelta(hours=number))
    clock.advance(3)
    page = await storage.jobs.list(JobFilter(), limit=1000)
    jobs = await storage.jobs.get([line.id for line in page.jobs])
    assert len(jobs) == len(page.jobs) >= 26
    return jobs


def some_term(rng: random.Random, jobs: list[Job], now: datetime) -> Term:
    """A term that some of the jobs match, most of the time."""
    excluded = rng.random() < 0.4
    job = rng.choice(jobs)
    name = rng.choice([*CHOICES, *COMPARED, "payload"])
    if name == "payload":
        values = tuple(rng.sample(VALUES, rng.randint(1, 3)))
        return InPayload(rng.choice(PATHS), values, excluded)
    sign: Sign = rng.choice(SIGNS)
    if name in {"attempt", "crashes"}:
        return Compared(name, rng.choice((sign, EQUAL)), rng.randint(0, 2))
    if name == "running":
        return Compared(name, sign, rng.choice([0, 3, 17, 60]) * SECOND)
    if name in {"enqueued", "finished", "due"}:
        at = {"enqueued": job.enqueued_at, "finished": job.finished_at, "due": job.due_at}[name]
        at = (at or now) + rng.choice([-SECOND, 0 * SECOND, SECOND])
        is_age = rng.random() < 0.5 and (name == "due" or at <= now)
        return Compared(name, sign, now - at if is_age else at)
    known: dict[str, Sequence[str]] = {
        "queue": [QUEUE, "other", "none"],
        "kind": ["tests.noop", "b", "none"],
        "status": list(JobStatus),
        "cause": list(Cause),
        "tag": ["x", 'y"z', "z"],
        "schedule": ["nightly", "none"],
        "pod": [each.host_id for each in jobs if each.host_id],
        "key": ["key-1", "key-3", "none"],
        "id": [each.id for each in jobs],
        "group": ["g0", "g1", "g2", "none"],
        "error": [
            "DECLINED",
            "strasse",
            "STRASSE",
            "ß",
            'line "TWO"',
            "one\nline",
            "valueerror: c",
        ],
    }
    some = known[name]
    values = tuple(rng.sample(some, rng.randint(1, min(3, len(some)))))
    return Choice(name, values, excluded)


def some_query(rng: random.Random, jobs: list[Job], now: datetime) -> JobQuery:
    while True:
        terms = tuple(some_term(rng, jobs, now) for _ in range(rng.choice([1, 1, 2, 3])))
        try:
            return JobQuery(terms)
        except InvalidInput:
            # Two terms that no job matches together.
            continue


def wanted(jobs: dict[JobId, Job], query: JobQuery, now: datetime) -> list[JobId]:
    return sorted((each for each in jobs if is_meant(jobs[each], query, now)), reverse=True)


async def every_id(storage: Storage, which: JobFilter, **how: Any) -> list[JobId]:
    page = await storage.jobs.list(which, **how)
    found = [line.id for line in page.jobs]
    while page.cursor is not None:
        page = await storage.jobs.list(which, cursor=page.cursor, **how)
        found += [line.id for line in page.jobs]
    return found


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)]
)
async def test_a_query_means_what_the_reference_says(
    storage: Storage, world: dict[JobId, Job], clock: ManualClock, seed: int
) -> None:
    rng, now, hits = random.Random(seed), clock.now(), 0
    jobs = list(world.values())
    in_order = {
        order: await every_id(storage, JobFilter(), order=order, limit=100)
        for order in ("finished", "due")
    }
    for _ in range(80):
        query = some_query(rng, jobs, now)
        text = format_query(query)
        which = as_filter(parse_query(text), now)
        meant = wanted(world, query, now)
        assert await every_id(storage, which, limit=rng.choice([1, 5, 100])) == meant, text
        assert (await storage.jobs.count(which)).number == len(meant), text
        if rng.random() < 0.3:
            raw = JobFilter(terms=query.terms)
            assert await every_id(storage, raw, limit=100) == meant, text
            for order, listed in in_order.items():
                found = await every_id(storage, raw, order=order, limit=3)
                assert found == [each for each in listed if each in meant], (text, order)
            named = JobFilter(ids=tuple(world)[::2], terms=query.terms)
            assert await every_id(storage, named) == [m for m in meant if m in tuple(world)[::2]]
        hits += 0 < len(meant) < len(jobs)
    assert hits > 30


@pytest.mark.daily("sqlite", "redis", "postgres-cancel")
@pytest.mark.parametrize(
    "verb", ["delete", "cancel", "requeue", "restore", "run_now", "release_held"]
)
async def test_bulk_verbs_visit_what_the_query_means_and_no_others(
    storage: Storage, world: dict[JobId, Job], clock: ManualClock, verb: str
) -> None:
    rng, now = random.Random(verb), clock.now()
    left = dict(world)
    for _ in range(12):
        query = some_query(rng, list(world.values()), now)
        which = as_filter(query, now)
        meant = wanted(left, query, now)
        operation: Callable[..., Awaitable[BulkOutcome]] = getattr(storage.jobs, verb)
        visited: list[JobId] = []
        cursor: str | None = None
        while True:
            outcome = await operation(which, cursor=cursor, limit=4)
            gone = {each for each, why in outcome.refused.items() if why == Refusal.NOT_FOUND}
            assert gone.isdisjoint(left)
            visited += {*outcome.changed, *outcome.requested, *outcome.refused} - gone
            cursor = outcome.cursor
            if cursor is None:
                break
        assert set(visited) == set(meant), query
        left = dict(await storage.jobs.get(list(left)))


async def test_texts_that_changed_since_they_were_read_are_looked_at_again(
    storage: Storage, lease: PodLease
) -> None:
    key = Unique("k", "replace")
    first = await enqueue_one(storage, payload='{"a":1}', unique=key)
    which = as_filter(parse_query("payload.a:1"), None)  # type: ignore[arg-type] # no ages
    assert (await storage.jobs.list(which)).jobs[0].id == first
    await storage.jobs.enqueue([new_job(payload='{"a":2}', unique=key)])
    assert (await storage.jobs.delete(which)).changed == ()
    assert (await storage.jobs.delete(JobFilter(ids=(first,), terms=which.terms))).changed == ()
    assert (await storage.jobs.list(JobFilter())).jobs[0].id == first


async def test_a_search_in_texts_reads_a_bounded_number_and_goes_on(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.storage.sql.jobs.filters.READ", 200)
    monkeypatch.setattr("forge_jobs.storage.redis.jobs.filters.READ", 400)
    first = await enqueue_one(storage, payload='{"a":1}')
    await storage.jobs.enqueue([new_job() for _ in range(700)])
    last = await enqueue_one(storage, payload='{"a":1}')
    which = JobFilter(terms=parse_query("payload.a:1").terms)
    pages = [await storage.jobs.list(which)]
    while pages[-1].cursor is not None:
        assert pages[-1].looked_back_to is not None
        pages.append(await storage.jobs.list(which, cursor=pages[-1].cursor))
    assert [line.id for page in pages for line in page.jobs] == [last, first]
    assert 1 < len(pages) <= 6
    count = await storage.jobs.count(which)
    assert (count.number, count.is_exact) == (1, False)
    rest, cursor = 1, count.looked_back_to
    while cursor is not None:
        more = await storage.jobs.count(which, cursor=cursor)
        rest, cursor = rest + more.number, more.looked_back_to
    assert rest == 2
    assert (await storage.jobs.cancel(only(first))).changed == (first,)


async def test_the_newest_error_is_found_behind_long_ones(
    storage: Storage, lease: PodLease
) -> None:
    job_id = await enqueue_one(storage)
    for number in range(12):
        why = error(f"number {number}", traceback='{"attempt":1,"' * 700)
        claimed = await claim_one(storage, lease)
        await finish(storage, claimed, failed(error=why))
    for text, is_there in (("number 11", True), ("number 10", False)):
        which = JobFilter(terms=(Choice("error", (text,)),))
        assert bool((await storage.jobs.list(which)).jobs) == is_there
    assert (await storage.jobs.list(JobFilter(terms=(Choice("error", ("x",), True),)))).jobs[
        0
    ].id == job_id


async def test_terms_that_are_none_are_refused_by_name() -> None:
    with pytest.raises(InvalidInput) as refused:
        JobFilter(terms="queue:a")  # type: ignore[arg-type]
    assert refused.value.field == "terms"
