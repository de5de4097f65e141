"""Jobs of schedules in the sequences and limits that their handlers declare."""

import random
from datetime import timedelta

import pytest

from forge_jobs import EnqueueRequest, HandlerRegistry, Limit, RuntimeSettings, Sequence
from forge_jobs.clients.schedules import ensure_schedules, schedule, trigger_now
from forge_jobs.clock import ManualClock
from forge_jobs.model.jobs import Line
from forge_jobs.model.schedules import ScheduleSpec
from forge_jobs.privacy.encryption import Encryption
from forge_jobs.runtime.passes.cron import fire_due_once
from forge_jobs.storage.protocols import Storage
from tests.support.factories import KIND, QUEUE, get_job, new_job, register
from tests.support.lines import order_of

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
SOUTH = EnqueueRequest(KIND, {"shop": "south"})


def shop(encryption: Encryption | None = None) -> HandlerRegistry:
    handlers = HandlerRegistry(encryption=encryption)

    @handlers.job(
        KIND,
        queue=QUEUE,
        sequence=Sequence("shop:{shop}", on_failure="skip"),
        concurrency=Limit(3, key="{shop}"),
    )
    async def close(shop: str = "north") -> None: ...

    return handlers


def a_spec(what: EnqueueRequest = SOUTH, **options: object) -> ScheduleSpec:
    return schedule("nightly", what, "* * * * *", registry=shop(), **options)  # type: ignore[arg-type]


def test_a_schedule_has_the_sequence_and_the_limit_of_the_handler() -> None:
    spec = a_spec()
    assert spec.sequence == Line("shop:south", "skip")
    assert (spec.limit_name, spec.limit_key) == (KIND, "south")


def test_a_request_gives_the_keys_of_a_schedule() -> None:
    given = EnqueueRequest(KIND, sequence_key="all", concurrency_key="one")
    spec = a_spec(given)
    assert (spec.sequence, spec.limit_key) == (Line("all", "skip"), "one")
    assert a_spec(EnqueueRequest(KIND, sequence_key="")).sequence is None
    spec = schedule("nightly", EnqueueRequest("other", sequence_key="all"), "@daily")
    assert spec.sequence == Line("all", "wait")


def test_keys_of_encrypted_payloads_are_hashes() -> None:
    handlers = shop(Encryption([Encryption.new_key()]))
    spec = schedule("nightly", SOUTH, "@daily", registry=handlers)
    assert spec.sequence is not None
    assert spec.sequence.key.startswith("#")
    assert "south" not in spec.limit_key


@pytest.mark.parametrize(("catch_up", "times"), [("latest", 1), ("all", 3)])
async def test_what_a_schedule_fires_comes_after_the_last_job_and_before_the_next(
    manual_storage: Storage, manual_clock: ManualClock, catch_up: str, times: int
) -> None:
    line = Line("shop:south", "skip")
    await ensure_schedules(manual_storage.cron, [a_spec(catch_up=catch_up)])
    before, after = new_job(sequence=line), new_job(sequence=line)
    await manual_storage.jobs.enqueue([before])
    manual_clock.advance(3 * MINUTE)
    report = await fire_due_once(manual_storage.cron, RuntimeSettings(), random.Random(1))
    by_hand = (await trigger_now(manual_storage, "nightly")).job_id
    await manual_storage.jobs.enqueue([after])
    made = await get_job(manual_storage, by_hand)
    assert (report.fired, made.limit_name, made.limit_key) == (times, KIND, "south")

    ran = await order_of(manual_storage, await register(manual_storage))
    assert len(ran) == times + 3
    assert [ran[0], *ran[-2:]] == [before.id, by_hand, after.id]


async def test_an_occurrence_that_overlaps_takes_no_place(
    manual_storage: Storage, manual_clock: ManualClock
) -> None:
    await ensure_schedules(manual_storage.cron, [a_spec(overlap="skip")])
    first = (await trigger_now(manual_storage, "nightly")).job_id
    manual_clock.advance(MINUTE)
    await fire_due_once(manual_storage.cron, RuntimeSettings(), random.Random(1))
    after = new_job(sequence=Line("shop:south"))
    await manual_storage.jobs.enqueue([after])
    assert await order_of(manual_storage, await register(manual_storage)) == [first, after.id]
