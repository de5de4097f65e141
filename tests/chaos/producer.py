"""Jobs that keep coming, and what became of each enqueue."""

import os
import random
from collections.abc import Collection, Container, Sequence
from pathlib import Path

import anyio

from forge_jobs import EnqueueRequest, JobClient
from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import new_job_id
from tests.chaos.pace import LINGER, WORK
from tests.chaos.record import Record, Sending, now_ns

_GIVES_UP = 0.3
"""The share of failed enqueues that are not repeated: their outcome stays unknown."""

_AT_ONCE = 3


class Producer:
    """Enqueues under ids of its own, and notes ``sent`` before and ``acked`` after.

    :param notes: file for the same, to be read when a run went wrong
    """

    def __init__(
        self, client: JobClient, ledger: Path, notes: Path, rng: random.Random, record: Record
    ) -> None:
        self._client = client
        self._ledger = str(ledger)
        self._notes = os.open(notes, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
        self._rng = rng
        self._record = record
        self._open: set[str] = set()
        self._lingering: set[str] = set()

    def close(self) -> None:
        """Close the file."""
        os.close(self._notes)

    def open_but(self, ended: Container[str]) -> Collection[str]:
        """Jobs that the store took and that have not ended."""
        self._open = {job_id for job_id in self._open if job_id not in ended}
        return self._open

    def lingering_but(self, ended: Container[str]) -> Collection[str]:
        """Long jobs that have not ended."""
        self._lingering = {job_id for job_id in self._lingering if job_id not in ended}
        return self._lingering

    async def send(self, count: int) -> None:
        """Enqueue ``count`` short jobs in batches of all sizes, a few at once."""
        sizes: list[int] = []
        while (left := count - sum(sizes)) > 0:
            sizes.append(min(left, self._rng.choice([1, 2, 5, 20, 50])))
        width = -(-len(sizes) // _AT_ONCE)
        async with anyio.create_task_group() as group:
            for start in range(0, len(sizes), width):
                group.start_soon(self._send_each, sizes[start : start + width])

    async def linger(self, count: int, seconds: tuple[float, float]) -> None:
        """Enqueue ``count`` long jobs."""
        for _ in range(count):
            [job_id] = await self._send([self._request("ledger.linger", LINGER, *seconds)])
            self._lingering.add(job_id)

    async def _send_each(self, sizes: Sequence[int]) -> None:
        for size in sizes:
            requests = [self._request("ledger.work", WORK, 0.0, 0.02) for _ in range(size)]
            await self._send(requests)

    def _request(self, kind: str, queue: str, least: float, most: float) -> EnqueueRequest:
        payload = {"ledger": self._ledger, "seconds": round(self._rng.uniform(least, most), 4)}
        return EnqueueRequest(
            kind,
            payload,
            id=new_job_id(),
            queue=queue,
            priority=self._rng.choice([-1, 0, 0, 1]),
            max_attempts=None,
        )

    async def _send(self, requests: Sequence[EnqueueRequest]) -> list[str]:
        ids = [str(request.id) for request in requests]
        self._note("sent", ids)
        sent = now_ns()
        for job_id in ids:
            self._record.sendings[job_id] = Sending(sent)
        while True:
            try:
                outcomes = await self._client.enqueue_many(requests)
            except Unavailable:
                if self._rng.random() < _GIVES_UP:
                    self._note("unknown", ids)
                    return ids
                continue
            break
        acked = now_ns()
        assert [outcome.job_id for outcome in outcomes] == ids
        for job_id in ids:
            self._record.sendings[job_id].acked_ns = acked
        self._open.update(ids)
        self._note("acked", ids)
        return ids

    def _note(self, event: str, ids: Sequence[str]) -> None:
        text = "".join(f"{event} {job_id} {now_ns()}\n" for job_id in ids)
        os.write(self._notes, text.encode())
