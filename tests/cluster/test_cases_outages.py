"""Outages of a store's server, long and short, and an outage that forgets all data."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient, JobStatus
from forge_jobs.errors import Unavailable
from forge_jobs.model.events import EventKind
from forge_jobs.storage.protocols import Storage
from tests.chaos.every_store import STORES
from tests.chaos.stores import RedisStore, ServerStore
from tests.support.ledger import Ledger
from tests.support.pods import Fleet
from tests.support.servers import a_redis
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

JOBS = 12
QUEUE = {"work": 2}
FENCED = "no beat has reached the store"
RESOLVED_WITHIN = 40.0
"""Seconds: ten that are promised, the rest for a loaded machine. What nothing wakes looks
again after a minute."""


@pytest.fixture(params=["postgres", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ServerStore]:
    """A durable server of the test's own."""
    made = STORES[request.param](tmp_path)
    assert isinstance(made, ServerStore)
    async with made.running():
        yield made


@pytest.fixture
def url(store: ServerStore) -> str:
    return store.url


def request_of(ledger: Path, seconds: float) -> EnqueueRequest:
    return EnqueueRequest("ledger.work", {"ledger": str(ledger), "seconds": seconds}, queue="work")


async def done(storage: Storage) -> int:
    counts = await storage.jobs.counts(["work"])
    return counts["work"].by_status.get(JobStatus.DONE, 0)


@pytest.mark.parametrize(
    "is_long",
    [pytest.param(False, id="short"), pytest.param(True, id="long", marks=pytest.mark.long)],
)
async def test_work_goes_on_after_an_outage_and_its_events_are_kept(
    is_long: bool,
    store: ServerStore,
    storage: Storage,
    client: JobClient,
    pods: Fleet,
    ledger: Path,
) -> None:
    pods.start(QUEUE)
    outcomes = await client.enqueue_many([request_of(ledger, 0.3)] * JOBS)
    await wait_until(lambda: Ledger.read(ledger).ended(), description="the first has ended")

    store.server.kill()
    if is_long:
        await wait_until(
            lambda: FENCED in pods.log.read_text(), description="it takes its lease for lost"
        )
    store.server.start()

    async def all_done() -> bool:
        try:
            return await done(storage) == JOBS
        except Unavailable:
            # The first call may go to a connection whose end has not been noticed yet.
            return False

    await wait_until(all_done, description="all are done", timeout=RESOLVED_WITHIN)

    async def finished() -> Counter[str]:
        events = await storage.jobs.events(queue="work", limit=1_000)
        return Counter(each.job_id for each in events if each.kind is EventKind.FINISHED)

    async def all_told() -> bool:
        return set(await finished()) == {outcome.job_id for outcome in outcomes}

    await wait_until(all_told, description="each end is told", timeout=RESOLVED_WITHIN)
    assert Ledger.read(ledger).overlaps() == []


class Forgetful(RedisStore):
    """A server that keeps nothing on disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = self._redis = a_redis()


class TestForgetting:
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[ServerStore]:
        made = Forgetful(tmp_path)
        async with made.running():
            yield made

    async def test_a_server_that_comes_back_empty_is_used_again_without_a_restart(
        self, store: ServerStore, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
    ) -> None:
        pod = pods.start(QUEUE)
        before = await client.enqueue(request_of(ledger, 0.01))
        await wait_until(lambda: Ledger.read(ledger).ended(), description="it runs")

        store.server.kill()
        store.server.start()
        outcomes = await client.enqueue_many([request_of(ledger, 0.01)] * JOBS)

        wanted = {outcome.job_id for outcome in outcomes}
        await wait_until(
            lambda: wanted <= Ledger.read(ledger).ended(),
            description="new jobs run",
            timeout=RESOLVED_WITHIN,
        )
        assert await client.get(before.job_id) is None, "it was not to survive"
        assert pod.exit_code is None
