"""Injected parameters in the test kit: made and cleaned up as by a worker."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from forge_jobs import (
    Depends,
    HandlerRegistry,
    Injected,
    InvalidInput,
    JobClient,
    JobContext,
    Shared,
)
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing import Kit, run_inline

pytestmark = pytest.mark.anyio

notes: list[str] = []


@pytest.fixture(autouse=True)
def _no_notes() -> None:
    notes.clear()


async def pool() -> AsyncIterator[str]:
    notes.append("pool")
    yield "pool"
    notes.append("pool ends")


def session(pool: str = Shared(pool)) -> Iterator[str]:
    try:
        yield f"session of the {pool}"
    finally:
        notes.append("session ends")


async def lifespan() -> AsyncIterator[dict[str, Any]]:
    notes.append("begins")
    yield {"tenant": "a"}
    notes.append("ends")


handlers = HandlerRegistry(lifespan=lifespan)


@handlers.job("asks")
async def asks(
    ctx: JobContext, times: int, session: str = Depends(session), client: JobClient = Injected
) -> str:
    if times:
        await client.enqueue(asks.request(times - 1))
    return f"{session} for {ctx.state.get('tenant')}"


@handlers.job("breaks")
def breaks(session: str = Depends(session)) -> None:
    raise ValueError(session)


async def test_a_handler_runs_inline_with_everything_injected(forge_storage: Storage) -> None:
    kit = Kit(forge_storage, handlers)

    assert await kit.run_inline(asks, 1) == "session of the pool for None"

    assert notes == ["pool", "session ends", "pool ends"]
    await kit.assert_enqueued(asks, payload={"times": 0}, count=1)


async def test_what_a_handler_raises_passes_its_clean_ups() -> None:
    with pytest.raises(ValueError, match="session of the pool"):
        await run_inline(breaks)
    assert notes == ["pool", "session ends", "pool ends"]


async def test_without_a_store_a_client_must_be_given() -> None:
    with pytest.raises(InvalidInput, match=r"fake_context\(client=\.\.\.\)"):
        await run_inline(asks, 0)


async def test_a_drain_is_one_pod_with_lifespan_and_shared_values(forge_storage: Storage) -> None:
    kit = Kit(forge_storage, handlers)
    await kit.enqueue(asks.request(1))

    drained = await kit.drain()

    assert [run.result for run in drained] == ['"session of the pool for a"'] * 2
    assert notes == ["begins", "pool", "session ends", "session ends", "pool ends", "ends"]
