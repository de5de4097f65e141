"""Jobs that keep coming, and what became of each enqueue."""

import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

from forge_jobs import EnqueueRequest, JobClient
from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import new_job_id
from tests.chaos.pace import LINGER, LINGERING, PODS, WORK, Pace, pause
from tests.chaos.record import Record, Sending, now_ns
from tests.support.ledger import Ledger

_GIVES_UP = 0.3
"""The share of failed enqueues that are not repeated: their outcome stays unknown."""

_AT_ONCE = 3
_BACKLOG = 100
_BATCH = 25


class Producer(ABC):
    """Enqueues jobs, and notes what became of each.

    :param path: the ledger's, for the handlers
    :param notes: file for what was sent and acknowledged, to be read when a run went wrong
    :param ledger: tells which jobs have ended
    """

    def __init__(
        self,
        client: JobClient,
        path: Path,
        notes: Path,
        rng: random.Random,
        record: Record,
        pace: Pace,
        ledger: Ledger,
    ) -> None:
        self._client = client
        self._path = str(path)
        self._notes = os.open(notes, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
        self._rng = rng
        self._record = record
        self._pace = pace
        self._ledger = ledger

    @abstractmethod
    async def send_while(self, is_wanted: Callable[[], bool]) -> None:
        """Keep jobs waiting until no more are wanted."""

    async def operate(self) -> int:
        """Do what operators do, and return how many jobs were met. By default, nothing."""
        return 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._notes)

    def _note(self, event: str, ids: Sequence[str]) -> None:
        text = "".join(f"{event} {job_id} {now_ns()}\n" for job_id in ids)
        os.write(self._notes, text.encode())


class MixedLoad(Producer):
    """Enqueues short jobs and long ones, with ids: ``sent`` is noted before, ``acked`` after."""

    _open: frozenset[str] = frozenset()
    _lingering: frozenset[str] = frozenset()

    async def send_while(self, is_wanted: Callable[[], bool]) -> None:
        while is_wanted():
            self._open -= self._ledger.ended()
            if len(self._open) < _BACKLOG:
                self._lingering -= self._ledger.ended()
                await self._linger(LINGERING * PODS - len(self._lingering))
                await self._work(_BATCH)
            else:
                await pause(0.003)

    async def _work(self, count: int) -> None:
        """Enqueue ``count`` short jobs in batches of all sizes, a few at once."""
        sizes: list[int] = []
        while (left := count - sum(sizes)) > 0:
            sizes.append(min(left, self._rng.choice([1, 2, 5, 20, 50])))
        width = -(-len(sizes) // _AT_ONCE)
        async with anyio.create_task_group() as group:
            for start in range(0, len(sizes), width):
                group.start_soon(self._send_each, sizes[start : start + width])

    async def _linger(self, count: int) -> None:
        """Enqueue ``count`` long jobs."""
        for _ in range(count):
            self._lingering |= await self._send(
                [self._request("ledger.linger", LINGER, *self._pace.linger)]
            )

    async def _send_each(self, sizes: Sequence[int]) -> None:
        for size in sizes:
            requests = [self._request("ledger.work", WORK, 0.0, 0.02) for _ in range(size)]
            await self._send(requests)

    def _request(self, kind: str, queue: str, least: float, most: float) -> EnqueueRequest:
        payload = {"ledger": self._path, "seconds": round(self._rng.uniform(least, most), 4)}
        return EnqueueRequest(
            kind,
            payload,
            id=new_job_id(),
            queue=queue,
            priority=self._rng.choice([-1, 0, 0, 1]),
            max_attempts=None,
        )

    async def _send(
        self, requests: Sequence[EnqueueRequest], *, gives_up: float = _GIVES_UP
    ) -> frozenset[str]:
        ids = [str(request.id) for request in requests]
        self._note("sent", ids)
        sent = now_ns()
        for job_id in ids:
            self._record.sendings.setdefault(job_id, Sending(sent))
        while True:
            try:
                outcomes = await self._client.enqueue_many(requests)
            except Unavailable:
                if self._rng.random() < gives_up:
                    self._note("unknown", ids)
                    return frozenset(ids)
                continue
            break
        acked = now_ns()
        assert [outcome.job_id for outcome in outcomes] == ids
        for job_id in ids:
            self._record.sendings[job_id].acked_ns = acked
        self._open |= frozenset(ids)
        self._note("acked", ids)
        return frozenset(ids)
