"""Requests to pods: heard by one registration in time, answered once, kept for an hour."""

import asyncio
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict, InvalidInput, NotFound
from forge_jobs.model.ids import HostId, new_host_id, new_job_id
from forge_jobs.model.pod_requests import (
    ANSWERED_WITHIN,
    MAX_ANSWER,
    MAX_ASKED_BY,
    MOST_REQUESTS,
    REQUESTS_KEPT,
    PodRequest,
    PodVerb,
    RequestState,
)
from forge_jobs.model.processes import PodLease, PodState
from forge_jobs.storage.protocols import Storage
from tests.support.factories import LEASE, MICROSECOND, QUEUE, SECOND, claim, enqueue_one, register

pytestmark = pytest.mark.anyio

_DAY = timedelta(days=1)


async def ask(storage: Storage, lease: PodLease, verb: PodVerb = PodVerb.QUIET) -> PodRequest:
    return await storage.procs.ask_pod(
        lease.host_id, verb, request_id=new_job_id(), asked_by="ada é"
    )


async def is_asked(storage: Storage, lease: PodLease) -> bool:
    return (await storage.jobs.heartbeat(lease, [], _DAY)).requests


async def heard(storage: Storage, lease: PodLease) -> list[str]:
    return [each.id for each in await storage.procs.hear_requests(lease)]


async def state(storage: Storage, request: PodRequest) -> RequestState:
    return (await storage.procs.pod_request(request.id)).state


async def the_pod(storage: Storage, host_id: HostId) -> PodState:
    [found] = [each for each in await storage.procs.pods() if each.pod.host_id == host_id]
    return found


# -- the way of a request ------------------------------------------------------------------------


async def test_a_request_is_told_by_the_beat_heard_and_answered(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage, lease_for=_DAY)
    assert not await is_asked(storage, lease)
    asked_at = clock.now()
    request = await ask(storage, lease, PodVerb.STACKS)
    assert request == PodRequest(
        id=request.id,
        host_id=lease.host_id,
        epoch=lease.epoch,
        verb=PodVerb.STACKS,
        asked_by="ada é",
        asked_at=asked_at,
        until=asked_at + ANSWERED_WITHIN,
        state=RequestState.WAITING,
    )
    assert await is_asked(storage, lease)
    clock.advance(SECOND)
    [taken] = await storage.procs.hear_requests(lease)
    assert (taken.id, taken.verb, taken.state) == (request.id, PodVerb.STACKS, RequestState.HEARD)
    assert taken.heard_at == clock.now()
    clock.advance(SECOND)
    told = 'thread "main" stands in é\n\x7f'
    assert await storage.procs.answer_request(lease, request.id, told)
    found = await storage.procs.pod_request(request.id)
    assert (found.state, found.done, found.answer) == (RequestState.ANSWERED, True, told)
    assert (found.heard_at, found.answered_at) == (asked_at + SECOND, asked_at + 2 * SECOND)
    assert not await is_asked(storage, lease)
    assert await heard(storage, lease) == []


async def test_an_answer_may_say_that_the_pod_did_not_do_it(storage: Storage) -> None:
    lease = await register(storage)
    request = await ask(storage, lease, PodVerb.RESUME)
    assert await storage.procs.answer_request(lease, request.id, "the pod stops", done=False)
    found = await storage.procs.pod_request(request.id)
    assert (found.state, found.done) == (RequestState.ANSWERED, False)


async def test_the_first_answer_stays(storage: Storage, clock: ManualClock) -> None:
    lease = await register(storage)
    request = await ask(storage, lease)
    at = clock.now()
    assert await storage.procs.answer_request(lease, request.id, "first")
    clock.advance(SECOND)
    assert await storage.procs.answer_request(lease, request.id, "second", done=False)
    found = await storage.procs.pod_request(request.id)
    assert (found.answer, found.done, found.answered_at) == ("first", True, at)


async def test_a_request_whose_reply_was_lost_is_heard_again_with_its_first_time(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage)
    request = await ask(storage, lease)
    first = clock.now()
    assert await heard(storage, lease) == [request.id]
    clock.advance(SECOND)
    [again] = await storage.procs.hear_requests(lease)
    assert (again.id, again.heard_at) == (request.id, first)


async def test_a_repeat_of_the_asking_asks_once(storage: Storage) -> None:
    lease = await register(storage)
    request = await ask(storage, lease)
    again = await storage.procs.ask_pod(lease.host_id, PodVerb.QUIET, request_id=request.id)
    assert again == request
    assert await heard(storage, lease) == [request.id]
    with pytest.raises(Conflict, match=request.id):
        await storage.procs.ask_pod(lease.host_id, PodVerb.STOP, request_id=request.id)
    other = await register(storage)
    with pytest.raises(Conflict, match=request.id):
        await storage.procs.ask_pod(other.host_id, PodVerb.QUIET, request_id=request.id)


async def test_requests_are_heard_in_the_order_in_which_they_were_made(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage)
    made = []
    for verb in PodVerb:
        made.append((await ask(storage, lease, verb)).id)
        clock.advance(MICROSECOND)
    assert await heard(storage, lease) == made
    newest = await storage.procs.pod_requests(lease.host_id)
    assert [each.id for each in newest] == made[::-1]


async def test_an_answer_leaves_the_other_requests_waiting(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage, lease_for=_DAY)
    first = await ask(storage, lease)
    clock.advance(SECOND)
    second = await ask(storage, lease, PodVerb.STACKS)
    assert await storage.procs.answer_request(lease, second.id, "here")
    assert await is_asked(storage, lease)
    assert await heard(storage, lease) == [first.id]
    assert await storage.procs.answer_request(lease, first.id, "quiet")
    assert not await is_asked(storage, lease)


async def test_a_request_makes_pods_beat(storage: Storage) -> None:
    lease = await register(storage)
    await storage.jobs.wait_for_work(frozenset(), timedelta(0))
    await ask(storage, lease)
    assert (await storage.jobs.wait_for_work(frozenset(), timedelta(seconds=20))).beat


# -- no pod obeys too late, or in the place of another ------------------------------------------


async def test_a_request_is_not_heard_once_its_time_is_over(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage, lease_for=_DAY)
    request = await ask(storage, lease, PodVerb.STOP)
    clock.advance(ANSWERED_WITHIN - MICROSECOND)
    assert await is_asked(storage, lease)
    assert await state(storage, request) is RequestState.WAITING
    clock.advance(MICROSECOND)
    assert not await is_asked(storage, lease)
    assert await heard(storage, lease) == []
    found = await storage.procs.pod_request(request.id)
    assert (found.state, found.heard_at) == (RequestState.UNANSWERED, None)


async def test_a_pod_that_heard_and_is_silent_is_unanswered_until_it_answers_late(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage, lease_for=_DAY)
    request = await ask(storage, lease, PodVerb.STOP)
    assert await heard(storage, lease) == [request.id]
    clock.advance(ANSWERED_WITHIN)
    found = await storage.procs.pod_request(request.id)
    assert found.state is RequestState.UNANSWERED
    assert found.heard_at is not None
    assert await heard(storage, lease) == []
    assert await storage.procs.answer_request(lease, request.id, "drains")
    assert await state(storage, request) is RequestState.ANSWERED


async def test_the_next_registration_hears_nothing_and_cannot_answer(storage: Storage) -> None:
    old = await register(storage)
    request = await ask(storage, old, PodVerb.STOP)
    new = await register(storage, host_id=old.host_id)
    assert not await is_asked(storage, new)
    assert await heard(storage, new) == []
    assert not await storage.procs.answer_request(new, request.id, "drains")
    assert await state(storage, request) is RequestState.WAITING
    another = await ask(storage, new, PodVerb.STACKS)
    assert await heard(storage, new) == [another.id]
    assert await is_asked(storage, new)
    assert another.epoch == new.epoch


async def test_a_late_answer_to_the_last_registration_leaves_requests_to_this_one(
    storage: Storage,
) -> None:
    old = await register(storage)
    request = await ask(storage, old)
    new = await register(storage, host_id=old.host_id)
    await ask(storage, new)
    assert await storage.procs.answer_request(old, request.id, "quiet")
    assert await is_asked(storage, new)


async def test_another_pod_hears_nothing(storage: Storage) -> None:
    lease, other = await register(storage), await register(storage)
    request = await ask(storage, lease)
    assert not await is_asked(storage, other)
    assert await heard(storage, other) == []
    assert not await storage.procs.answer_request(other, request.id, "quiet")
    assert await storage.procs.pod_requests(other.host_id) == []


async def test_a_pod_without_a_live_lease_cannot_be_asked(
    storage: Storage, clock: ManualClock
) -> None:
    lapsed, gone = await register(storage), await register(storage)
    await storage.procs.unregister(gone)
    clock.advance(LEASE)
    for host_id in (lapsed.host_id, gone.host_id, new_host_id()):
        with pytest.raises(NotFound, match=host_id):
            await storage.procs.ask_pod(host_id, PodVerb.STOP, request_id=new_job_id())


async def test_after_a_clock_was_set_back_a_request_is_not_obeyed_later(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage, lease_for=_DAY)
    await ask(storage, lease, PodVerb.STOP)
    clock.step_wall(-600)
    assert await heard(storage, lease) == []


async def test_an_answer_stays_when_the_pod_has_gone(storage: Storage) -> None:
    lease = await register(storage)
    request = await ask(storage, lease, PodVerb.STOP)
    assert await storage.procs.answer_request(lease, request.id, "drains")
    await storage.procs.unregister(lease)
    assert (await storage.procs.pod_request(request.id)).answer == "drains"
    assert lease.host_id not in {each.pod.host_id for each in await storage.procs.pods()}
    assert await storage.procs.answer_request(lease, request.id, "again")
    assert lease.host_id not in {each.pod.host_id for each in await storage.procs.pods()}


# -- bounds --------------------------------------------------------------------------------------


async def test_a_pod_is_asked_so_often_and_no_more(storage: Storage, clock: ManualClock) -> None:
    lease = await register(storage, lease_for=_DAY)
    first = [await ask(storage, lease) for _ in range(MOST_REQUESTS)]
    await storage.procs.answer_request(lease, first[0].id, "quiet")
    with pytest.raises(Conflict, match=lease.host_id):
        await ask(storage, lease)
    clock.advance(ANSWERED_WITHIN)
    last = await ask(storage, lease)
    newest = await storage.procs.pod_requests(lease.host_id)
    assert [each.id for each in newest] == [last.id, *[each.id for each in first[:0:-1]]]
    with pytest.raises(NotFound, match=first[0].id):
        await storage.procs.pod_request(first[0].id)


async def test_of_many_who_ask_at_once_no_more_are_heard(storage: Storage) -> None:
    lease = await register(storage)
    asked = [ask(storage, lease) for _ in range(2 * MOST_REQUESTS)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(each, Conflict) for each in outcomes) == MOST_REQUESTS
    assert len(await heard(storage, lease)) == MOST_REQUESTS


async def test_a_request_is_kept_for_an_hour(storage: Storage, clock: ManualClock) -> None:
    lease = await register(storage, lease_for=_DAY)
    request = await ask(storage, lease)
    await storage.procs.answer_request(lease, request.id, "quiet")
    clock.advance(REQUESTS_KEPT - MICROSECOND)
    assert await state(storage, request) is RequestState.ANSWERED
    clock.advance(MICROSECOND)
    with pytest.raises(NotFound, match=request.id):
        await storage.procs.pod_request(request.id)
    assert await storage.procs.pod_requests(lease.host_id) == []


async def test_an_answer_is_bounded(storage: Storage) -> None:
    lease = await register(storage)
    request = await ask(storage, lease)
    with pytest.raises(InvalidInput, match="answer"):
        await storage.procs.answer_request(lease, request.id, "é" * (MAX_ANSWER // 2) + "x")
    assert await heard(storage, lease) == [request.id]
    longest = "é" * (MAX_ANSWER // 2)
    assert await storage.procs.answer_request(lease, request.id, longest)
    assert (await storage.procs.pod_request(request.id)).answer == longest


@pytest.mark.parametrize(
    ("request_id", "by"), [("", "ada"), ("a b", "ada"), ("A" * 41, "ada"), ("A", "a" * 201)]
)
async def test_what_no_store_keeps_is_refused(storage: Storage, request_id: str, by: str) -> None:
    lease = await register(storage)
    assert len("a" * 201) > MAX_ASKED_BY
    with pytest.raises(InvalidInput, match=r"request|asked_by"):
        await storage.procs.ask_pod(
            lease.host_id, PodVerb.QUIET, request_id=request_id, asked_by=by
        )
    assert not await is_asked(storage, lease)


# -- quiet pods ----------------------------------------------------------------------------------


async def test_a_quiet_pod_drains_and_says_so_until_it_takes_work_again(storage: Storage) -> None:
    lease = await register(storage)
    await storage.procs.set_draining(lease, quiet=True)
    found = await the_pod(storage, lease.host_id)
    assert (found.draining, found.quiet, found.standing) == (True, True, "quiet")
    [allocation] = await storage.procs.allocations()
    assert allocation.draining == {lease.host_id}
    await storage.procs.end_draining(lease)
    found = await the_pod(storage, lease.host_id)
    assert (found.draining, found.quiet, found.standing) == (False, False, "live")
    [after] = await storage.procs.allocations()
    assert after.draining == frozenset()
    assert after.version != allocation.version


async def test_a_quiet_pod_that_stops_drains_for_good(storage: Storage) -> None:
    lease = await register(storage)
    await storage.procs.set_draining(lease, quiet=True)
    before = await storage.procs.allocations()
    await storage.procs.set_draining(lease)
    assert await storage.procs.allocations() == before
    found = await the_pod(storage, lease.host_id)
    assert (found.draining, found.quiet, found.standing) == (True, False, "draining")


async def test_the_end_of_draining_wakes_the_coordinator_once(storage: Storage) -> None:
    lease = await register(storage)
    await storage.procs.set_draining(lease, quiet=True)
    await storage.jobs.wait_for_work(frozenset(), timedelta(0))
    await storage.procs.end_draining(lease)
    assert (await storage.jobs.wait_for_work(frozenset(), timedelta(seconds=20))).fleet
    [before] = await storage.procs.allocations()
    await storage.procs.end_draining(lease)
    assert await storage.procs.allocations() == [before]


async def test_another_epoch_ends_no_draining(storage: Storage) -> None:
    old = await register(storage)
    new = await register(storage, host_id=old.host_id)
    await storage.procs.set_draining(new, quiet=True)
    await storage.procs.end_draining(old)
    assert (await the_pod(storage, new.host_id)).quiet


async def test_registering_again_ends_being_quiet(storage: Storage) -> None:
    lease = await register(storage)
    await storage.procs.set_draining(lease, quiet=True)
    await register(storage, host_id=lease.host_id)
    assert (await the_pod(storage, lease.host_id)).standing == "live"


async def test_a_quiet_pod_keeps_what_it_has_claimed(storage: Storage) -> None:
    lease = await register(storage)
    await enqueue_one(storage)
    [job] = await claim(storage, lease)
    await storage.procs.set_draining(lease, quiet=True)
    found = await the_pod(storage, lease.host_id)
    assert found.in_progress == {QUEUE: 1}
    assert job.claim.host_id == lease.host_id
