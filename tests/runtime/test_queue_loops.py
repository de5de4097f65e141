"""The loop of one queue and its workers, with beats that the test gives."""

import asyncio
from typing import Any

import anyio
import pytest
from msgspec import structs

from forge_jobs.clock import ManualClock
from forge_jobs.errors import StorageRefused, Unavailable
from forge_jobs.handlers.outcomes import Throttled
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Exchange
from forge_jobs.policy.claim_ahead import Pace
from forge_jobs.storage.protocols import Storage
from tests.support.factories import enqueue_one, get_job
from tests.support.faulty import Faults, faulty
from tests.support.queue_loops import Bench, bench
from tests.support.runtimes import QUEUE, in_progress, seconds
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


async def test_a_queue_that_goes_on_after_a_pause_is_looked_at(storage: Storage) -> None:
    async with bench(storage) as it:
        it.beat(due_in=seconds(0.5))
        await it.at_rest()
        it.beat(paused=True)
        it.pool.hint()
        await it.at_rest()
        it.pool._may_have_work = False
        look_at = it.pool._look_at
        assert look_at is not None
        await wait_until(lambda: it.services.loop.time() > look_at, description="that time passes")

        await enqueue_one(storage, kind="enters", payload='{"n":0}')
        it.beat(due_in=seconds(0))

        await wait_until(lambda: it.started == [0], description="the job runs")


async def test_work_that_was_hinted_at_during_a_fence_is_claimed_after_it(
    storage: Storage,
) -> None:
    async with bench(storage) as it:
        it.beat()
        await it.at_rest()
        it.pool.fence(True)
        await enqueue_one(storage, kind="enters", payload='{"n":0}')
        it.pool.hint()
        await it.at_rest()
        assert it.started == []

        it.pool.fence(False)

        await wait_until(lambda: it.started == [0], description="the job runs")


async def test_claims_of_a_lease_that_ran_out_meanwhile_are_given_back(storage: Storage) -> None:
    faults = Faults()
    async with bench(faulty(storage, faults)) as it:
        job_id = await enqueue_one(storage, kind="enters", payload='{"n":0}')
        faults.hold_replies("exchange")
        it.beat()
        await wait_until(lambda: faults.waiting["exchange"], description="it is claimed")
        it.pool.void_grant(it.clock.elapsed())
        it.services.lease = PodLease(it.services.lease.host_id, "another epoch")
        it.beat()
        faults.let_go("exchange")

        await wait_until(lambda: released(storage, job_id), description="it is given back")
        assert it.started == []


@pytest.mark.parametrize("more", [True, False])
async def test_jobs_run_behind_a_call_that_is_made_next(storage: Storage, more: bool) -> None:
    async with bench(storage) as it:
        it.beat(3)
        await it.at_rest()
        it.arrive(await it.claim(3), more=more)
        await anyio.lowlevel.checkpoint()
        assert it.started == ([] if more else [0, 1, 2])
        await anyio.lowlevel.checkpoint()
        assert it.started == [0, 1, 2]
        for door in it.doors:
            door.set()


async def released(storage: Storage, job_id: Any) -> bool:
    return (await get_job(storage, job_id)).cause is Cause.RELEASED


async def test_a_pod_that_slept_too_long_starts_nothing_before_it_has_beaten(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    async with bench(manual_storage, manual_clock) as it:
        it.pool._pace.record(0.001, it.clock.elapsed())
        it.beat()
        await it.at_rest()
        [first, second] = await it.claim(2)
        it.arrive([first, second])
        await wait_until(lambda: it.started == [0], description="the first runs")
        assert it.pool.held_ahead == 1

        manual_clock.advance(13)
        it.doors[0].set()

        await wait_until(
            lambda: released(manual_storage, second.claim.job_id), description="it is given back"
        )
        assert it.started == [0]


async def test_a_claim_that_the_store_did_not_answer_is_asked_for_again(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = faulty(storage, Faults())
    exchange = behind.jobs.exchange
    refusals = iter([Unavailable("the test"), Unavailable("the test")])

    async def refuse_twice(*args: Any) -> Any:
        for refusal in refusals:
            raise refusal
        return await exchange(*args)

    monkeypatch.setattr(behind.jobs, "exchange", refuse_twice, raising=False)
    async with bench(behind) as it:
        await enqueue_one(storage, kind="enters", payload='{"n":0}')
        it.beat()
        await wait_until(lambda: it.started == [0], description="it runs without another beat")


async def test_a_claim_a_moment_before_the_store_ends_a_cool_down_is_repeated(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = faulty(storage, Faults())
    exchange = behind.jobs.exchange
    too_early = iter(range(3))

    async def still_cooling(*args: Any) -> Exchange:
        for _ in too_early:
            return Exchange((), (), None)
        answer: Exchange = await exchange(*args)
        return answer

    monkeypatch.setattr(behind.jobs, "exchange", still_cooling, raising=False)
    async with bench(behind) as it:
        await enqueue_one(storage, kind="enters", payload='{"n":0}')
        it.state = structs.replace(it.state, cooldown_remaining=seconds(0.1))
        it.beat(due_in=seconds(0))
        await wait_until(lambda: it.started == [0], description="it runs without another beat")


async def test_claims_that_put_jobs_on_hold_follow_each_other_without_a_pause(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = faulty(storage, Faults())
    exchange = behind.jobs.exchange
    steps = iter(range(500))

    async def hold_some(*args: Any) -> Exchange:
        for _ in steps:
            return Exchange((), (), seconds(0), goes_on=True)
        answer: Exchange = await exchange(*args)
        return answer

    monkeypatch.setattr(behind.jobs, "exchange", hold_some, raising=False)
    async with bench(behind) as it:
        await enqueue_one(storage, kind="enters", payload='{"n":0}')
        it.beat(due_in=seconds(0))
        # With pauses as after claims that found nothing, this would take minutes.
        await wait_until(lambda: it.started == [0], description="the job behind them runs")


async def test_claims_held_ahead_are_let_go_when_the_storage_is_closed(storage: Storage) -> None:
    async with await storage.reopen() as closing, bench(closing) as it:
        it.pool._pace.record(0.001, it.clock.elapsed())
        it.beat()
        await it.at_rest()
        [first, second] = await it.claim(2)
        it.arrive([first, second])
        await wait_until(lambda: it.started == [0], description="the first runs")
        assert it.pool.held_ahead == 1

        await closing.aclose()
        it.pool.hint()
        await wait_until(lambda: it.loop.outbox.is_cut_off, description="a claim fails")
        it.beat()

        assert it.pool.held_ahead == 0
        assert [held.claim for held in it.services.held.snapshot()] == [first.claim]
        it.doors[0].set()
        await wait_until(lambda: len(it.services.held) == 0, description="it lets go of the end")
        assert it.started == [0]


async def test_ends_with_large_results_travel_in_several_calls(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = faulty(storage, Faults())
    exchange = behind.jobs.exchange
    sizes: list[int] = []

    async def note(*args: Any) -> Any:
        sizes.append(sum(len(end.transition.result or "") for end in args[1]))
        return await exchange(*args)

    monkeypatch.setattr(behind.jobs, "exchange", note, raising=False)
    text = "x" * (1024 * 1024 - 10)
    async with bench(behind) as it:

        @it.handlers.job("gives")
        async def gives() -> str:
            await it.doors[0].wait()
            return text

        it.services.kinds = it.handlers.kinds()
        it.beat(10)
        for _ in range(10):
            await enqueue_one(storage, kind="gives")
        it.pool.hint()
        await wait_until(lambda: it.pool.running == 10, description="all run")
        it.doors[0].set()
        await wait_until(lambda: done(storage, 10), description="all are stored")
    assert max(sizes) <= 4 * 1024 * 1024


async def done(storage: Storage, wanted: int) -> bool:
    counts = (await storage.jobs.counts([QUEUE]))[QUEUE]
    return counts.by_status.get(JobStatus.DONE, 0) == wanted and await in_progress(storage) == 0


def has_pace(it: Bench, mean: float) -> None:
    it.pool._pace = Pace()
    it.pool._pace.record(mean, it.clock.elapsed())


async def test_claims_held_ahead_are_given_back_when_they_are_twice_too_many(
    storage: Storage,
) -> None:
    async with bench(storage) as it:
        has_pace(it, 0.025)
        it.beat()
        await it.at_rest()
        it.arrive(await it.claim(5))
        assert (it.pool.running, it.pool.held_ahead) == (1, 4)

        has_pace(it, 0.05)
        it.beat()
        assert it.pool.held_ahead == 1
        for door in it.doors:
            door.set()
        await wait_until(lambda: it.started[:2] == [0, 1], description="the kept one runs")


async def test_while_half_of_what_is_held_ahead_is_left_no_call_is_made_for_more(
    storage: Storage,
) -> None:
    async with bench(storage) as it:
        has_pace(it, 0.0125)
        it.beat()
        await it.at_rest()
        it.arrive(await it.claim(4))
        assert it.pool.held_ahead == 3
        it.pool.hint()
        assert it.pool.demand(piggyback=False).limit == 0
        assert it.pool.demand(piggyback=True).limit == 1
        for door in it.doors:
            door.set()
        await wait_until(lambda: done(storage, 4), description="all are stored")


async def test_a_worker_goes_on_in_the_turn_of_the_loop_in_which_its_handler_ends(
    storage: Storage,
) -> None:
    happened: list[object] = []
    async with bench(storage) as it:
        loop = it.services.loop

        @it.handlers.job("counts turns")
        async def counts_turns(n: int) -> None:
            happened.append(n)
            await it.doors[n].wait()
            if n == 0:
                loop.call_soon(lambda: loop.call_soon(happened.append, "the turn after the next"))

        it.services.kinds = it.handlers.kinds()
        has_pace(it, 0.001)
        it.beat()
        await it.at_rest()
        claimed = await it.claim(2)
        it.arrive([structs.replace(job, kind="counts turns") for job in claimed])
        await wait_until(lambda: happened == [0], description="the first runs")
        it.doors[0].set()
        it.doors[1].set()
        await wait_until(lambda: len(happened) == 3, description="the second runs")
    assert happened == [0, 1, "the turn after the next"]


async def test_a_worker_whose_slot_was_taken_back_does_not_go_on(storage: Storage) -> None:
    async with bench(storage) as it:
        has_pace(it, 0.001)
        it.beat(2)
        await it.at_rest()
        it.arrive(await it.claim(3))
        await wait_until(lambda: it.started == [0, 1], description="two run")
        it.beat(1)
        assert (it.pool.running, it.pool.held_ahead) == (2, 1)

        it.doors[0].set()
        await wait_until(lambda: it.pool.running == 1, description="one has ended")
        await it.at_rest()
        assert it.started == [0, 1]
        assert it.pool.running == 1


async def test_a_job_to_be_cancelled_is_not_what_a_worker_goes_on_with(storage: Storage) -> None:
    async with bench(storage) as it:
        has_pace(it, 0.001)
        it.beat()
        await it.at_rest()
        first, second, third = await it.claim(3)
        it.arrive([first, structs.replace(second, cancel_requested=True), third])
        await wait_until(lambda: it.started == [0], description="the first runs")

        it.doors[0].set()
        await wait_until(lambda: it.started == [0, 2], description="the third runs")

        async def is_cancelled() -> bool:
            return (await get_job(storage, second.claim.job_id)).status is JobStatus.CANCELLED

        await wait_until(is_cancelled, description="the second is cancelled")


async def test_a_worker_whose_handler_was_throttled_does_not_go_on(storage: Storage) -> None:
    async with bench(storage) as it:

        @it.handlers.job("is throttled")
        async def is_throttled(n: int) -> None:
            it.started.append(n)
            raise Throttled

        it.services.kinds = it.handlers.kinds()
        has_pace(it, 0.001)
        it.beat()
        await it.at_rest()
        first, second = await it.claim(2)
        it.arrive([structs.replace(first, kind="is throttled"), second])

        await wait_until(
            lambda: released(storage, second.claim.job_id), description="it is given back"
        )
        assert it.started == [0]


async def test_a_job_of_an_unknown_kind_is_not_what_a_worker_goes_on_with(storage: Storage) -> None:
    async with bench(storage) as it:
        has_pace(it, 0.001)
        it.beat()
        await it.at_rest()
        first, second, third = await it.claim(3)
        it.arrive([first, structs.replace(second, kind="nobody's"), third])
        await wait_until(lambda: it.started == [0], description="the first runs")

        it.doors[0].set()
        await wait_until(lambda: it.started == [0, 2], description="the third runs")
        await wait_until(
            lambda: released(storage, second.claim.job_id), description="the second is given back"
        )


async def test_a_worker_does_not_go_on_while_too_many_ends_wait(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.runtime.queue.outbox.BACKLOG", 1)
    async with bench(storage) as it:
        has_pace(it, 0.001)
        it.beat()
        await it.at_rest()
        it.arrive(await it.claim(2))
        await wait_until(lambda: it.started == [0], description="the first runs")
        went_on = it.pool._goes_on
        answers: list[tuple[bool, bool]] = []

        def noted(*arguments: Any) -> bool:
            is_full = it.loop.outbox.is_full
            answers.append((is_full, went_on(*arguments)))
            return answers[-1][1]

        monkeypatch.setattr(it.pool, "_goes_on", noted)
        it.doors[0].set()
        await wait_until(lambda: bool(answers), description="the first has ended")
        assert answers[0] == (True, False)


@pytest.mark.parametrize("trouble", ["locked", "refused"])
async def test_a_release_that_the_store_does_not_take_is_sent_again_apart(
    storage: Storage, trouble: str
) -> None:
    faults = Faults()
    async with bench(faulty(storage, faults)) as it:
        it.beat()
        await it.at_rest()
        outbox = it.loop.outbox
        apart = asyncio.ensure_future(outbox.aside.run())
        kept, other = await it.claim(2)
        it.services.held.add([kept.claim, other.claim])
        if trouble == "locked":
            faults.locked.add(kept.claim.job_id)
        else:
            faults.refused[kept.claim.job_id] = StorageRefused("a trigger")
        outbox.release([kept.claim, other.claim])
        await wait_until(lambda: outbox.aside.count, description="it is set aside")
        assert [held.claim for held in it.services.held.snapshot()] == [kept.claim]
        assert (await get_job(storage, other.claim.job_id)).status is JobStatus.PENDING
        assert (await get_job(storage, kept.claim.job_id)).status is JobStatus.IN_PROGRESS

        faults.locked.clear()
        faults.refused.clear()
        await wait_until(lambda: not outbox.aside.count, description="it is stored")
        assert (await get_job(storage, kept.claim.job_id)).cause is Cause.RELEASED
        assert len(it.services.held) == 0
    await apart
