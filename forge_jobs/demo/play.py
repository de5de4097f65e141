"""The course of the demo."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import anyio
from msgspec import Struct

from forge_jobs.clients.client import JobClient
from forge_jobs.clients.removing import remove_jobs
from forge_jobs.clients.schedules import put_schedule, schedule
from forge_jobs.clock import SystemClock
from forge_jobs.demo import handlers as acts
from forge_jobs.demo.crew import Member
from forge_jobs.demo.ledger import (
    HANDED_OUT,
    HandedOut,
    append,
    balance,
    read_handed_out,
    read_seen,
)
from forge_jobs.demo.summary import Pickup, Summary, percentile, throughput
from forge_jobs.demo.view import Observation, View
from forge_jobs.errors import ForgeJobsError
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After
from forge_jobs.storage.protocols import Storage

QUEUES = (acts.FILES, acts.REPORTS, acts.PINGS, acts.TICKS)
SCHEDULE = "demo-tick"

_BATCH = 500
_LOOK_EVERY = 0.2
_DEADLINE = 50.0
_MINUTE = timedelta(minutes=1)


class DemoFailed(ForgeJobsError):
    """The demo cannot go on."""


class Plan(Struct, frozen=True, kw_only=True):
    """The plan of a demo.

    :param files: one job for each
    :param folder: of the ledger, and of the files that appear late
    :param pace: seconds that each file's handler rests
    """

    files: tuple[Path, ...]
    folder: Path
    pace: float


class Play:
    """A run of the demo, seen and steered from outside the workers.

    :param members: the worker processes. One of them is killed
    """

    def __init__(self, storage: Storage, plan: Plan, members: Sequence[Member], view: View) -> None:
        self._storage = storage
        self._client = JobClient(storage, acts.handlers)
        self._plan = plan
        self._members = members
        self._view = view
        self._clock = SystemClock()
        self._began = self._clock.elapsed()
        self._late = {name: plan.folder / name for name in ("late-1.txt", "late-2.txt")}
        self._late_ids: list[JobId] = []
        self._pings: dict[str, int] = {}
        self._killed: Member | None = None
        self._killed_at = 0.0
        self._takeover: float | None = None
        self._claims_of_killed = 0
        self._counted_before: Counter[str] = Counter()
        self._settling = False

    async def run(self, stopped: anyio.Event) -> Summary:
        """Play until everything has settled, the time is up, or ``stopped`` is set."""
        try:
            await clear(self._storage)
            self._counted_before = await self._counters()
            await self._hand_out()
            complete = await self._watch(stopped)
            return await self._sum_up(complete)
        finally:
            await self._client.aclose()

    # -- handing out ---------------------------------------------------------------------------

    async def _hand_out(self) -> None:
        missing = [*self._late.values(), self._plan.folder / "never.txt"]
        ids = await self._enqueue_files(missing)
        self._late_ids = ids[: len(self._late)]
        parts = [await self._report_after(ids)]
        for start in range(0, len(self._plan.files), _BATCH):
            ids = await self._enqueue_files(self._plan.files[start : start + _BATCH])
            parts.append(await self._report_after(ids))
        await self._report_after(parts)
        tick = schedule(SCHEDULE, acts.tick.request(str(self._plan.folder)), "@every 1s")
        await put_schedule(self._storage.cron, tick)
        self._view.say(
            f"{len(self._plan.files)} files handed out, and 3 that do not exist; reports wait "
            "for them"
        )

    async def _enqueue_files(self, paths: Sequence[Path]) -> list[JobId]:
        ledger, pace = str(self._plan.folder), self._plan.pace
        requests = [acts.count_file.request(str(path), ledger, pace) for path in paths]
        return await self._enqueue(requests, paths)

    async def _report_after(self, parents: Sequence[JobId]) -> JobId:
        """Enqueue a report that waits for ``parents``, and goes on when one of them is dead."""
        request = acts.report.request(str(self._plan.folder), f"{parents[-1]}.txt")
        after = [After(job_id, "continue") for job_id in parents]
        [job_id] = await self._enqueue([request.options(after=after)])
        return job_id

    async def _enqueue(
        self, requests: Sequence[EnqueueRequest], paths: Sequence[Path] = ()
    ) -> list[JobId]:
        """Enqueue, and enter into the ledger what was accepted."""
        outcomes = await self._client.enqueue_many(requests)
        ids = [outcome.job_id for outcome in outcomes]
        names = [str(path) for path in paths] or [""] * len(ids)
        entries = [
            HandedOut(job_id, request.kind, name)
            for job_id, request, name in zip(ids, requests, names, strict=True)
        ]
        append(self._plan.folder / HANDED_OUT, entries)
        return ids

    # -- watching ------------------------------------------------------------------------------

    async def _watch(self, stopped: anyio.Event) -> bool:
        """True when all has settled. False when the time was up or the demo was stopped."""
        while self._elapsed() < _DEADLINE and not stopped.is_set():
            observation = await self._observe()
            self._view.show(observation)
            if self._settling and not observation.active():
                return True
            await self._steer(observation)
            with anyio.move_on_after(_LOOK_EVERY):
                await stopped.wait()
        return False

    async def _observe(self) -> Observation:
        counted = await self._counters()
        counted.subtract(self._counted_before)
        counts = await self._storage.jobs.counts(QUEUES)
        return Observation(
            seconds=self._elapsed(),
            counts={queue: counts[queue].by_status for queue in QUEUES if queue in counts},
            pods=tuple(await self._storage.procs.pods()),
            failures=counted["failed"],
            revived=counted["crashed"],
        )

    async def _steer(self, observation: Observation) -> None:
        self._check_crew()
        if self._killed is None and observation.done(acts.FILES) * 2 >= len(self._plan.files):
            await self._kill_one()
        if self._killed and self._takeover is None:
            await self._look_for_takeover(observation)
        if self._late_ids:
            await self._let_files_appear()
        if observation.active(acts.FILES, acts.REPORTS):
            if observation.is_served(acts.PINGS):
                await self._ping()
        elif not self._settling:
            self._settling = True
            await self._storage.cron.delete_schedule(SCHEDULE)

    def _check_crew(self) -> None:
        for member in self._members:
            if member is not self._killed and not member.is_running:
                raise DemoFailed(f"worker {member.name} ended by itself: {member.last_words()}")

    async def _kill_one(self) -> None:
        """Kill the leading worker, at a moment when it holds jobs."""
        victim = await self._leading_member()
        victim.freeze()
        held = 0
        for pod in await self._storage.procs.pods():
            if pod.pod.process_id == victim.process_id:
                held = pod.in_progress.get(acts.FILES, 0)
        if not held:
            victim.thaw()
            return
        victim.kill()
        self._killed, self._killed_at = victim, self._elapsed()
        self._claims_of_killed = held
        self._view.say(
            f"worker {victim.name}, the leader, killed with SIGKILL; it held {held} jobs"
        )

    async def _leading_member(self) -> Member:
        leader = await self._storage.cron.leader()
        for pod in await self._storage.procs.pods():
            for member in self._members:
                is_leader = leader is not None and leader.host_id == pod.pod.host_id
                if is_leader and member.process_id == pod.pod.process_id:
                    return member
        return self._members[0]

    async def _look_for_takeover(self, observation: Observation) -> None:
        if observation.revived >= self._claims_of_killed:
            self._takeover = self._elapsed() - self._killed_at
            self._view.say(
                f"its {observation.revived} jobs are taken over, {self._takeover:.1f} s later"
            )

    async def _let_files_appear(self) -> None:
        jobs = await self._storage.jobs.get(self._late_ids)
        if all(job.errors for job in jobs.values()):
            for path in self._late.values():
                path.write_text("Better late than never.\n")
            self._late_ids = []
            self._view.say("two of the missing files have appeared; their retries will find them")

    async def _ping(self) -> None:
        sent_us = self._clock.time_us()
        [job_id] = await self._enqueue([acts.ping.request(str(self._plan.folder))])
        self._pings[job_id] = sent_us

    # -- the end -------------------------------------------------------------------------------

    async def _sum_up(self, complete: bool) -> Summary:
        observation = await self._observe()
        seen = read_seen(self._plan.folder)
        books = balance(read_handed_out(self._plan.folder), seen)
        waits = [
            round((entry.at_us - self._pings[entry.job_id]) / 1000, 1)
            for entry in seen
            if entry.job_id in self._pings and entry.attempt == 1
        ]
        totals: Counter[str] = Counter()
        for by_status in observation.counts.values():
            totals.update(by_status)
        return Summary(
            jobs=totals.total(),
            done=totals["done"],
            dead=totals["dead"],
            lost=books.lost,
            revived=observation.revived,
            throughput=throughput(seen, books),
            pickup_ms=Pickup(percentile(waits, 0.5), percentile(waits, 0.95)),
            duplicates=books.duplicates,
            retries=observation.failures - totals["dead"],
            takeover_seconds=self._takeover and round(self._takeover, 1),
            ticks=sum(entry.kind == acts.tick.kind for entry in seen),
            files=books.files,
            lines=books.lines,
            words=books.words,
            seconds=round(self._elapsed(), 1),
            complete=complete,
        )

    async def _counters(self) -> Counter[str]:
        now = await self._storage.cron.now()
        buckets = await self._storage.jobs.metrics(acts.FILES, now - 2 * _MINUTE, now + _MINUTE)
        totals: Counter[str] = Counter()
        for bucket in buckets:
            totals.update(bucket.counts)
        return totals

    def _elapsed(self) -> float:
        return self._clock.elapsed() - self._began


async def clear(storage: Storage, queues: Sequence[str] = QUEUES) -> None:
    """Remove the demo's schedule and the jobs of queues from a store."""
    if await storage.cron.get_schedule(SCHEDULE):
        await storage.cron.delete_schedule(SCHEDULE)
    await remove_jobs(storage, queues)
