"""Turns of the event loop from a wake-up to the claim, and from the answer to the handler."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from redis.asyncio.connection import Connection

from forge_jobs.clients.client import JobClient
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.queues import Wake
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.redis.base.scripts import script
from forge_jobs.storage.redis.driver import connections
from forge_jobs.storage.wakeups import Inbox
from tests.support.runtimes import a_runtime
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

ROUNDS = 5
"""The best round counts: other work of the loop in a round may only add turns."""


class Turns:
    """Counts the turns of the running event loop, and when in them something happened first."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._next = self._loop.call_soon(self._turn)
        self.first: dict[str, int] = {}

    def _turn(self) -> None:
        self._number += 1
        self._next = self._loop.call_soon(self._turn)

    def note(self, what: str, after: str | None = None) -> None:
        if after is None or after in self.first:
            self.first.setdefault(what, self._number)

    def between(self, one: str, other: str) -> int:
        return self.first[other] - self.first[one]

    def stop(self) -> None:
        self._next.cancel()


async def test_few_turns_of_the_loop_lie_between_a_hint_its_claim_and_the_handler(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers, ran = HandlerRegistry(), asyncio.Event()

    @handlers.job("nothing", keep_result=False)
    async def nothing() -> None:
        turns.note("handled", after="answered")
        ran.set()

    take, converse = Inbox.take, connections.converse
    claims = script("exchange").sha

    def noted_take(self: Inbox, queues: frozenset[str]) -> Wake:
        wake = take(self, queues)
        if wake.queues:
            turns.note("heard")
        return wake

    async def noted(connection: Connection, commands: Sequence[connections.Command]) -> list[Any]:
        is_claim = commands[0][1] == claims
        if is_claim:
            turns.note("sent", after="heard")
        replies = await converse(connection, commands)
        if is_claim:
            turns.note("answered", after="sent")
        return replies

    async with (
        await open_storage(url) as storage,
        await open_storage(url) as others,
        a_runtime(storage, handlers).start() as handle,
        JobClient(others, handlers) as client,
    ):
        await wait_until(
            lambda: handle.health().queues["default"].grant == 1, description="its slot is granted"
        )
        # The first job finds scripts unknown to the server, and the end asks for another job.
        turns = Turns()
        await client.enqueue(EnqueueRequest("nothing"))
        await ran.wait()
        await wait_until(
            lambda: handle.health().queues["default"].running == 0, description="it has ended"
        )
        turns.stop()
        monkeypatch.setattr(Inbox, "take", noted_take)
        monkeypatch.setattr(connections, "converse", noted)
        rounds: list[Turns] = []
        while len(rounds) < ROUNDS:
            ran.clear()
            turns = Turns()
            await client.enqueue(EnqueueRequest("nothing"))
            await ran.wait()
            await wait_until(
                lambda: handle.health().queues["default"].running == 0, description="it has ended"
            )
            turns.stop()
            # A claim that was under way before the wake-up may bring the job: then no claim
            # follows.
            if "handled" in turns.first:
                rounds.append(turns)
    # The lane wakes. The task of the call begins and sends.
    assert min(turns.between("heard", "sent") for turns in rounds) <= 2
    # The call's task wakes the lane. The lane gives the job to a worker.
    assert min(turns.between("answered", "handled") for turns in rounds) <= 2
