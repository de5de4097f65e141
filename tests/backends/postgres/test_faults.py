"""A server that falls silent, and replies that are lost after the commit."""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from forge_jobs.errors import Unavailable
from forge_jobs.model.jobs import NewJob
from forge_jobs.model.processes import ClaimState
from forge_jobs.model.transitions import Demand, Finalization
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    LEASE,
    QUEUE,
    claim,
    claim_one,
    done,
    enqueue_one,
    get_job,
    held,
    new_job,
    register,
)
from tests.support.postgres import with_options
from tests.support.proxy import Proxy, proxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

LIMIT_S = 1
AT_MOST_S = 10.0
"""No call hangs: generous for a busy machine, and far below the minutes of a system's own limit."""


@pytest.fixture
async def near(url: str) -> AsyncGenerator[Storage]:
    """The store without anything between."""
    async with await open_storage(url) as opened:
        yield opened


@pytest.fixture
def between(url: str) -> Iterator[Proxy]:
    with proxy(url) as made:
        yield made


@pytest.fixture
async def storage(between: Proxy) -> AsyncGenerator[Storage]:
    """The store through the proxy."""
    async with await open_storage(with_options(between.url, timeout=LIMIT_S)) as opened:
        yield opened


_TOLD = r"the database at 127\.0\.0\.1:\d+ (gave no|cannot|did not)|all \d+ connections of the pool"


async def lost(call: Awaitable[Any]) -> None:
    """Expect that the call ends by the limit with an unknown outcome, and names the server."""
    with anyio.fail_after(AT_MOST_S), pytest.raises(Unavailable) as failed:
        await call
    assert re.match(_TOLD, str(failed.value))


async def test_a_call_to_a_silent_server_ends_by_its_limit_and_the_next_one_works(
    storage: Storage, between: Proxy
) -> None:
    await enqueue_one(storage)
    between.freeze()
    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(lost, storage.jobs.counts())
    between.heal()
    for _ in range(8):
        await enqueue_one(storage)
    assert (await storage.jobs.counts())[QUEUE].by_status["pending"] == 9


async def test_calls_of_one_statement_to_a_silent_server_end_and_are_not_waited_for_again(
    storage: Storage, between: Proxy
) -> None:
    lease = await register(storage)
    await enqueue_one(storage)
    demand = Demand(worker_ids=("w",), limit=1, kinds=frozenset({KIND}))
    between.freeze()
    async with anyio.create_task_group() as group:
        group.start_soon(lost, storage.jobs.enqueue([new_job()]))
        group.start_soon(lost, storage.jobs.exchange(QUEUE, [], demand, lease))
    between.heal()
    assert len((await storage.jobs.exchange(QUEUE, [], demand, lease)).claimed) <= 1
    await enqueue_one(storage)


async def test_a_server_that_falls_silent_in_the_middle_of_calls_holds_up_no_close(
    between: Proxy,
) -> None:
    opened = await open_storage(with_options(between.url, timeout=LIMIT_S, pool_size=3))
    async with anyio.create_task_group() as group:
        for _ in range(3):
            await enqueue_one(opened)
        between.freeze()
        for _ in range(6):
            group.start_soon(lost, opened.jobs.counts())
        await anyio.lowlevel.checkpoint()
        with anyio.fail_after(AT_MOST_S):
            await opened.aclose()


async def test_a_silent_server_can_be_given_up_while_it_is_opened(between: Proxy) -> None:
    between.freeze()
    await lost(open_storage(with_options(between.url, timeout=LIMIT_S)))


async def committed(
    between: Proxy,
    call: Callable[[], Awaitable[Any]],
    is_done: Callable[[], Any],
    *,
    is_told: bool = True,
) -> None:
    """Make the call with the last reply held back until the store shows the effect. Then cut.

    :param is_told: the caller has to learn of the cut
    """
    failed: list[Unavailable] = []

    async def unlucky() -> None:
        try:
            await call()
        except Unavailable as error:
            failed.append(error)

    # Each reply before the commit is late as well, and the caller waits long enough.
    between.slow_down(replies=0.3)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(unlucky)
            await wait_until(is_done, description="the store has committed")
            between.cut()
            between.heal()
    assert len(failed) == is_told, "the reply was to be lost"


@pytest.fixture
async def far(between: Proxy) -> AsyncGenerator[Storage]:
    """As ``storage``, with the patience that slow replies need."""
    async with await open_storage(with_options(between.url, timeout=30)) as opened:
        yield opened


async def test_an_enqueue_whose_reply_is_lost_repeats_itself_and_can_be_repeated(
    near: Storage, far: Storage, between: Proxy
) -> None:
    await enqueue_one(far)
    jobs: list[NewJob] = [new_job() for _ in range(3)]
    ids = [job.id for job in jobs]

    async def are_stored() -> bool:
        return len(await near.jobs.get(ids)) == 3

    await committed(between, lambda: far.jobs.enqueue(jobs), are_stored, is_told=False)
    again = await far.jobs.enqueue(jobs)
    assert [each.job_id for each in again] == ids
    assert not any(each.deduplicated for each in again)
    assert (await near.jobs.counts())[QUEUE].by_status["pending"] == 4


async def test_claims_whose_reply_is_lost_come_up_in_the_beat(
    near: Storage, far: Storage, between: Proxy
) -> None:
    lease = await register(far)
    await near.jobs.enqueue([new_job() for _ in range(5)])

    async def are_claimed() -> bool:
        return (await near.jobs.counts())[QUEUE].by_status.get("in_progress") == 3

    await committed(between, lambda: claim(far, lease, limit=3), are_claimed)
    rest = await claim(far, lease, limit=5)
    beat = await far.jobs.heartbeat(lease, [held(each, "w") for each in rest], LEASE)
    assert len(rest) == 2
    assert set(beat.claims.values()) == {ClaimState.HELD}
    assert len(beat.unknown) == 3
    assert await far.jobs.release(beat.unknown) == [True] * 3
    assert len(await claim(far, lease, limit=5)) == 3


async def test_an_end_whose_reply_is_lost_can_be_repeated_and_counts_once(
    near: Storage, far: Storage, between: Proxy
) -> None:
    lease = await register(far)
    await enqueue_one(far)
    owned = await claim_one(far, lease)
    end = [Finalization(owned.claim, done("1"))]

    async def is_done() -> bool:
        return (await get_job(near, owned.claim.job_id)).status == "done"

    await committed(between, lambda: far.jobs.finalize(end), is_done)
    assert await far.jobs.finalize(end) == [True]
    minutes = (await near.cron.now()).replace(second=0, microsecond=0)
    buckets = await near.jobs.metrics(QUEUE, minutes.replace(hour=0), await near.cron.now())
    assert sum(each.counts.get("succeeded", 0) for each in buckets) == 1


async def test_an_exchange_whose_reply_is_lost_has_done_both_or_neither(
    near: Storage, far: Storage, between: Proxy
) -> None:
    lease = await register(far)
    await near.jobs.enqueue([new_job(), new_job()])
    owned = await claim_one(far, lease)
    ends = [Finalization(owned.claim, done())]
    demand = Demand(worker_ids=("w",), limit=1, kinds=frozenset({KIND}))

    async def is_done() -> bool:
        return (await get_job(near, owned.claim.job_id)).status == "done"

    await committed(between, lambda: far.jobs.exchange(QUEUE, ends, demand, lease), is_done)
    repeat = await far.jobs.exchange(QUEUE, ends, demand, lease)
    assert repeat.settled == (True,)
    assert repeat.claimed == ()
    beat = await far.jobs.heartbeat(lease, [], LEASE)
    assert len(beat.unknown) == 1
