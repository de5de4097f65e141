"""Factories take arguments of the job by their names."""

from collections.abc import Iterator

import pytest

from forge_jobs import Depends, HandlerRegistry
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


@pytest.mark.parametrize("is_async", [True, False], ids=["async def", "def"])
async def test_a_factory_gets_arguments_of_the_job_by_their_names(
    storage: Storage, is_async: bool
) -> None:
    handlers = HandlerRegistry()
    cleaned: list[str] = []

    def tenant_of(tenant: str, shard: int = 0) -> Iterator[str]:
        yield f"{tenant}/{shard}"
        cleaned.append(tenant)

    async def session(tenant: str = Depends(tenant_of), region: str = "none") -> str:
        return f"{tenant} in {region}"

    @handlers.job("in.task")
    async def in_task(tenant: str, shard: int = 7, session: str = Depends(session)) -> str:
        return f"{session} for {tenant}"

    @handlers.job("in.thread")
    def in_thread(tenant: str, shard: int = 7, session: str = Depends(session)) -> str:
        return f"{session} for {tenant}"

    handler = in_task if is_async else in_thread
    async with a_runtime(storage, handlers).start() as handle:
        outcomes = [
            await handle.enqueue(handler.request("north")),
            await handle.enqueue(handler.request("south", shard=3)),
        ]
        said = [await handle.result(outcome, timeout=60) for outcome in outcomes]
    # A job that brings no shard: factory and handler get the one default of the handler.
    assert said == ["north/7 in none for north", "south/3 in none for south"]
    assert sorted(cleaned) == ["north", "south"]
