"""Sequences and limits of what ``forge_enqueue`` stores."""

from typing import Any

import anyio
import asyncpg
import psycopg
import pytest

from forge_jobs import Encryption, EnqueueRequest, HandlerRegistry, Limit, Sequence
from forge_jobs.handlers.preparing import prepare
from forge_jobs.handlers.schema import published
from forge_jobs.model.edges import EdgeState
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Line
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    QUEUE,
    dead,
    get_job,
    new_job,
    only,
    register,
    run_one,
)
from tests.support.lines import claim_due, edges_of, in_line, order_of
from tests.support.postgres import a_role, raw

pytestmark = pytest.mark.anyio


async def call(connection: Any, payload: str = "{}", **options: object) -> JobId:
    """Call the function with these arguments, by name."""
    arguments: dict[str, object] = {"kind": KIND, "payload": payload, "queue": QUEUE, **options}
    names = ", ".join(f"{name} => ${place}" for place, name in enumerate(arguments, 1))
    found = await connection.fetchval(f"SELECT forge_enqueue({names})", *arguments.values())
    return JobId(found)


def handlers(template: str = "order:{order}", **options: Any) -> HandlerRegistry:
    """The kind of the tests, under another name too, in a sequence and limited."""
    registry = HandlerRegistry(encryption=options.pop("encryption", None))
    sequence = Sequence(template, on_failure="skip")
    limit = Limit(3, key=template, name="three")

    async def run(order: Any = None, shop: Any = None) -> None: ...

    registry.register(
        run, KIND, queue=QUEUE, aliases=["other"], sequence=sequence, concurrency=limit, **options
    )
    return registry


async def test_it_is_in_one_line_with_jobs_of_python(storage: Storage, url: str) -> None:
    lease = await register(storage)
    line = await in_line(storage, 2)
    async with raw(url) as connection:
        line += [await call(connection, sequence_key="k") for _ in range(2)]
    line += await in_line(storage, 1)
    assert await edges_of(storage, line[3]) == {line[2]: EdgeState.OPEN}
    assert await order_of(storage, lease) == line


async def test_it_comes_after_a_dead_job_as_the_policy_says(storage: Storage, url: str) -> None:
    lease = await register(storage)
    await storage.procs.publish_kinds(published(handlers()))
    async with raw(url) as connection:
        waits = [await call(connection, kind="own", sequence_key="k")]
        await storage.jobs.delete(only(*waits))
        waits = await in_line(storage, 1)
        assert await run_one(storage, lease, dead()) == waits[0]
        waits.append(await call(connection, kind="own", sequence_key="k"))
        assert await claim_due(storage, lease) == []
        assert await edges_of(storage, waits[1]) == {waits[0]: EdgeState.HELD}
        skips = await in_line(storage, 1, "skip", key="order:7")
        assert await run_one(storage, lease, dead()) == skips[0]
        skips.append(await call(connection, '{"order": 7}'))
    assert await edges_of(storage, skips[1]) == {skips[0]: EdgeState.OPEN}
    assert [job.claim.job_id for job in await claim_due(storage, lease)] == skips[1:]


@pytest.mark.parametrize("template", ["order:{order}", "{order}/{shop}", "{shop}"])
@pytest.mark.parametrize(
    "payload",
    [
        "{}",
        '{"order": 7}',
        '{"order": -70, "shop": "n\\u00f6rd"}',
        '{"order": "#7", "shop": true}',
        '{"order": null, "shop": false}',
        '{"order": 18446744073709551615, "shop": "a b"}',
        '{"order": 1, "order": 2, "shop": "x"}',
        '{"order": -0, "shop": 1.5}',
        '{"order": 1e2, "shop": "#"}',
        '{"order": [1], "shop": "a,b"}',
        '{"order": {"a": 1}, "shop": ""}',
    ],
)
async def test_the_keys_are_those_that_python_makes_or_have_to_be_given(
    storage: Storage, url: str, template: str, payload: str
) -> None:
    registry = handlers(template)
    await storage.procs.publish_kinds(published(registry))
    wanted = prepare(EnqueueRequest(KIND, payload), registry)
    assert wanted.sequence is not None
    async with raw(url) as connection:
        for kind in (KIND, "other"):
            refused = ""
            try:
                job = await get_job(storage, await call(connection, payload, kind=kind))
            except asyncpg.InvalidParameterValueError as error:
                refused = str(error)
            if refused:
                assert "concurrency_key: is missing" in refused
                is_odd = any(odd in payload for odd in ("-0", "1e2", "[", "1.5", '{"a'))
                assert is_odd or wanted.limit_key.startswith("#")
                continue
            assert (job.limit_name, job.limit_key) == ("three", wanted.limit_key)
            line = await connection.fetchval(
                "SELECT line FROM forge_members WHERE job_id = $1", job.id
            )
            assert line == f"{QUEUE}\n{wanted.sequence.key}"


async def test_a_key_of_a_hash_has_to_be_given(storage: Storage, url: str) -> None:
    registry = handlers(encryption=Encryption([Encryption.new_key()]))
    await storage.procs.publish_kinds(published(registry))
    async with raw(url) as connection:
        given: dict[str, str] = {}
        for key in ("concurrency_key", "sequence_key"):
            with pytest.raises(asyncpg.InvalidParameterValueError, match=f"{key}: is missing"):
                await call(connection, '{"order": 7}', **given)
            given[key] = "#7"
        job = await get_job(storage, await call(connection, '{"order": 7}', **given))
        assert (job.limit_name, job.limit_key) == ("three", "#7")
        free = {"concurrency_key": "", "sequence_key": ""}
        await call(connection, '{"order": 7}', **free)
        assert await connection.fetchval("SELECT count(*) FROM forge_members") == 1


@pytest.mark.parametrize("document", ["{", '{"sequence":{ "concurrency":{', '{"sequence":{}}', "7"])
async def test_a_spoilt_description_of_the_kind_refuses_nothing(
    storage: Storage, url: str, document: str
) -> None:
    await storage.procs.publish_kinds({KIND: document})
    async with raw(url) as connection:
        assert await get_job(storage, await call(connection))


async def test_callers_at_once_in_both_ways_make_one_line(storage: Storage, url: str) -> None:
    async def by_function() -> None:
        async with raw(url) as connection:
            for _ in range(5):
                await call(connection, sequence_key="k")

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(by_function)
            tasks.start_soon(in_line, storage, 5)
    assert len(await order_of(storage, await register(storage))) == 30


async def test_what_is_not_stored_takes_no_place(storage: Storage, url: str) -> None:
    await storage.jobs.enqueue([new_job()])
    async with raw(url) as connection:
        holder = await call(connection, unique_key="u")
        assert await call(connection, unique_key="u", sequence_key="k") == holder
        transaction = connection.transaction()
        await transaction.start()
        await call(connection, sequence_key="k")
        await transaction.rollback()
        assert await connection.fetchval("SELECT count(*) FROM forge_sequences") == 0
    [first] = await in_line(storage, 1)
    assert await storage.jobs.parents([first]) == {}


async def test_a_role_that_may_only_enqueue_hears_of_the_sequences_of_kinds(
    storage: Storage, url: str
) -> None:
    await storage.procs.publish_kinds(published(handlers()))
    async with a_role(url, "word") as its_url:
        role = its_url.partition("//")[2].partition(":")[0]
        async with raw(url) as connection:
            await connection.execute(
                f"GRANT SELECT, INSERT ON forge_jobs, forge_queues, forge_counters TO {role}"
            )
            async with await psycopg.AsyncConnection.connect(its_url, autocommit=True) as other:
                await other.execute("CREATE TEMPORARY TABLE forge_kinds (kind text, document text)")
                statement = "SELECT forge_enqueue(%s, '{{\"order\": 7}}', queue => %s, {})"
                free = "sequence_key => ''"
                await other.execute(statement.format(free), (KIND, QUEUE))
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    await other.execute(statement.format("priority => 1"), (KIND, QUEUE))
            await connection.execute(
                f"GRANT UPDATE ON forge_jobs TO {role};"
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON forge_sequences TO {role};"
                f"GRANT INSERT ON forge_members, forge_edges, forge_handovers TO {role};"
                f"GRANT USAGE ON SEQUENCE forge_handovers_id_seq TO {role}"
            )
        async with await psycopg.AsyncConnection.connect(its_url, autocommit=True) as other:
            for _ in range(2):
                await other.execute(statement.format("priority => 1"), (KIND, QUEUE))
    lease = await register(storage)
    ran = await claim_due(storage, lease)
    assert len(ran) == 2  # One in no sequence, and the first of two.


async def test_the_key_is_of_the_queue_of_the_job(storage: Storage, url: str) -> None:
    async with raw(url) as connection:
        for queue in ("a", "b"):
            await call(connection, queue=queue, sequence_key="k")
    job = new_job(queue="a", sequence=Line("k"))
    await storage.jobs.enqueue([job])
    [parent] = (await storage.jobs.parents([job.id]))[job.id]
    assert (await get_job(storage, parent)).queue == "a"
