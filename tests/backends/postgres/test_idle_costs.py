"""Statements that a pod without work repeats, counted."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta

import pytest

from bench.tracing import BORDERS
from forge_jobs.model.ids import new_host_id
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.asked import asked
from tests.support.factories import claim_one, enqueue_one, held, register
from tests.support.postgres import with_options

pytestmark = pytest.mark.anyio

LONG = timedelta(hours=1)


@pytest.fixture
async def storage(url: str) -> AsyncGenerator[Storage]:
    """No notice of an earlier call comes between."""
    async with await open_storage(with_options(url, wake="poll")) as opened:
        yield opened


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    """The lease of a pod that leads and has had work to do, mostly by statements planned once."""
    lease = await register(storage, lease_for=LONG)
    await storage.cron.lead(lease.host_id, LONG)
    for _ in range(3):
        await enqueue_one(storage)
    # The first script after these takes a turn. From then on the session is for scripts.
    await storage.jobs.counts()
    await storage.jobs.counts()
    return lease


async def counted(call: Callable[[], Awaitable[object]]) -> tuple[int, int, int]:
    """Statements, those that begin or end a transaction, and those that set something."""
    with asked() as seen:
        await call()
    total = seen.total()
    borders = sum(count for text, count in seen.items() if text.startswith(BORDERS))
    settings = sum(count for text, count in seen.items() if text.startswith(("SET ", "RESET ")))
    return total - borders - settings, borders, settings


async def test_what_an_idle_pod_asks(storage: Storage, lease: PodLease) -> None:
    calls: dict[str, tuple[Callable[[], Awaitable[object]], tuple[int, int, int]]] = {
        "beat": (lambda: storage.jobs.heartbeat(lease, [], LONG), (2, 0, 0)),
        "lead": (lambda: storage.cron.lead(lease.host_id, LONG), (1, 0, 0)),
        "follow": (lambda: storage.cron.lead(new_host_id(), LONG), (2, 0, 0)),
        "due schedules": (lambda: storage.cron.due_schedules(10), (1, 0, 0)),
        "silent claims": (lambda: storage.jobs.stale_claims(LONG, 10), (1, 0, 0)),
        # Scripts: the clock, a search, and the borders of the transaction.
        "expired jobs": (lambda: storage.jobs.expire(10), (2, 2, 0)),
        "dead pods": (lambda: storage.procs.drop_dead_pods(LONG, 10), (2, 2, 0)),
    }
    for _ in range(2):
        for name, (call, most) in calls.items():
            assert await counted(call) == most, name


async def test_a_beat_with_claims_sets_nothing_either(storage: Storage, lease: PodLease) -> None:
    claimed = await claim_one(storage, lease)
    # The claim is planned once: two scripts later the session is for scripts again.
    await storage.jobs.counts()
    await storage.jobs.counts()
    owned = [held(claimed, "w")]
    assert await counted(lambda: storage.jobs.heartbeat(lease, owned, LONG)) == (5, 2, 0)
