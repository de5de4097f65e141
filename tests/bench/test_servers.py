"""Counts of a run, as the servers of a bench report them."""

from contextlib import aclosing
from pathlib import Path

import pytest
from redis.asyncio import Redis

from bench.ours import Ours
from bench.runs import Run, Runner
from bench.stores import PostgresStore, RedisStore

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.long]


async def _drain(store: PostgresStore | RedisStore, *, counted: bool) -> Run:
    return await Runner(store, Ours).drain(200, 10, counted=counted)


async def test_postgres_counts_statements_only_where_it_is_asked_to(tmp_path: Path) -> None:
    async with PostgresStore(tmp_path) as store:
        plain = (await _drain(store, counted=False)).costs
        counted = (await _drain(store, counted=True)).costs

    assert "statements per job" not in plain
    assert counted["statements per job"] > 0
    assert counted["BEGIN, COMMIT per job"] > 0
    assert plain["WAL, bytes/job"] > 100
    assert plain["server CPU, us/job"] >= 0


async def test_redis_counts_commands_whether_asked_or_not(tmp_path: Path) -> None:
    async with RedisStore(tmp_path) as store:
        plain = (await _drain(store, counted=False)).costs

    assert plain["statements per job"] > 0
    assert plain["server CPU, us/job"] > 0


async def test_the_server_of_a_bench_is_durable_and_says_so(tmp_path: Path) -> None:
    async with PostgresStore(tmp_path) as store:
        settings = await store.settings()

    assert settings["fsync"] == settings["synchronous_commit"] == "on"


async def test_on_a_server_of_the_users_a_store_is_a_name_of_its_own(tmp_path: Path) -> None:
    postgres = PostgresStore(tmp_path, "postgresql://host/name?sslmode=require")
    redis = RedisStore(tmp_path, "redis://host")

    first, second = await postgres.fresh(), await postgres.fresh()

    assert first.startswith("postgresql://host/name?sslmode=require&schema=bench_")
    assert first != second
    assert (await redis.fresh()).startswith("redis://host?prefix=bench_")


async def test_of_redis_what_is_sent_is_told_from_what_scripts_do(tmp_path: Path) -> None:
    async with RedisStore(tmp_path) as store, aclosing(Redis.from_url(store.address)) as client:
        await client.set("before", 1)
        async with store.requests() as requests:
            await client.set("within", 1)
            await client.eval("redis.call('GET', 'a') redis.call('GET', 'b')", 0)
        await client.set("after", 1)

    assert requests is not None
    assert (requests.sent, requests.inside) == (2, 2)
