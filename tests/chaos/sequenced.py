"""Jobs of sequences, failing heads and operators among them, and the judge of the ledger."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress

import anyio
from msgspec import UNSET

from forge_jobs import EnqueueRequest, JobFilter
from forge_jobs.clients.bulk import BulkTotals
from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import JobStatus
from tests.chaos.limited import LimitedLoad, over_ns
from tests.chaos.pace import WORK
from tests.chaos.record import Record, Sending, now_ns
from tests.support.ledger import Ledger

_LINES = [
    (f"lined.{policy}", f"tenant {number % 2}", f"{policy} {number}")
    for policy in ("wait", "skip", "stop")
    for number in range(6)
]
"""The kind, the key of the limit, and the key of the sequence."""

_OPEN = 5
"""Jobs of each sequence that the producer keeps in the store."""

_AT_ONCE = 3
"""Calls at once. Jobs of one sequence are in one of them."""

_FAILS = {"once": 0.06, "for good": 0.03}
_CANCELLED = 0.03
"""The shares of jobs that fail first, and of those that an operator cancels."""

_OPERATES_EVERY = 0.3
"""Seconds between two looks of the operator at what has ended without success."""


class SequencedLoad(LimitedLoad):
    """Keeps jobs of sequences in the store, beside those with limits.

    A call is repeated until it is answered. So the order of ids is that of the enqueues.
    """

    _lined: Mapping[str, str] = {}
    _operated_ns = 0

    async def _fill_up(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(super()._fill_up)
            group.start_soon(self._fill_lines)
        await self._operate_in_time()

    async def _fill_lines(self) -> None:
        ended = self._ledger.ended()
        self._lined = {each: line for each, line in self._lined.items() if each not in ended}
        kept = list(self._lined.values())
        missing = [line for line in _LINES for _ in range(_OPEN - kept.count(line[2]))]
        self._rng.shuffle(missing)
        async with anyio.create_task_group() as group:
            for part in range(_AT_ONCE):
                some = [line for line in missing if _LINES.index(line) % _AT_ONCE == part]
                if some:
                    group.start_soon(self._send_lines, some)

    async def _send_lines(self, lines: list[tuple[str, str, str]]) -> None:
        requests = [self._in_line(*line) for line in lines]
        ids = [str(request.id) for request in requests]
        self._lined = {
            **self._lined,
            **{each: line for each, (_, _, line) in zip(ids, lines, strict=True)},
        }
        await self._send(requests, gives_up=0.0)
        cancelled = [job_id for job_id in ids if self._rng.random() < _CANCELLED]
        for job_id in cancelled:
            self._record.sendings[job_id].may_come_late = True
        if cancelled:
            await self._try(lambda: self._client.cancel(cancelled))

    def _in_line(self, kind: str, key: str, line: str) -> EnqueueRequest:
        request = self._limited(kind, key)
        assert isinstance(request.payload, dict)
        draw = self._rng.random()
        fails = ""
        for name, share in _FAILS.items():
            if 0 <= draw < share:
                fails = name
            draw -= share
        job_id = new_job_id()
        self._record.sendings[job_id] = Sending(
            now_ns(),
            permit=(kind, key) if kind == "lined.wait" else None,
            line=line,
            may_come_late=kind == "lined.skip" and fails == "for good",
        )
        return EnqueueRequest(
            kind,
            {**request.payload, "line": line, "fails": fails},
            id=job_id,
            queue=WORK,
            priority=request.priority,
            max_attempts=None,
            concurrency_key=UNSET,
        )

    async def _operate_in_time(self) -> None:
        if now_ns() - self._operated_ns > _OPERATES_EVERY * 1e9:
            await self.operate()

    async def operate(self) -> int:
        """Let all jobs that ended without success run again, and return how many were met."""
        self._operated_ns = now_ns()
        cancelled = JobFilter(queues=(WORK,), statuses=(JobStatus.CANCELLED,))
        ended = JobFilter(queues=(WORK,), statuses=(JobStatus.CANCELLED, JobStatus.DEAD))
        met = 0
        if self._rng.random() < 0.5:
            met += await self._try(lambda: self._client.restore(cancelled))
        return met + await self._try(lambda: self._client.requeue(ended))

    async def _try(self, verb: Callable[[], Awaitable[BulkTotals]]) -> int:
        with suppress(Unavailable):
            totals = await verb()
            return totals.changed + totals.requested + sum(totals.refused.values())
        return 1


def crossed_in(ledger: Ledger, record: Record, *, but_of: Collection[int]) -> list[str]:
    """Return the jobs that ran beside or before an earlier one of their sequence.

    :param but_of: processes whose runs do not count
    """
    found = []
    by_job = ledger.by_job()
    for ids in _lines(record).values():
        spans: dict[str, list[tuple[int, int]]] = {
            job_id: [
                (run.started_ns, over)
                for run in by_job[job_id]
                if run.process_id not in but_of and (over := over_ns(run, record))
            ]
            for job_id in ids
        }
        found += [f"{job_id} beside {other}" for other, job_id in _beside(spans)]
        over = 0
        before = ""
        for job_id, runs in spans.items():
            if not runs:
                continue
            if min(runs)[0] < over:
                found.append(f"{job_id} before {before}")
            end = max(over for _, over in runs)
            if not record.sendings[job_id].may_come_late and end > over:
                over, before = end, job_id
    return found


def _lines(record: Record) -> Mapping[str, list[str]]:
    """Return the jobs of each sequence in the order of their enqueues."""
    lines: defaultdict[str, list[str]] = defaultdict(list)
    for job_id in sorted(record.sendings):
        if line := record.sendings[job_id].line:
            lines[line].append(job_id)
    return lines


def _beside(spans: Mapping[str, list[tuple[int, int]]]) -> list[tuple[str, str]]:
    """Return pairs of jobs whose runs overlap."""
    found = []
    over, last = 0, ""
    runs = sorted((*span, job_id) for job_id, several in spans.items() for span in several)
    for start, end, job_id in runs:
        if start < over and job_id != last:
            found.append((last, job_id))
        if end > over:
            over, last = end, job_id
    return found
