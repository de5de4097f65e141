"""Requests of one call that share a unique key do what they do in calls of their own.

A client stores what several callers enqueue at one moment in one call.
"""

import pytest

from forge_jobs.model.filters import Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, JobStatus, Line, NewJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.strikes import Effect, Strike, StrikeRule, struck_by
from forge_jobs.model.unique.keys import REPLACING, UniqueMode
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim, claim_one, counters, done, finish, get_job, new_job, only
from tests.support.keyed import MODES, keyed
from tests.support.lines import edges_of, tell

pytestmark = pytest.mark.anyio

HELD, CANCELLED = (
    struck_by(Strike(name="s", rule=StrikeRule(kind="mail", effect=effect), by="ada", at=None))
    for effect in Effect
)
STRIKES = {"none": None, "hold": HELD, "cancel": CANCELLED}


async def store(storage: Storage, *jobs: NewJob) -> list[JobId]:
    return [one.job_id for one in await storage.jobs.enqueue(jobs)]


async def ready(storage: Storage, lease: PodLease) -> list[JobId]:
    return [one.claim.job_id for one in await claim(storage, lease, limit=50)]


@pytest.mark.parametrize("mode", sorted(REPLACING))
@pytest.mark.parametrize("other", [None, Line("other")])
async def test_a_replaced_job_keeps_its_place_in_line(
    storage: Storage, lease: PodLease, mode: UniqueMode, other: Line | None
) -> None:
    line = Line("k")
    [first] = await store(storage, new_job(sequence=line))
    second, same, third = await store(
        storage,
        keyed(mode, sequence=line),
        keyed(mode, 2, sequence=other),
        new_job(sequence=line),
    )
    assert same == second
    assert (await get_job(storage, second)).payload == '{"n":2}'
    assert [*await edges_of(storage, second)] == [first]
    assert [*await edges_of(storage, third)] == [second]


@pytest.mark.parametrize("mode", sorted(REPLACING))
async def test_a_replaced_job_that_is_in_no_sequence_comes_into_none(
    storage: Storage, lease: PodLease, mode: UniqueMode
) -> None:
    line = Line("k")
    first, second, same = await store(
        storage, new_job(sequence=line), keyed(mode), keyed(mode, 2, sequence=line)
    )
    assert same == second
    [third] = await store(storage, new_job(sequence=line))
    assert await edges_of(storage, second) == {}
    assert [*await edges_of(storage, third)] == [first]


@pytest.mark.parametrize("after", STRIKES)
@pytest.mark.parametrize("before", ["none", "hold"])
@pytest.mark.parametrize("mode", ["replace", "keep-last"])
async def test_content_that_another_request_gives_is_left_to_the_pod(
    storage: Storage, lease: PodLease, mode: UniqueMode, before: str, after: str
) -> None:
    job_id, same = await store(
        storage,
        keyed(mode, struck=STRIKES[before], priority=1),
        keyed(mode, 2, struck=STRIKES[after]),
    )
    assert same == job_id
    job = await get_job(storage, job_id)
    assert (job.status, job.hold, job.payload) == (JobStatus.PENDING, None, '{"n":2}')
    assert await storage.jobs.release_struck([], 10) == 0
    assert await ready(storage, lease) == [job_id]


@pytest.mark.parametrize("mode", MODES)
async def test_a_job_that_a_strike_cancels_keeps_no_other_from_the_key(
    storage: Storage, mode: UniqueMode
) -> None:
    cancelled, other = await store(storage, keyed(mode, struck=CANCELLED), keyed("keep", 2))
    assert cancelled != other
    ended, waiting = await get_job(storage, cancelled), await get_job(storage, other)
    assert (ended.status, ended.cause) == (JobStatus.CANCELLED, Cause.STRUCK)
    assert (waiting.status, waiting.unique_key) == (JobStatus.PENDING, "k")
    # The key that the job had is still looked at before the job comes back.
    refused = (await storage.jobs.requeue(only(cancelled))).refused
    assert refused == {cancelled: Refusal.KEY_TAKEN}
    counted = await counters(storage)
    assert (counted["enqueued"], counted["struck"]) == (2, 1)


async def test_a_window_that_a_cancelled_job_has_opened_holds_for_those_behind(
    storage: Storage,
) -> None:
    cancelled = keyed("cooldown", struck=CANCELLED)
    outcomes = await storage.jobs.enqueue([cancelled, keyed("cooldown", 2)])
    assert [each.job_id for each in outcomes] == [cancelled.id] * 2
    assert outcomes[1].deduplicated


async def test_a_follow_up_that_a_strike_cancels_makes_room_for_the_next_one(
    storage: Storage, lease: PodLease
) -> None:
    await store(storage, keyed("replace"))
    running = await claim_one(storage, lease)
    cancelled, following = await store(
        storage, keyed("keep-last", 2, struck=CANCELLED), keyed("keep-last", 3)
    )
    assert cancelled != following
    assert (await get_job(storage, cancelled)).status is JobStatus.CANCELLED
    assert (await get_job(storage, following)).follow_up
    assert await finish(storage, running, done())
    await tell(storage)
    assert await ready(storage, lease) == [following]
