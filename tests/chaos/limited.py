"""Jobs with limits by key, and the judge of the ledger."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping

import anyio
import msgspec
from msgspec import UNSET

from forge_jobs import EnqueueRequest
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import Job
from tests.chaos.pace import WORK, pause
from tests.chaos.producer import MixedLoad
from tests.chaos.record import Record
from tests.support.ledger import Ledger, Run
from tests.support.limited_handlers import LIMITS

_KEYS = [
    (name, f"key {number}")
    for name, count in (("limited.pairs", 24), ("limited.alone", 8))
    for number in range(count)
]
_OPEN = 8
"""Jobs of each key that the producer keeps in the store: more than may run."""

_FREE = 20
"""Jobs without a limit, beside these."""

_LONG = 0.02
"""The share of long jobs, to be found running by what is done to the pods."""


class LimitedLoad(MixedLoad):
    """Keeps several jobs of each key in the store."""

    _kept: Mapping[str, tuple[str, str]] = {}

    async def send_while(self, is_wanted: Callable[[], bool]) -> None:
        """Fill up every key again and again until no more are wanted."""
        while is_wanted():
            await self._fill_up()

    async def _fill_up(self) -> None:
        """Enqueue what is missing, and wait for a moment when that is nothing."""
        self._kept = {
            job_id: permit
            for job_id, permit in self._kept.items()
            if job_id not in self._ledger.ended()
        }
        counts = Counter(self._kept.values())
        missing = [key for key in _KEYS for _ in range(_OPEN - counts[key])]
        missing += [("limited.free", "")] * (_FREE - counts["limited.free", ""])
        self._rng.shuffle(missing)
        if not missing:
            await pause(0.003)
        async with anyio.create_task_group() as group:
            for start in range(0, len(missing), 20):
                group.start_soon(self._send_some, missing[start : start + 20])

    async def _send_some(self, permits: list[tuple[str, str]]) -> None:
        requests = [self._limited(*permit) for permit in permits]
        ids = [str(request.id) for request in requests]
        self._kept = {**self._kept, **dict(zip(ids, permits, strict=True))}
        await self._send(requests)
        for job_id, permit in zip(ids, permits, strict=True):
            if permit[0] in LIMITS:
                self._record.sendings[job_id].permit = permit

    def _limited(self, kind: str, key: str) -> EnqueueRequest:
        is_long = self._rng.random() < _LONG
        least, most = self._pace.linger if is_long else (0.0, 0.02)
        seconds = round(self._rng.uniform(least, most), 4)
        return EnqueueRequest(
            kind,
            {"ledger": self._path, "seconds": seconds, "key": key},
            id=new_job_id(),
            queue=WORK,
            priority=self._rng.choice([-1, 0, 0, 1]),
            max_attempts=None,
            concurrency_key=key or UNSET,
        )


def passed_in(ledger: Ledger, record: Record, *, but_of: Collection[int]) -> list[str]:
    """Return the keys of which more handlers ran at one instant than may.

    A run without a noted end counts until the process was killed. If that time is unknown, the run
    does not count.

    :param but_of: processes whose runs do not count
    """
    edges: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for run in ledger.runs:
        sending = record.sendings.get(run.job_id)
        over = over_ns(run, record)
        if sending and sending.permit and over and run.process_id not in but_of:
            edges[sending.permit] += [(run.started_ns, 1), (over, -1)]
    return [f"{key}" for key, steps in edges.items() if _most(steps) > LIMITS[key[0]]]


def over_ns(run: Run, record: Record) -> int:
    """Return when a run was over: by its notes, or the death of the process. 0: unknown."""
    return run.over_ns or record.kills.get(run.process_id, 0)


def _most(edges: list[tuple[int, int]]) -> int:
    most = current = 0
    for _, step in sorted(edges):
        current += step
        most = max(most, current)
    return most


def accepted_late(stored: Mapping[JobId, Job], record: Record) -> list[str]:
    """Return the jobs whose stored result is that of another claim than the last."""
    return [
        job_id
        for job_id, job in stored.items()
        if (sending := record.sendings.get(job_id))
        and (sending.permit or sending.line)
        and (job.result is None or msgspec.json.decode(job.result) != job.token)
    ]
