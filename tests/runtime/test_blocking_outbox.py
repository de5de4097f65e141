"""The blocking outbox, from a thread without an event loop, in a synchronous session."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from forge_jobs import (
    EnqueueRequest,
    HandlerRegistry,
    InvalidInput,
    Outbox,
    StorageError,
    SyncOutbox,
    open_storage,
)
from forge_jobs.model.jobs import EnqueueOutcome
from tests.support.callers import by
from tests.support.outboxes import PAIRS, Pair, pair_of, write_down

pytestmark = pytest.mark.anyio

T = TypeVar("T")
MAIL = EnqueueRequest("mail.send", {"to": "me"}, queue="mail")


@pytest.fixture(params=PAIRS, ids="-to-".join)
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """Two empty stores."""
    async with pair_of(request.param[0], request.param[1], tmp_path) as made:
        yield made


@pytest.fixture
def engine(pair: Pair) -> Generator[Engine]:
    """The database of the caller."""
    url = by("psycopg", pair.here_url.partition("?")[0])
    made = create_engine(url, poolclass=NullPool)
    yield made
    made.dispose()


def opens(pair: Pair, handlers: HandlerRegistry | None = None) -> SyncOutbox:
    async def open_outbox() -> Outbox:
        here, there = await open_storage(pair.here_url), await open_storage(pair.there_url)
        return Outbox(here, there, handlers)

    return SyncOutbox(open_outbox)


async def in_thread(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)


async def test_what_commits_is_relayed_and_what_rolls_back_never(
    pair: Pair, engine: Engine
) -> None:
    def program() -> list[EnqueueOutcome]:
        with opens(pair) as outbox:
            with Session(engine) as session:
                outbox.enqueue(session, MAIL)
                session.rollback()
                first = outbox.enqueue(session, MAIL, priority=4)
                rest = outbox.enqueue_many(session, [MAIL, MAIL])
                session.commit()
            assert outbox.state().waiting == 3
            assert [each.job_id for each in outbox.records(2)] == [first.job_id, rest[0].job_id]
            assert outbox.relay_once().relayed == 3
            assert outbox.state().waiting == 0
        return [first, *rest]

    ids = [each.job_id for each in await in_thread(program)]

    assert await pair.stored() == sorted(ids)
    assert (await pair.there.jobs.get(ids))[ids[0]].priority == 4
    assert [each for each in threading.enumerate() if each.name == "forge-jobs-client"] == []


async def test_what_was_set_aside_is_relayed_again_or_discarded(pair: Pair) -> None:
    refused, other = await write_down(pair.here, "jobs", 2, problem="no such parent")

    def program() -> None:
        with opens(pair) as outbox:
            assert outbox.retry(refused) == [refused]
            assert outbox.relay_once().relayed == 2
            assert outbox.discard(other) == []

    await in_thread(program)
    assert await pair.stored() == sorted([refused, other])


async def test_middleware_of_both_sorts_is_around(pair: Pair, engine: Engine) -> None:
    seen: list[object] = []

    def plain(request: EnqueueRequest) -> Generator[EnqueueRequest, EnqueueOutcome, None]:
        seen.append(threading.current_thread().name)
        outcome = yield request.options(priority=7)
        seen.append(outcome.job_id)

    async def slow(request: EnqueueRequest) -> AsyncGenerator[EnqueueRequest, EnqueueOutcome]:
        seen.append(threading.current_thread().name)
        await asyncio.to_thread(seen.append, "waited")
        yield request.options(tags=["late"])

    handlers = HandlerRegistry(enqueue_middleware=[plain, slow])

    def program() -> EnqueueOutcome:
        with opens(pair, handlers) as outbox, Session(engine) as session:
            outcome = outbox.enqueue(session, MAIL)
            session.commit()
            outbox.relay_once()
            return outcome

    job_id = (await in_thread(program)).job_id
    assert "forge-jobs-client" in seen
    assert seen[-1] == job_id
    job = (await pair.there.jobs.get([job_id]))[job_id]
    assert (job.priority, list(job.tags)) == (7, ["late"])


async def test_what_is_no_synchronous_transaction_or_no_outbox_is_refused(tmp_path: Path) -> None:
    async with pair_of("sqlite", "redis", tmp_path) as pair:
        elsewhere = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/other.db")

        def program() -> None:
            outbox = opens(pair)
            outbox.state()
            with pytest.raises(InvalidInput, match="connection"):
                outbox.enqueue(None, MAIL)
            with pytest.raises(InvalidInput, match="give a Connection or Session"):
                outbox.enqueue(elsewhere.connect(), MAIL)
            outbox.close()
            outbox.close()
            with pytest.raises(StorageError, match="closed"):
                outbox.state()

            async def none() -> None: ...

            with pytest.raises(InvalidInput, match=r"open_outbox: gives .*return an Outbox"):
                SyncOutbox(none).state()  # type: ignore[arg-type]

        await in_thread(program)
    with pytest.raises(InvalidInput, match="open_outbox"):
        SyncOutbox("sqlite:///shop.db")  # type: ignore[arg-type]
