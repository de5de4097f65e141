"""Jobs that commit and roll back with the caller's own transaction."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    create_async_engine,
)
from sqlalchemy.orm import Session

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.storage.opening import open_storage

pytestmark = pytest.mark.anyio

KIND = EnqueueRequest("mail.send", {"to": "me"})


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[JobClient]:
    url = f"sqlite:///{tmp_path}/app.db"
    async with await open_storage(url) as storage, JobClient(storage) as opened:
        yield opened


@pytest.fixture
async def engine(tmp_path: Path, client: JobClient) -> AsyncIterator[AsyncEngine]:
    opened = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db")
    async with opened.begin() as connection:
        await connection.execute(text("create table users (name text)"))
    yield opened
    await opened.dispose()


@pytest.fixture
async def sync_engine(tmp_path: Path, engine: AsyncEngine) -> AsyncIterator[Engine]:
    opened = create_engine(f"sqlite:///{tmp_path}/app.db")
    yield opened
    opened.dispose()


class TestAsync:
    @pytest.mark.parametrize("how", ["connection", "session"])
    async def test_a_job_is_there_after_the_commit_and_not_after_a_rollback(
        self, client: JobClient, engine: AsyncEngine, how: str
    ) -> None:
        async with AsyncSession(engine) if how == "session" else engine.connect() as opened:
            transaction: AsyncConnection | AsyncSession = opened
            await transaction.execute(text("insert into users values ('a')"))
            lost = await client.enqueue(KIND, connection=transaction)
            await transaction.rollback()
            kept = await client.enqueue(KIND, connection=transaction, priority=4)
            await transaction.commit()

        assert await client.get(lost.job_id) is None
        job = await client.get(kept.job_id)
        assert job is not None
        assert job.priority == 4

    async def test_a_list_of_jobs_joins_the_transaction_too(
        self, client: JobClient, engine: AsyncEngine
    ) -> None:
        async with engine.begin() as transaction:
            outcomes = await client.enqueue_many([KIND] * 3, connection=transaction)

        assert len(await client.storage.jobs.get([o.job_id for o in outcomes])) == 3


def open_connection(engine: Engine) -> AbstractContextManager[Connection]:
    return engine.connect()


def open_session(engine: Engine) -> AbstractContextManager[Session]:
    return Session(engine)


class TestSync:
    @pytest.mark.parametrize("open_transaction", [open_connection, open_session])
    async def test_the_blocking_twin_joins_a_transaction_in_the_callers_thread(
        self,
        client: JobClient,
        sync_engine: Engine,
        open_transaction: Callable[[Engine], AbstractContextManager[Connection | Session]],
    ) -> None:
        with open_transaction(sync_engine) as transaction:
            transaction.execute(text("insert into users values ('a')"))
            lost = client.sync.enqueue(KIND, connection=transaction)
            transaction.rollback()
            kept = client.sync.enqueue_many([KIND, KIND], connection=transaction)
            transaction.commit()

        assert await client.get(lost.job_id) is None
        assert len(await client.storage.jobs.get([o.job_id for o in kept])) == 2

    async def test_options_and_checks_are_those_of_any_enqueue(
        self, client: JobClient, sync_engine: Engine
    ) -> None:
        with sync_engine.begin() as transaction:
            with pytest.raises(InvalidInput, match="priority"):
                client.sync.enqueue(KIND, connection=transaction, priority=1000)
            outcome = client.sync.enqueue(KIND, connection=transaction, unique_key="k")
            again = client.sync.enqueue(KIND, connection=transaction, unique_key="k")

        assert again.deduplicated
        assert again.job_id == outcome.job_id

    async def test_an_asynchronous_connection_is_refused_there(
        self, client: JobClient, engine: AsyncEngine
    ) -> None:
        async with engine.connect() as transaction:
            with pytest.raises(InvalidInput, match="connection"):
                client.sync.enqueue(KIND, connection=transaction)
            with pytest.raises(InvalidInput, match="connection"):
                client.sync.enqueue(KIND, connection=object())
