"""Calls between a stored job and the claim of a pod in the same process, counted."""

import asyncio
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import anyio
import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.config import RuntimeSettings
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.postgres import announcing
from forge_jobs.storage.sql.postgres.driver.connections import PostgresConnection
from tests.support.runtimes import QUEUE, a_runtime
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

ROUNDS = 8
MOST_TURNS = 3
"""Of the event loop: the waiter, the lane, the task of the call."""

MOST_TASKS = 1


class Path:
    """Counts, on the loop of the test, from the answer of an enqueue to the sending of a claim."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_open = False
        self.turns: list[int] = []
        self.tasks: list[int] = []
        self.asked: list[list[str]] = []
        fetch, execute = PostgresConnection.fetch, PostgresConnection.execute

        async def fetched(
            connection: PostgresConnection, text: str, arguments: Sequence[Any], once: bool
        ) -> list[Any]:
            if self._is_here() and "WITH RECURSIVE" in text:
                self._is_open = False
            else:
                self._note(text)
            rows = await fetch(connection, text, arguments, once)
            if self._is_here() and "INSERT INTO forge_jobs" in text:
                self._begin()
            return rows

        async def executed(connection: PostgresConnection, text: str) -> None:
            self._note(text)
            await execute(connection, text)

        monkeypatch.setattr(PostgresConnection, "fetch", fetched)
        monkeypatch.setattr(PostgresConnection, "execute", executed)
        self._loop.set_task_factory(self._made)

    def _is_here(self) -> bool:
        return asyncio.get_running_loop() is self._loop

    def _note(self, text: str) -> None:
        if self._is_open and self._is_here():
            self.asked[-1].append(text)

    def _begin(self) -> None:
        self._is_open = True
        self.turns.append(0)
        self.tasks.append(0)
        self.asked.append([])
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self._is_open:
            self.turns[-1] += 1
            self._loop.call_soon(self._turn)

    def _made(self, loop: Any, work: Any, **options: Any) -> Any:
        if self._is_open:
            self.tasks[-1] += 1
        return asyncio.Task(work, loop=loop, **options)


async def test_a_pod_claims_what_its_process_stores_before_others_are_told(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers, ran = HandlerRegistry(), list[int]()

    @handlers.job("kind", queue=QUEUE, keep_result=False)
    async def handle(n: int) -> None:
        ran.append(n)

    monkeypatch.setattr(announcing, "WOKEN_APART_S", 3600.0)
    # Of earlier jobs nothing is said meanwhile, and of each at once where it is not put off.
    monkeypatch.setattr(announcing, "APART_S", 0.0)
    monkeypatch.setattr(announcing, "_paces", weakref.WeakValueDictionary())
    # Calls that a pod makes by itself come rarely, because they would be counted too.
    settings = RuntimeSettings(heartbeat_interval=timedelta(seconds=3))
    runtime = a_runtime(storage, handlers, settings=settings)
    client = JobClient(storage, handlers)
    async with runtime.start() as pod, client:
        await wait_until(lambda: pod.health().queues[QUEUE].grant, description="the pod works")
        await client.enqueue(EnqueueRequest("kind", {"n": -1}))
        await wait_until(lambda: ran == [-1], description="the first has run")
        path = Path(monkeypatch)
        for number in range(ROUNDS):
            await anyio.wait_all_tasks_blocked()
            await client.enqueue(EnqueueRequest("kind", {"n": number}))
            await wait_until(lambda n=number: n in ran, description="it has run")  # type: ignore[misc]
        asyncio.get_running_loop().set_task_factory(None)
    assert min(path.turns) <= MOST_TURNS
    assert min(path.tasks) <= MOST_TASKS
    # Nothing is asked or announced before the claim, but where the pod was just about to wait.
    assert path.asked.count([]) > ROUNDS // 2
