"""Operators ask pods: the answer, no answer, the record, and the undo."""

import asyncio

import pytest

from forge_jobs.errors import Forbidden, InvalidInput, NotFound
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import new_host_id
from forge_jobs.model.pod_requests import PodVerb, RequestState
from forge_jobs.operating.access import ALL, Access, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage
from tests.support.factories import LEASE, register
from tests.support.requests import answered
from tests.support.runtimes import a_runtime
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


def an_operator(storage: Storage, access: Access = ALL) -> Operator:
    return Operator(storage, Actor(name="ada", surface="api", access=access))


async def test_a_pod_is_quieted_and_the_record_says_who_did(storage: Storage) -> None:
    async with a_runtime(storage, HandlerRegistry()).start() as handle, an_operator(storage) as ada:

        async def quieted() -> bool:
            found = await ada.quiet_pod(handle.host_id)
            assert found.asked_by == "ada"
            # On a loaded machine a pod may stand still for the whole time of a request.
            return found.state is RequestState.ANSWERED and found.done

        await wait_until(quieted, description="the pod is quiet")
        [pod] = (await ada.list_pods()).pods
        assert pod.standing == "quiet"
        newest = (await ada.pod_requests(handle.host_id)).requests[0]
        assert newest.verb is PodVerb.QUIET
        assert newest.summary.startswith("The pod answered after ")
        records = (await ada.list_actions()).actions
        [action] = [each for each in records if each.before != each.after]
        assert (action.verb, action.target, action.actor) == ("quiet_pod", handle.host_id, "ada")
        assert (action.before, action.after) == ("false", "true")
        await ada.undo_action(action.id)

        async def is_live() -> bool:
            [state] = (await ada.list_pods()).pods
            return state.standing == "live"

        asked = (await ada.pod_requests(handle.host_id)).requests[0]
        assert asked.verb is PodVerb.RESUME
        # The undo asks once. Where the pod stood still meanwhile, a second request follows.
        try:
            await wait_until(is_live, description="the undo has let it resume", timeout=10)
        except AssertionError:
            await answered(storage, handle.host_id, PodVerb.RESUME)


async def test_a_pod_that_does_not_hear_is_unanswered_and_says_so(storage: Storage) -> None:
    lease = await register(storage)
    async with an_operator(storage) as ada:
        found = await ada.stop_pod(lease.host_id)
    assert (found.state, found.heard_at) == (RequestState.UNANSWERED, None)
    assert "never will" in found.summary


async def test_a_pod_that_hears_and_dies_is_unanswered_and_may_have_acted(
    storage: Storage,
) -> None:
    lease = await register(storage)

    async def hear() -> None:
        async def heard() -> bool:
            return bool(await storage.procs.hear_requests(lease))

        await wait_until(heard, description="the request is heard")

    async with an_operator(storage) as ada:
        hearing = asyncio.ensure_future(hear())
        found = await ada.stop_pod(lease.host_id)
        await hearing
        assert found.state is RequestState.UNANSWERED
        [found] = (await ada.pod_requests(lease.host_id)).requests
    assert found.heard_at is not None
    assert "may have acted" in found.summary


async def test_what_cannot_be_asked_is_refused(storage: Storage) -> None:
    lease = await register(storage, lease_for=LEASE)
    async with an_operator(storage) as ada:
        with pytest.raises(NotFound, match="live pod"):
            await ada.show_stacks(new_host_id())
        with pytest.raises(InvalidInput, match="host_id"):
            await ada.quiet_pod("")
    narrow = Access(actions=frozenset({"*"}), queues=frozenset({"default"}))
    async with an_operator(storage, narrow) as bob:
        with pytest.raises(Forbidden):
            await bob.stop_pod(lease.host_id)
        with pytest.raises(Forbidden):
            await bob.pod_requests(lease.host_id)
    async with an_operator(storage, Access()) as reader:
        with pytest.raises(Forbidden):
            await reader.show_stacks(lease.host_id)
        assert (await reader.pod_requests(lease.host_id)).requests == ()
    assert await storage.procs.pod_requests(lease.host_id) == []
