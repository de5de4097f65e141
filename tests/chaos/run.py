"""A run: rounds of one deed each, while jobs keep coming."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio

from forge_jobs import JobClient, open_storage
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import TERMINAL, Job
from forge_jobs.storage.protocols import Storage
from tests.chaos.crew import Crew
from tests.chaos.deeds import StoreDeeds
from tests.chaos.every_store import STORES
from tests.chaos.pace import Pace, pause
from tests.chaos.record import Record, now_ns
from tests.chaos.recorders import Told
from tests.chaos.stores import ChaosStore
from tests.support.ledger import Ledger
from tests.support.pods import Fleet, fleet
from tests.support.waiting import wait_until

POD_DEEDS = {"kill": 10, "kill_leader": 3, "stop": 3, "stop_leader": 2, "freeze": 3}

LONG_OUTAGE = 60.0
LONG_OUTAGE_FROM = 100
"""Runs of so many rounds have an outage of a minute in the middle."""

_Deed = Callable[..., Awaitable[None]]

_TO_DRAIN = 300.0


@dataclass(frozen=True)
class Plan:
    """The inputs that make a run repeatable.

    :ivar only: the deeds to choose from. Empty: all that the store knows
    """

    backend: str
    rounds: int
    jobs: int
    seed: int
    pace: Pace
    only: tuple[str, ...] = ()

    @property
    def deeds(self) -> list[str]:
        """Return a deed per round, by the seed, with one of each kind where rounds suffice."""
        store = STORES[self.backend]
        weights = {**(POD_DEEDS if store.kills_pods else {}), **store.deeds}
        if self.only:
            weights = {name: weights[name] for name in self.only}
        rng = random.Random(self.seed)
        each = rng.sample(list(weights), min(self.rounds, len(weights)))
        more = rng.choices(list(weights), list(weights.values()), k=self.rounds - len(each))
        deeds = [*each, *more]
        rng.shuffle(deeds)
        return deeds


@dataclass(frozen=True)
class Outcome:
    """Everything that is known once a run is over.

    :ivar stored: every job that was sent and is in the store
    :ivar counters: the store's counters by queue, summed
    :ivar known: process ids of the pods that the store still knows, after all were stopped
    :ivar recorded: counts of the recorder in the store
    """

    record: Record
    ledger: Ledger
    stored: dict[JobId, Job]
    counters: Mapping[str, Counter[str]]
    known: set[int]
    recorded: Told = field(default_factory=Told)


async def run(plan: Plan, folder: Path, say: Callable[[str], None]) -> Outcome:
    """Make the run. Everything that was started has ended afterwards."""
    store = STORES[plan.backend](folder)
    async with store.running(), await open_storage(store.url) as watch:
        producer_way = await open_storage(store.ways[-1])
        async with (
            producer_way,
            JobClient(producer_way, store.handlers, repeat_for=store.repeat_for) as client,
        ):
            with fleet(store.url, folder) as pods:
                return await _Run(plan, folder, say, store, watch, client).all(pods)


class _Run:
    def __init__(
        self,
        plan: Plan,
        folder: Path,
        say: Callable[[str], None],
        store: ChaosStore,
        watch: Storage,
        client: JobClient,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._say = say
        self._store = store
        self._watch = watch
        self._rng = random.Random(plan.seed)
        self._record = Record()
        self._schedule: list[str] = []
        self._ledger = Ledger(folder / "ledger")
        # Apart from the deeds' numbers: how much is sent depends on time, what is done does not.
        rng = random.Random(plan.seed + 1)
        path = folder / "ledger"
        self._recorder = store.recorder()
        self._producer = store.load(
            client, path, folder / "producer", rng, self._record, plan.pace, self._ledger
        )

    async def all(self, pods: Fleet) -> Outcome:
        await self._recorder.begin()
        async with anyio.create_task_group() as background:
            crew = Crew(
                pods,
                self._store,
                self._watch,
                self._plan.pace,
                self._record,
                self._ledger,
                self._rng,
                background,
            )
            crew.fill_up()
            async with anyio.create_task_group() as watching:
                watching.start_soon(self._keep_reading, crew)
                watching.start_soon(self._recorder.keep_looking)
                try:
                    await self._rounds(crew)
                finally:
                    (self._folder / "schedule").write_text("".join(self._schedule))
                watching.cancel_scope.cancel()
        await self._drain()
        crew.look_after()
        await self._stop_all(crew)
        # Runs that ended between the last look and the counts by which nothing was left.
        self._ledger.refresh()
        self._producer.close()
        self._record.fenced = _fenced(pods.log.read_text())
        return Outcome(
            self._record,
            self._ledger,
            await self._stored(),
            await counts_of(self._watch, self._store.queues, self._folder / "counters"),
            {pod.pod.process_id for pod in await self._watch.procs.pods()},
            await self._recorder.end(self._late),
        )

    @property
    def _late(self) -> set[str]:
        sendings = self._record.sendings
        return {job_id for job_id, sending in sendings.items() if sending.may_come_late}

    async def _rounds(self, crew: Crew) -> None:
        await self._round(crew.all_run)
        deeds = self._deeds(crew)
        for number, name in enumerate(self._plan.deeds):
            self._record.deeds[name] = self._record.deeds.get(name, 0) + 1
            began = now_ns()
            await self._round(deeds[name])
            self._schedule.append(f"{began} {name} {(now_ns() - began) / 1e9:.2f} s\n")
            if (number + 1) % 20 == 0:
                self._say(f"round {number + 1}: {len(self._ledger.ended())} jobs")
            is_half_way = number + 1 == self._plan.rounds // 2
            if self._plan.rounds >= LONG_OUTAGE_FROM and is_half_way and self._store.long_deed:
                self._say("an outage of a minute")
                await self._round(partial(self._long_outage, crew, deeds))

    async def _long_outage(self, crew: Crew, deeds: Mapping[str, _Deed]) -> None:
        # A worker that finds no store at the start waits for a minute, and gives up.
        await crew.all_run()
        await deeds[self._store.long_deed](LONG_OUTAGE)

    def _deeds(self, crew: Crew) -> dict[str, _Deed]:
        store_deeds = StoreDeeds(
            self._store, crew, self._plan.pace, self._record, self._ledger, self._rng
        )
        on_pods = {name: getattr(crew, name) for name in POD_DEEDS}
        return on_pods | {name: getattr(store_deeds, name) for name in self._store.deeds}

    async def _round(self, deed: _Deed) -> None:
        """Do a deed, and send jobs until the deed is done and there were enough jobs."""
        done = anyio.Event()

        async def do() -> None:
            await deed()
            done.set()

        sent_before = len(self._record.sendings)
        async with anyio.create_task_group() as group:
            group.start_soon(do)
            await self._producer.send_while(
                lambda: (
                    not done.is_set() or len(self._record.sendings) - sent_before < self._plan.jobs
                )
            )

    async def _keep_reading(self, crew: Crew) -> None:
        while True:
            self._ledger.refresh()
            crew.look_after()
            await pause(0.01)

    async def _drain(self) -> None:
        """Wait until nothing is left to do."""
        await wait_until(
            self._nothing_is_active, description="every job has ended", timeout=_TO_DRAIN
        )

    async def _nothing_is_active(self) -> bool:
        self._ledger.refresh()
        met = await self._producer.operate()
        counts = await self._watch.jobs.counts(list(self._store.queues))
        return not met and all(
            status in TERMINAL or not count
            for queue in counts.values()
            for status, count in queue.by_status.items()
        )

    async def _stop_all(self, crew: Crew) -> None:
        async with anyio.create_task_group() as background:
            for pod in list(crew.at_work.values()):
                crew.dismiss(pod, background)

    async def _stored(self) -> dict[JobId, Job]:
        ids = [JobId(job_id) for job_id in self._record.sendings]
        found: dict[JobId, Job] = {}
        for start in range(0, len(ids), 500):
            found.update(await self._watch.jobs.get(ids[start : start + 500]))
        return found


async def counts_of(storage: Storage, queues: Iterable[str], path: Path) -> dict[str, Counter[str]]:
    """Return the store's counters by queue.

    :param path: gets a line per queue, minute and counter, to be read when a run went wrong
    """
    now, day = await storage.cron.now(), timedelta(days=1)
    totals: dict[str, Counter[str]] = {}
    lines: list[str] = []
    for queue in queues:
        totals[queue] = Counter()
        for bucket in await storage.jobs.metrics(queue, now - day, now + day):
            totals[queue].update(bucket.counts)
            lines += (
                f"{queue} {bucket.minute:%H:%M} {name} {count}\n"
                for name, count in sorted(bucket.counts.items())
            )
    await anyio.Path(path).write_text("".join(lines))
    return totals


def _fenced(log: str) -> set[int]:
    """The processes that say in their log that they gave their jobs up."""
    said = ("no beat has reached the store", "the lease of this pod had run out")
    lines = (line for line in log.splitlines() if any(words in line for words in said))
    return {int(line.partition(" ")[0]) for line in lines}
