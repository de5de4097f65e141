"""Calls of an enqueue in our modules, counted: never how long they take.

The store answers at once, so that what is counted is the client alone: the same for every store.
A good reason may raise a ceiling, which is the count of one day and little more.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from forge_jobs import EnqueueOutcome, EnqueueRequest, HandlerRegistry, JobClient
from forge_jobs.model import ids
from forge_jobs.model.jobs import NewJob
from tests.support.backends import BACKENDS
from tests.support.calls import Calls

pytestmark = pytest.mark.anyio

JOBS = 1_000

MOST = {"one": 75, "callers": 61, "many": 24}
"""Python and C functions called from our modules for a job without any option but the queue. 73,
59 and 22 were counted, on Python 3.12 and 3.13 one less. Before middleware, injection, keys and
encryption came to be, 120, 105 and 37 were."""


@pytest.fixture
def anyio_backend() -> str:
    """Name asyncio whatever ``FORGE_TEST_LOOP`` says: what was counted is true of this loop."""
    return "asyncio"


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[JobClient]:
    """A client of a store that takes all jobs and keeps none."""
    handlers = HandlerRegistry()

    @handlers.job("noop")
    async def noop(n: int, text: str = "") -> None: ...

    async def enqueue(jobs: Sequence[NewJob], **_: object) -> list[EnqueueOutcome]:
        return [EnqueueOutcome(job.id) for job in jobs]

    # A new millisecond costs some calls more, and how many begin depends on the machine.
    monkeypatch.setattr(ids, "time", SimpleNamespace(time_ns=lambda: 0))
    async with BACKENDS["sqlite"](tmp_path, None) as storage:
        monkeypatch.setattr(storage.jobs, "enqueue", enqueue, raising=False)
        async with JobClient(storage, handlers) as opened:
            await opened.enqueue(_request(0))
            yield opened


def _request(n: int) -> EnqueueRequest:
    return EnqueueRequest("noop", {"n": n, "text": "x"}, queue="q")


async def one_after_another(client: JobClient) -> None:
    for n in range(JOBS):
        await client.enqueue(_request(n))


async def by_callers(client: JobClient) -> None:
    numbers: Iterator[int] = iter(range(JOBS))

    async def call() -> None:
        for n in numbers:
            await client.enqueue(_request(n))

    await asyncio.gather(*(call() for _ in range(100)))


async def in_one_call(client: JobClient) -> None:
    await client.enqueue_many([_request(n) for n in range(JOBS)])


WAYS: dict[str, Callable[[JobClient], Awaitable[None]]] = {
    "one": one_after_another,
    "callers": by_callers,
    "many": in_one_call,
}


@pytest.mark.parametrize("way", WAYS)
async def test_an_enqueue_without_options_makes_few_calls(client: JobClient, way: str) -> None:
    calls = Calls()
    sys.setprofile(calls)
    try:
        await WAYS[way](client)
    finally:
        sys.setprofile(None)
    assert calls.count / JOBS <= MOST[way]
