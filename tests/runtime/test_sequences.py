"""Sequences that handlers declare, in pods as they are."""

from collections import defaultdict
from contextlib import AsyncExitStack

import pytest
from msgspec import UNSET, UnsetType

from forge_jobs import EnqueueRequest, HandlerRegistry, Sequence
from forge_jobs.errors import InvalidInput, RegistrationError
from forge_jobs.handlers.preparing import prepare
from forge_jobs.model.jobs import JobStatus, Line
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, job_when

pytestmark = pytest.mark.anyio


class Orders:
    """The kind ``order.event``, whose runs are noted by order."""

    def __init__(self, sequence: Sequence) -> None:
        self.ran: defaultdict[str, list[int]] = defaultdict(list)
        self.running: set[str] = set()
        self.handlers = HandlerRegistry()

        async def event(order: str, number: int) -> None:
            assert order not in self.running
            self.running.add(order)
            self.ran[order].append(number)
            self.running.discard(order)

        self.event = self.handlers.register(event, "order.event", sequence=sequence)


async def test_two_pods_run_the_jobs_of_each_key_in_order(storage: Storage) -> None:
    orders = Orders(Sequence("order:{order}"))
    async with AsyncExitStack() as pods:
        handle, other = [
            await pods.enter_async_context(a_runtime(storage, orders.handlers, 4).start())
            for _ in range(2)
        ]
        first = [orders.event.request(order, number) for number in range(4) for order in "abc"]
        outcomes = list(await handle.enqueue_many(first))
        for number in range(4, 6):
            outcomes += [await other.enqueue(orders.event.request(each, number)) for each in "abc"]
        for outcome in outcomes:
            await job_when(storage, outcome.job_id, JobStatus.DONE)
    assert orders.ran == {order: list(range(6)) for order in "abc"}


def line_of(handlers: HandlerRegistry, key: str | UnsetType = UNSET) -> Line | None:
    request = EnqueueRequest("order.event", {"order": "7", "number": 1}, sequence_key=key)
    return prepare(request, handlers).sequence


def test_the_key_is_made_of_the_arguments_or_given() -> None:
    handlers = Orders(Sequence("order:{order}", on_failure="skip")).handlers
    assert line_of(handlers) == Line("order:7", "skip")
    assert line_of(handlers, "vip") == Line("vip", "skip")
    assert line_of(handlers, "") is None
    assert prepare(EnqueueRequest("k", {}, sequence_key="a")).sequence == Line("a", "wait")
    assert prepare(EnqueueRequest("k", {})).sequence is None


@pytest.mark.parametrize(
    ("sequence", "problem"),
    [
        ("order:{order}", "sequence: is a str"),
        (Sequence(""), "sequence.key: is empty"),
        (Sequence("orders"), "sequence.key: names no argument"),
        (Sequence("{order.id}"), "with more than a name"),
        (Sequence("{customer}"), "which is no argument of the handler"),
        (Sequence("{order}", "hold"), "sequence.on_failure: is 'hold'"),  # type: ignore[arg-type]
    ],
)
def test_a_sequence_that_cannot_be_is_refused(sequence: object, problem: str) -> None:
    with pytest.raises(RegistrationError, match=problem):
        Orders(sequence)  # type: ignore[arg-type]


def test_a_key_that_is_no_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="sequence_key"):
        prepare(EnqueueRequest("k", {}, sequence_key="a\nb"))
