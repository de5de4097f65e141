"""``forge_enqueue``, the function for programs in other languages: what Python's enqueue does."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import msgspec
import psycopg
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.preparing import prepare
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import check_job_id, new_job_id
from forge_jobs.model.jobs import Unique
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support import backends
from tests.support.factories import (
    KIND,
    QUEUE,
    claim_one,
    counters,
    done,
    enqueue_one,
    finish,
    new_job,
    register,
)
from tests.support.postgres import a_role, database_of, raw, with_options

pytestmark = pytest.mark.anyio


async def call(connection: Any, **options: object) -> str:
    """Call the function with these arguments, by name."""
    names = ", ".join(f"{name} => ${place}" for place, name in enumerate(options, 1))
    job_id: str = await connection.fetchval(f"SELECT forge_enqueue({names})", *options.values())
    return job_id


good_names = st.text("abÄ%:$'\"\\/{}", min_size=1, max_size=6)
odd_names = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ["x" * 200, "x" * 201, "a,b", "a\u2028", "a\x7f"]
)
# Mostly good ones: a request of which one part is refused says nothing about the others.
names = st.one_of(*[good_names] * 9, odd_names)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
good_payloads = st.dictionaries(st.sampled_from(["a", "b"]), values).map(
    lambda value: msgspec.json.encode(value).decode()
)
odd_payloads = st.sampled_from(
    [
        "[]",
        "7",
        "",
        "{",
        ' {"a" : 1e5} ',
        '{"a":1e400}',
        '{"a":18446744073709551616}',
        '{"a":-9223372036854775809}',
        '{"a":[NaN]}',
        '{"a":"\\u0000"}',
        '{"\\u0000":1}',
        '{"a":"\\ud800"}',
        '{"a":"\\ud83d\\ude00\\u00e4"}',
        '{"a":1,"a":2}',
        '{"a":' * 100 + "1" + "}" * 100,
        '{"a":' * 101 + "1" + "}" * 101,
        '{"a":"' + "x" * (2**20 - 8) + '"}',
        '{"a":"' + "ä" * (2**19 - 3) + '"}',
    ]
)
payloads = st.one_of(good_payloads, good_payloads, odd_payloads)
optional: dict[str, st.SearchStrategy[Any]] = {
    "queue": names,
    "priority": st.integers(-100, 100) | st.integers(-102, 102),
    "run_at": st.datetimes(datetime(1990, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    "delay": st.timedeltas(timedelta(0), timedelta(days=40_000)) | st.just(timedelta(-1)),
    "max_attempts": st.none() | st.integers(-1, 3) | st.sampled_from([1_000_000, 1_000_001]),
    "unique_key": names,
    "tags": st.lists(names, max_size=5) | st.just([str(n) for n in range(33)]),
    "timeout": st.timedeltas(timedelta(0), timedelta(days=40_000)) | st.just(timedelta(-1)),
    "expires_at": st.datetimes(datetime(1990, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    "keep_result": st.booleans(),
    "sequence_key": names | st.just(""),
    "concurrency_key": names | st.just(""),
}
TABLES = ("jobs", "queues", "counters", "sequences", "members")
EMPTY = ";".join(f"DELETE FROM forge_{table}" for table in TABLES)
OWN = ("id", "enqueued_at", "run_at", "requested_run_at", "fingerprint")


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Runs a coroutine function with a storage and a connection on an empty store."""
    with start_blocking_portal("asyncio") as portal:
        url = portal.call(backends.url_of, "postgres", tmp_path)

        storage = portal.call(open_storage, url)
        connection = portal.call(asyncpg.connect, url)
        yield lambda work: portal.call(work, storage, connection)
        portal.call(connection.close)
        portal.call(storage.aclose)
        portal.call(backends.forget, "postgres", tmp_path)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(kind=names, payload=payloads, options=st.fixed_dictionaries({}, optional=optional))
@example(kind="k", payload="{}", options={"tags": ["b", "a", "b"], "delay": timedelta(0)})
@example(kind="k", payload="{}", options={"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1})
def test_it_stores_and_refuses_what_python_does(
    run: Any, kind: str, payload: str, options: dict[str, Any]
) -> None:
    async def work(storage: Storage, connection: Any) -> None:
        await connection.execute(EMPTY)
        # The client remembers queues that are gone.
        database_of(storage)._known_queues.clear()
        refused = ""
        stored: list[Any] = []
        wanted = dict(options)
        if wanted.get("delay") == 1:
            wanted["delay"] = timedelta(seconds=1)
        try:
            job = prepare(EnqueueRequest(kind, payload, **wanted))
        except InvalidInput as error:
            refused = error.field
        else:
            await storage.jobs.enqueue([job])
            stored = await _all(connection)
        await connection.execute(EMPTY)
        try:
            job_id = await call(connection, kind=kind, payload=payload, **wanted)
        # A NUL character does not even get as far as the function.
        except (asyncpg.InvalidParameterValueError, asyncpg.CharacterNotInRepertoireError):
            assert refused
            return
        assert not refused
        assert check_job_id(job_id) == job_id
        assert await _all(connection) == stored

    run(work)


async def _all(connection: Any) -> list[Any]:
    """Return the stored rows without ids and times."""
    jobs = [dict(row) for row in await connection.fetch("SELECT * FROM forge_jobs")]
    for job in jobs:
        asked = job["requested_run_at"] is not None
        delay = job["run_at"] - job["enqueued_at"] if abs(job["run_at"]) else None
        due_ago = job["run_at"] <= job["enqueued_at"]
        job["asked"], job["due"] = asked, due_ago
        # The token starts at the time of acceptance.
        job["token"] -= job["enqueued_at"]
        job["delay"] = delay if asked and job["requested_run_at"] == job["run_at"] else None
        for name in OWN:
            del job[name]
    queues = [dict(row) for row in await connection.fetch("SELECT * FROM forge_queues")]
    for queue in queues:
        # The function begins at 0, the store at the clock.
        del queue["allocation_version"]
    counts = await connection.fetch("SELECT queue, host_id, name, count FROM forge_counters")
    # An instant has another distance from each call.
    for job in jobs:
        job["delay"] = job["delay"] and round(job["delay"] / 60_000_000)
    members = await connection.fetch("SELECT line, on_failure FROM forge_members")
    lines = await connection.fetch(
        "SELECT line, job_id IN (SELECT id FROM forge_jobs) FROM forge_sequences"
    )
    return [jobs, queues, *([tuple(row) for row in rows] for rows in (counts, members, lines))]


async def test_a_job_of_it_wakes_and_runs_and_is_counted(storage: Storage, url: str) -> None:
    lease = await register(storage)
    wait = storage.jobs.wait_for_work
    while await wait(frozenset({QUEUE}), timedelta(seconds=0.05)):
        pass
    async with raw(url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await call(connection, kind=KIND)
        await transaction.rollback()
        assert not await wait(frozenset({QUEUE}), timedelta(seconds=0.1))
        job_id = await call(connection, kind=KIND, payload='{"a": 1}')
    assert (await wait(frozenset({QUEUE}), timedelta(seconds=10))).queues == {QUEUE}
    claimed = await claim_one(storage, lease)
    assert (claimed.claim.job_id, claimed.payload) == (job_id, '{"a": 1}')
    assert await finish(storage, claimed, done())
    assert (await counters(storage))["enqueued"] == 1


async def test_of_many_callers_of_one_key_in_both_ways_one_stores_a_job(
    storage: Storage, url: str
) -> None:
    ids: list[str] = []

    async def by_function() -> None:
        async with raw(url) as connection:
            for _ in range(10):
                one = await call(connection, kind=KIND, unique_key="only")
                ids.append(one)

    async def by_python() -> None:
        for _ in range(10):
            [outcome] = await storage.jobs.enqueue([new_job(unique=Unique("only"))])
            ids.append(outcome.job_id)

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(by_function)
        group.start_soon(by_python)
    assert len(ids) == 50
    assert len(set(ids)) == 1
    assert (await counters(storage)) == {"enqueued": 1, "deduplicated": 49}


async def test_a_repeat_of_an_id_stores_one_job_and_other_content_is_refused(
    storage: Storage, url: str
) -> None:
    mine = await enqueue_one(storage, payload='{"a":1}')
    async with raw(url) as connection:
        assert await call(connection, kind=KIND, payload='{"a":1}', id=mine) == mine
        new = new_job_id()
        for _ in range(2):
            assert await call(connection, kind=KIND, id=new.lower(), unique_key="k") == new
        for wrong in ({"kind": "other"}, {"kind": KIND, "payload": '{"a":2}'}):
            with pytest.raises(asyncpg.UniqueViolationError, match="another content"):
                await call(connection, **wrong, id=mine)
        with pytest.raises(asyncpg.InvalidParameterValueError, match="ULID"):
            await call(connection, kind=KIND, id="8" * 26)
    assert (await counters(storage)) == {"enqueued": 2}


async def test_its_ids_are_new_and_sort_by_their_time(url: str) -> None:
    async with raw(url) as connection:
        ids = await connection.fetchval(
            "SELECT array_agg(forge_new_id()) FROM generate_series(1, 5000)"
        )
    assert len(set(ids)) == 5000
    assert [each[:10] for each in ids] == sorted(each[:10] for each in ids)
    before, after = new_job_id()[:9], ids[0][:9]
    assert after <= before
    assert all(len({each[place] for each in ids}) == 32 for place in (10, 16, 18, 25))


async def test_it_works_in_a_schema_of_any_name_from_any_search_path_for_a_mere_user(
    url: str,
) -> None:
    elsewhere = with_options(url, schema="odd+%22one%22")
    async with await open_storage(elsewhere) as storage, a_role(url, "word") as its_url:
        role = its_url.partition("//")[2].partition(":")[0]
        async with raw(url) as connection:
            await connection.execute(
                f'GRANT USAGE ON SCHEMA "odd ""one""" TO {role};'
                "GRANT SELECT, INSERT ON forge_jobs, forge_queues, forge_counters"
                f" TO {role}".replace("forge_", '"odd ""one""".forge_')
            )
        async with await psycopg.AsyncConnection.connect(its_url, autocommit=True) as other:
            await other.execute("CREATE TEMPORARY TABLE forge_jobs (id int)")
            await other.execute("SET standard_conforming_strings = off")
            found = await other.execute(
                'SELECT "odd ""one""".forge_enqueue(%s, queue => %s)', (KIND, "mine")
            )
            row = await found.fetchone()
            assert row is not None
            with pytest.raises(psycopg.errors.InvalidParameterValue):
                await other.execute('SELECT "odd ""one""".forge_enqueue(%s)', ("a\x7fb",))
        assert list(await storage.jobs.get([row[0]])) == [row[0]]


async def test_no_version_of_a_deleted_queue_comes_back_with_one_that_it_makes(
    storage: Storage, url: str
) -> None:
    async with raw(url) as connection:
        before = await connection.fetchval("SELECT floor(extract(epoch FROM now()))::bigint")
        await call(connection, kind=KIND, queue="made")
    [made] = await storage.procs.allocations()
    assert made.version >= before * 1000
