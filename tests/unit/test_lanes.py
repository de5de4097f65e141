"""Lanes: what is batched, in which order, and who gets which answer."""

import asyncio
import contextvars
import math
from collections.abc import Iterable, Sequence
from datetime import timedelta

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict, Locked, SchemaMismatch, StorageClosed, Unavailable
from forge_jobs.lanes import Lane
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


class Store:
    """Answers each item with its own text. Fails calls that hold an item at fault."""

    def __init__(self, guilty: frozenset[int] = frozenset()) -> None:
        self.guilty = guilty
        self.calls: list[list[int]] = []
        self.applied: list[int] = []
        self.running = 0
        self.most_running = 0
        self.outages = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def call(self, items: Sequence[int]) -> list[str]:
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        self.calls.append(list(items))
        try:
            await self.gate.wait()
            await anyio.lowlevel.checkpoint()
            if self.outages:
                self.outages -= 1
                raise Unavailable("the store is away")
            at_fault = sorted(self.guilty.intersection(items))
            if at_fault:
                raise Conflict(f"item {at_fault[0]}")
            self.applied += items
            return [f"answer {item}" for item in items]
        finally:
            self.running -= 1


async def outcome_of(lane: Lane[int, str], item: int) -> str | Exception:
    try:
        return await lane.submit(item)
    except Exception as error:
        return error


async def submit_all(lane: Lane[int, str], items: Iterable[int]) -> list[str]:
    return await asyncio.gather(*(lane.submit(item) for item in items))


class TestBatching:
    async def test_an_idle_lane_sends_one_item_at_once(self) -> None:
        store = Store()

        assert await Lane(store.call).submit(7) == "answer 7"

        assert store.calls == [[7]]

    async def test_what_arrives_during_a_call_forms_the_next_batch_in_order(self) -> None:
        store = Store()
        lane = Lane(store.call)
        store.gate.clear()
        async with asyncio.TaskGroup() as callers:
            first = callers.create_task(lane.submit(0))
            await wait_until(lambda: store.calls, description="the first call is under way")
            rest = [callers.create_task(lane.submit(item)) for item in range(1, 6)]
            await anyio.lowlevel.checkpoint()
            store.gate.set()

        assert store.calls == [[0], [1, 2, 3, 4, 5]]
        assert [task.result() for task in (first, *rest)] == [f"answer {n}" for n in range(6)]

    async def test_never_has_two_calls_in_flight(self) -> None:
        store = Store()
        store.gate.clear()
        lane = Lane(store.call, max_items=3)

        async with asyncio.TaskGroup() as callers:
            callers.create_task(lane.submit(0))
            await wait_until(lambda: store.running, description="the call is under way")
            for item in range(1, 40):
                callers.create_task(lane.submit(item))
            await anyio.lowlevel.checkpoint()
            store.gate.set()

        assert store.most_running == 1
        assert store.applied == list(range(40))

    @pytest.mark.parametrize("count", [2, 3, 4, 7])
    async def test_a_call_holds_at_most_max_items(self, count: int) -> None:
        store = Store()
        lane = Lane(store.call, max_items=3)

        answers = await submit_all(lane, range(count))

        assert [len(call) for call in store.calls] == [3] * (count // 3) + [count % 3] * bool(
            count % 3
        )
        assert answers == [f"answer {n}" for n in range(count)]

    async def test_a_call_holds_at_most_max_bytes_unless_one_item_alone_is_larger(self) -> None:
        store = Store()
        lane = Lane(store.call, max_bytes=10, size_of=lambda item: item)

        await submit_all(lane, [4, 6, 1, 50, 9, 1, 1])

        assert store.calls == [[4, 6], [1], [50], [9, 1], [1]]

    async def test_items_count_as_much_as_count_of_says(self) -> None:
        store = Store()
        lane = Lane(store.call, max_items=10, count_of=lambda item: item)

        await submit_all(lane, [5, 5, 1, 20, 3])

        assert store.calls == [[5, 5], [1], [20], [3]]

    async def test_a_sort_key_orders_the_items_of_a_call_and_answers_stay_with_their_callers(
        self,
    ) -> None:
        store = Store()
        lane = Lane(store.call, sort_key=lambda item: -item)

        answers = await submit_all(lane, [1, 5, 3, 4])

        assert store.calls == [[5, 4, 3, 1]]
        assert answers == ["answer 1", "answer 5", "answer 3", "answer 4"]

    async def test_the_call_does_not_inherit_the_context_of_whoever_came_first(self) -> None:
        span: contextvars.ContextVar[str] = contextvars.ContextVar("span", default="none")
        seen: list[str] = []

        async def call(items: Sequence[int]) -> Sequence[int]:
            seen.append(span.get())
            return items

        span.set("of the caller")
        await Lane(call).submit(1)

        assert seen == ["none"]


class TestGuiltyItems:
    @given(count=st.integers(1, 60), drawn=st.frozensets(st.integers(0, 59)))
    async def test_every_innocent_gets_its_result_and_every_guilty_its_own_error(
        self, count: int, drawn: frozenset[int]
    ) -> None:
        guilty = drawn.intersection(range(count))
        store = Store(guilty)
        lane = Lane(store.call)

        outcomes = await asyncio.gather(*(outcome_of(lane, item) for item in range(count)))

        for item, outcome in enumerate(outcomes):
            if item in guilty:
                assert isinstance(outcome, Conflict)
                assert str(outcome) == f"item {item}"
            else:
                assert outcome == f"answer {item}"
        assert store.applied == [item for item in range(count) if item not in guilty]
        assert len(store.calls) <= 2 * len(guilty) * math.ceil(math.log2(max(count, 2))) + 1

    @pytest.mark.parametrize("trouble", [SchemaMismatch, StorageClosed])
    async def test_a_trouble_of_the_whole_store_is_not_searched_for_among_the_items(
        self, trouble: type[Exception]
    ) -> None:
        calls = 0

        async def call(items: Sequence[int]) -> Sequence[int]:
            nonlocal calls
            calls += 1
            raise trouble("of all")

        lane = Lane(call)

        outcomes = await asyncio.gather(
            *(lane.submit(n) for n in range(50)), return_exceptions=True
        )

        assert calls == 1
        assert {type(outcome) for outcome in outcomes} == {trouble}
        assert len({id(outcome) for outcome in outcomes}) == 50

    async def test_a_call_that_answers_too_little_fails_its_callers_and_the_lane_goes_on(
        self,
    ) -> None:
        answers = [[], ["fine"]]

        async def call(items: Sequence[int]) -> Sequence[str]:
            return answers.pop(0)

        lane = Lane(call)
        with pytest.raises(RuntimeError, match="0 results for 1 items"):
            await lane.submit(1)

        assert await lane.submit(2) == "fine"


class TestOutages:
    async def test_unavailable_is_repeated_and_nobody_notices(self) -> None:
        store = Store()
        store.outages = 2

        assert await submit_all(Lane(store.call), [1, 2]) == ["answer 1", "answer 2"]

        assert store.calls == [[1, 2]] * 3

    async def test_unavailable_is_raised_to_all_after_repeat_for(self) -> None:
        store = Store()
        store.outages = 1_000_000
        lane = Lane(store.call, repeat_for=timedelta(milliseconds=30))

        outcomes = await asyncio.gather(*(lane.submit(n) for n in range(3)), return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3
        assert len(store.calls) >= 2
        assert all(call == [0, 1, 2] for call in store.calls)

    async def test_a_lane_works_again_after_an_outage_that_it_reported(self) -> None:
        store = Store()
        store.outages = 1
        lane = Lane(store.call, repeat_for=timedelta(0))
        with pytest.raises(Unavailable):
            await lane.submit(1)

        assert await lane.submit(2) == "answer 2"

    async def test_how_long_to_repeat_is_counted_on_the_clock_that_was_given(self) -> None:
        clock = ManualClock()
        calls = 0

        async def call(items: Sequence[int]) -> Sequence[int]:
            nonlocal calls
            calls += 1
            if calls == 2:
                clock.advance(3600)
            raise Unavailable("away")

        with pytest.raises(Unavailable):
            await Lane(call, repeat_for=timedelta(hours=1), clock=clock).submit(1)

        assert calls == 2


class TestCancellation:
    @pytest.mark.parametrize("how", ["native", "scope"])
    async def test_a_cancelled_waiter_leaves_the_call_and_its_neighbours_alone(
        self, how: str
    ) -> None:
        store = Store()
        store.gate.clear()
        lane = Lane(store.call)
        scope = anyio.CancelScope()

        async def wait_in_scope() -> None:
            with scope:
                await lane.submit(2)

        neighbour = asyncio.ensure_future(lane.submit(1))
        waiter = asyncio.ensure_future(wait_in_scope())
        await wait_until(lambda: store.running, description="both are in one call")
        if how == "native":
            waiter.cancel()
        else:
            scope.cancel()
        await asyncio.wait([waiter])
        store.gate.set()

        assert await neighbour == "answer 1"
        assert waiter.cancelled() if how == "native" else scope.cancelled_caught
        assert store.calls == [[1, 2]]
        assert store.applied == [1, 2]

    async def test_what_a_cancelled_waiter_submitted_is_sent_nevertheless(self) -> None:
        store = Store()
        store.gate.clear()
        lane = Lane(store.call)
        first = asyncio.ensure_future(lane.submit(1))
        await wait_until(lambda: store.calls, description="the first call is under way")
        waiter = asyncio.ensure_future(lane.submit(2))
        await anyio.lowlevel.checkpoint()
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        store.gate.set()
        await first

        await lane.flush()

        assert store.applied == [1, 2]

    async def test_the_end_of_the_lanes_own_task_is_told_to_all_who_wait(self) -> None:
        store = Store()
        store.gate.clear()
        lane = Lane(store.call, max_items=1)
        waiters = [asyncio.ensure_future(lane.submit(item)) for item in (1, 2)]
        await wait_until(lambda: store.calls, description="the call is under way")
        for task in asyncio.all_tasks():
            if getattr(task.get_coro(), "__qualname__", "") == "Lane._run":
                task.cancel()

        outcomes = await asyncio.gather(*waiters, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [Unavailable, Unavailable]
        store.gate.set()
        assert await lane.submit(3) == "answer 3"

    def test_the_end_of_the_loop_leaves_nobody_waiting(self) -> None:
        async def main() -> None:
            store = Store()
            store.gate.clear()
            lane = Lane(store.call)
            waiter = asyncio.ensure_future(lane.submit(1))
            await wait_until(lambda: store.calls, description="the call is under way")
            waiters.append(waiter)

        waiters: list[asyncio.Future[str]] = []
        asyncio.run(main())

        assert waiters[0].cancelled()


class TestFlush:
    async def test_flush_of_an_idle_lane_returns_at_once(self) -> None:
        await Lane(Store().call).flush()

    async def test_flush_waits_for_the_call_under_way(self) -> None:
        store = Store()
        lane = Lane(store.call)
        store.gate.clear()
        async with asyncio.TaskGroup() as callers:
            callers.create_task(lane.submit(0))
            await wait_until(lambda: store.running, description="the lane is busy")
            flushing = callers.create_task(lane.flush())
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            ended_early = flushing.done()
            store.gate.set()
        assert not ended_early

    async def test_flush_waits_for_its_own_items_also_when_later_ones_end_first(self) -> None:
        store = Store(guilty=frozenset({9}))
        lane = Lane(store.call, sort_key=lambda item: -item)
        store.gate.clear()
        async with asyncio.TaskGroup() as callers:
            callers.create_task(lane.submit(0))
            await wait_until(lambda: store.running, description="the lane is busy")
            first = callers.create_task(lane.submit(1))
            await anyio.lowlevel.checkpoint()
            flushing = callers.create_task(lane.flush())
            await anyio.lowlevel.checkpoint()
            for item in (9, 8, 7):
                callers.create_task(outcome_of(lane, item))
            await anyio.lowlevel.checkpoint()
            store.gate.set()
            await flushing
            assert first.done()

    async def test_flush_waits_for_what_was_submitted_before_and_not_for_what_comes_later(
        self,
    ) -> None:
        store = Store(guilty=frozenset({2}))
        store.gate.clear()
        lane = Lane(store.call, max_items=2)
        async with asyncio.TaskGroup() as callers:
            before = [callers.create_task(outcome_of(lane, item)) for item in (1, 2, 3)]
            await wait_until(lambda: store.running, description="the call is under way")
            flushing = callers.create_task(lane.flush())
            store.gate.set()
            await flushing
            assert store.applied == [1, 3]
            callers.create_task(lane.submit(4))
            await asyncio.gather(*before)

        assert store.applied == [1, 3, 4]


class TestLocked:
    async def test_a_locked_item_is_found_and_sent_again_while_others_go_on(self) -> None:
        locked, sent = {3}, Store()

        async def call(items: Sequence[int]) -> list[str]:
            if locked.intersection(items):
                sent.calls.append(list(items))
                raise Locked("somebody holds it")
            return await sent.call(items)

        lane = Lane(call, repeat_for=timedelta(seconds=60))
        async with asyncio.TaskGroup() as callers:
            late = callers.create_task(lane.submit(3))
            async with asyncio.TaskGroup() as others:
                for item in (1, 2, 4, 5):
                    others.create_task(lane.submit(item))
            assert sorted(sent.applied) == [1, 2, 4, 5]
            assert await lane.submit(6) == "answer 6"
            flushed = callers.create_task(lane.flush())
            await wait_until(lambda: sent.calls.count([3]) > 2, description="it is sent again")
            assert not late.done()
            assert not flushed.done()
            locked.clear()
        assert late.result() == "answer 3"

    async def test_an_item_that_stays_locked_fails_after_the_time_for_repeats(self) -> None:
        calls: list[int] = []

        async def call(items: Sequence[int]) -> list[str]:
            calls.extend(items)
            raise Locked("somebody holds it")

        with pytest.raises(Locked):
            await Lane(call, repeat_for=timedelta(seconds=0.2)).submit(3)
        assert len(calls) > 1
