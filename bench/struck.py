"""The cost of jobs that a strike holds for a claim: beside 100,000 of them, over beside none.

Two queues of one store are exchanged with by turns, so a busy machine slows both.
"""

from bench.limit_keys import BATCHES, BEHIND, CLEAR, Exchanges
from bench.suite import Bench
from forge_jobs import open_storage
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import NewJob
from forge_jobs.model.strikes import Strike, StrikeRule, struck_by

HELD, TURNS = 100_000, 200
TARGET = "<= 1.2"
_RULE = StrikeRule(kind="k", reason="measured")
_FATE = struck_by(Strike(name="bench", rule=_RULE, by="bench", at=None))
_AT_ONCE = 500


async def struck_jobs(bench: Bench) -> None:
    """Exchanges of a queue in which a strike holds jobs, over those of a queue without."""
    held, turns = bench.scaled(HELD), bench.scaled(TURNS)
    ratios, slowest = dict[int, list[float]](), dict[int, float]()
    for _ in range(bench.runs):
        url = await bench.store.fresh()
        async with await open_storage(url) as storage:
            pod = Exchanges(storage)
            await pod.register()
            for first in range(0, held, _AT_ONCE):
                # Before and after the free jobs in the order of the queue.
                priority = 5 if first % (2 * _AT_ONCE) else -5
                await storage.jobs.enqueue(
                    [
                        NewJob(
                            id=new_job_id(),
                            queue=BEHIND,
                            kind="k",
                            payload="{}",
                            priority=priority,
                            struck=_FATE,
                        )
                        for _ in range(min(_AT_ONCE, held - first))
                    ]
                )
            for queue in (CLEAR, BEHIND):
                await pod.fill(queue, [""] * (sum(BATCHES) * (turns + 2)))
            await bench.store.filled(url)
            for batch in BATCHES:
                ratio, slowest[batch] = await pod.ratio(CLEAR, BEHIND, batch, turns)
                ratios.setdefault(batch, []).append(ratio)
    for batch, runs in ratios.items():
        costs = {"an exchange, ms": slowest[batch]}
        name = f"exchange beside {held:,} held struck jobs, {batch} at once, over without"
        bench.add(name, "x", runs, target=TARGET, costs=costs)
