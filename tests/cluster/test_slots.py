"""Slots of real pods on one store: exact at every commit, and in what really ran."""

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.protocols import Storage
from tests.support.ledger import Ledger, Run
from tests.support.pods import Fleet, quick_settings
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

SLOTS = 6


_NOW_MS = "(julianday('now') - 2440587.5) * 86400000.0"
_CLOCKS_APART_MS = 2.0
"""SQLite's clock shows milliseconds."""


class GrantLog:
    """Every write of a grant, and the sum of all after it, recorded by triggers in the store."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute("CREATE TABLE grant_log (at REAL, host_id TEXT, granted INT, total INT)")
        connection.execute("CREATE TABLE pod_log (host_id TEXT, process_id INT)")
        connection.execute(
            "CREATE TRIGGER pods_on_insert AFTER INSERT ON forge_pods BEGIN"
            " INSERT INTO pod_log VALUES (NEW.host_id, NEW.process_id); END"
        )
        for event, row, granted in (
            ("INSERT", "NEW", "NEW.granted"),
            ("UPDATE", "NEW", "NEW.granted"),
            ("DELETE", "OLD", "0"),
        ):
            connection.execute(
                f"CREATE TRIGGER grants_on_{event} AFTER {event} ON forge_slots BEGIN"
                f" INSERT INTO grant_log SELECT {_NOW_MS}, {row}.host_id, {granted},"
                f" coalesce(sum(granted), 0) FROM forge_slots WHERE queue = {row}.queue; END"
            )
        connection.commit()

    def sums(self) -> list[int]:
        """Every sum so far, in order."""
        rows = self._connection.execute("SELECT total FROM grant_log ORDER BY rowid")
        return [total for (total,) in rows]

    def exceeded(self, ran: Ledger) -> list[Run]:
        """Runs that began although their pod had as many open as it was granted at that time.

        Runs that never said that they ended, of killed and frozen processes, are not counted.
        """
        ended = [run for run in ran.runs if run.ended_ns is not None]
        return [run for run in ended if _open_beside(run, ended) > self._granted(run)]

    def _granted(self, run: Run) -> int:
        """The pod's grant when the run began; the larger one if it changed just then."""
        rows = self._connection.execute(
            "SELECT at, granted FROM grant_log WHERE host_id IN"
            " (SELECT host_id FROM pod_log WHERE process_id = ?) ORDER BY rowid",
            (run.process_id,),
        ).fetchall()
        before = [granted for at, granted in rows if at < run.wall_ms - _CLOCKS_APART_MS][-1:]
        just = [granted for at, granted in rows if abs(at - run.wall_ms) <= _CLOCKS_APART_MS]
        return max([*before, *just], default=0)


def _open_beside(run: Run, runs: list[Run]) -> int:
    """How many of its process's runs were open when it began, itself included."""
    return sum(
        other.process_id == run.process_id
        and other.started_ns <= run.started_ns
        and (other.ended_ns or 0) > run.started_ns
        for other in runs
    )


@contextmanager
def grant_log(url: str) -> Iterator[GrantLog]:
    """Record from now on."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10)) as connection:
        yield GrantLog(connection)


async def grants(storage: Storage) -> list[int]:
    """The grants of the queue, largest first."""
    for allocation in await storage.procs.allocations():
        if allocation.queue == "work":
            return sorted((slots.grant for slots in allocation.pods.values()), reverse=True)
    return []


async def grants_are(storage: Storage, expected: list[int]) -> bool:
    """Whether the grants stand so."""
    return await grants(storage) == expected


async def test_slots_are_split_and_rebalanced_and_never_exceed_the_maximum(
    url: str, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    request = EnqueueRequest("ledger.work", {"ledger": str(ledger), "seconds": 0.1}, queue="work")
    await client.enqueue_many([request] * 600)
    with grant_log(url) as log:
        first = pods.start({"work": SLOTS})
        await wait_until(lambda: grants_are(storage, [6]), description="one pod has all slots")
        second = pods.start({"work": SLOTS})
        await wait_until(lambda: grants_are(storage, [3, 3]), description="two pods share")
        third = pods.start({"work": SLOTS})
        await wait_until(lambda: grants_are(storage, [2, 2, 2]), description="three pods share")
        third.kill()
        await wait_until(lambda: grants_are(storage, [3, 3]), description="a killed pod's go back")
        await second.freeze()
        await wait_until(lambda: grants_are(storage, [6]), description="a frozen pod's too")
        second.send(signal.SIGCONT)
        await wait_until(lambda: grants_are(storage, [3, 3]), description="it gets its share again")
        first.send(signal.SIGTERM)
        assert await first.wait() == 0
        await wait_until(lambda: grants_are(storage, [6]), description="a stopped pod's at once")
        sums = log.sums()
        ran = Ledger.read(ledger)
        exceeded = log.exceeded(ran)

    assert max(sums) == SLOTS
    assert exceeded == []
    assert ran.most_at_once() <= SLOTS
    assert ran.most_at_once(third.process_id) <= 2


async def test_a_lowered_maximum_is_reached_without_growing_and_interrupts_nobody(
    url: str, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    request = EnqueueRequest("ledger.work", {"ledger": str(ledger), "seconds": 0.3}, queue="work")
    await client.enqueue_many([request] * 200)
    pods.start({"work": SLOTS})
    pods.start({"work": SLOTS})
    await wait_until(lambda: grants_are(storage, [3, 3]), description="two pods share")
    await wait_until(
        lambda: Ledger.read(ledger).most_at_once() == SLOTS, description="all slots are used"
    )

    with grant_log(url) as log:
        await storage.config.set_queue("work", QueueChange(max_workers=2))
        await wait_until(lambda: grants_are(storage, [1, 1]), description="one slot each is left")
        sums = log.sums()

    assert sums == sorted(sums, reverse=True)
    job = await storage.jobs.counts(["work"])
    assert job["work"].by_status.get("dead", 0) == 0
    assert {run.attempt for run in Ledger.read(ledger).runs} == {1}


async def test_another_pod_leads_soon_after_the_coordinator_is_killed(
    storage: Storage, pods: Fleet
) -> None:
    pods.start({"work": 1})
    pods.start({"work": 1})
    led = await wait_until(lambda: _led(storage), description="somebody leads")
    pids = {pod.pod.host_id: pod.pod.process_id for pod in await storage.procs.pods()}
    [leader] = [pod for pod in pods.pods if pod.process_id == pids[led.host_id]]

    leader.kill()

    successor = await wait_until(
        lambda: _led(storage, not_by=led.host_id), description="another pod leads"
    )
    assert successor.term == led.term + 1


async def test_a_clean_stop_hands_the_lead_over_before_the_lease_would_run_out(
    storage: Storage, pods: Fleet
) -> None:
    settings = quick_settings(leader_lease=timedelta(minutes=5))
    pods.start({"work": 1}, settings)
    pods.start({"work": 1}, settings)
    led = await wait_until(lambda: _led(storage), description="somebody leads")
    pids = {pod.pod.host_id: pod.pod.process_id for pod in await storage.procs.pods()}
    [leader] = [pod for pod in pods.pods if pod.process_id == pids[led.host_id]]

    leader.send(signal.SIGTERM)

    assert await leader.wait() == 0
    await wait_until(
        lambda: _led(storage, not_by=led.host_id), description="another pod leads", timeout=10
    )


async def _led(storage: Storage, not_by: str = "") -> object:
    """The leader once two pods are there and it is not ``not_by``."""
    leader = await storage.cron.leader()
    if leader is None or leader.remaining <= timedelta(0) or leader.host_id in ("", not_by):
        return None
    if not not_by and len(await storage.procs.pods()) < 2:
        return None
    return leader
