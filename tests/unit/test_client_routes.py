"""The queue of a kind whose handler the client does not have: what pods publish."""

import logging
from collections.abc import AsyncIterator, Mapping

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.clients.routes import KNOWN_FOR_S, UNKNOWN_FOR_S
from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.handlers.routing import prefix_router
from forge_jobs.model.filters import JobFilter
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.factories import LEASE, a_pod
from tests.support.faulty import Faults, faulty

pytestmark = pytest.mark.anyio


@pytest.fixture
async def storage() -> AsyncIterator[Storage]:
    async with await open_storage("sqlite:///:memory:") as opened:
        yield opened


REQUEST = EnqueueRequest("mail.send", {"to": "me"})


async def publish(storage: Storage, kinds: Mapping[str, str | None]) -> None:
    """Register a pod that names these queues for its kinds."""
    named = {kind: queue for kind, queue in kinds.items() if queue is not None}
    await storage.procs.register(a_pod(kinds=tuple(kinds), routes=named), LEASE)


async def queue_of(storage: Storage, job_id: str) -> str:
    [job] = (await storage.jobs.list(JobFilter(ids=(job_id,)))).jobs  # type: ignore[arg-type]
    return job.queue


async def test_a_client_without_the_handler_takes_the_queue_that_pods_publish(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    await publish(storage, {"mail.send": "mail"})
    client = JobClient(storage)
    outcome = await client.enqueue(REQUEST)
    [many, _] = await client.enqueue_many([REQUEST, REQUEST])
    assert await queue_of(storage, outcome.job_id) == "mail"
    assert await queue_of(storage, many.job_id) == "mail"
    assert await client.queue_of("mail.send") == "mail"
    assert caplog.records == []


async def test_what_the_request_names_comes_first(storage: Storage) -> None:
    await publish(storage, {"mail.send": "mail"})
    outcome = await JobClient(storage).enqueue(REQUEST, queue="mine")
    assert await queue_of(storage, outcome.job_id) == "mine"


async def test_the_handler_at_hand_comes_before_what_pods_publish(storage: Storage) -> None:
    await publish(storage, {"mail.send": "theirs"})
    handlers = HandlerRegistry()

    @handlers.job("mail.send", queue="ours")
    async def send(to: str) -> None: ...

    outcome = await JobClient(storage, handlers).enqueue(REQUEST)
    assert await queue_of(storage, outcome.job_id) == "ours"


async def test_what_pods_publish_comes_before_the_router(storage: Storage) -> None:
    """The pods have the handler, whose queue comes before a router everywhere else too."""
    await publish(storage, {"mail.send": "slow", "mail.open": None})
    client = JobClient(storage, router=prefix_router())
    assert await client.queue_of("mail.send") == "slow"
    assert await client.queue_of("mail.open") == "mail"
    assert await client.queue_of("mail.else") == "mail"


async def test_a_kind_that_nobody_knows_goes_to_default_with_one_warning(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    client = JobClient(storage)
    for _ in range(3):
        outcome = await client.enqueue(REQUEST)
    assert await queue_of(storage, outcome.job_id) == "default"
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "'mail.send'" in record.message
    assert "'default'" in record.message


async def test_a_kind_without_a_queue_that_pods_know_goes_to_default_without_a_word(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    await publish(storage, {"mail.send": None})
    assert await JobClient(storage).queue_of("mail.send") == "default"
    assert caplog.records == []


async def test_asking_what_pods_publish_is_bounded(storage: Storage) -> None:
    faults, clock = Faults(), ManualClock()
    client = JobClient(faulty(storage, faults), clock=clock)
    for _ in range(5):
        await client.enqueue(REQUEST)
    assert faults.calls["routes"] == 1
    clock.advance(UNKNOWN_FOR_S)
    await publish(storage, {"mail.send": "mail"})
    for _ in range(5):
        assert await client.queue_of("mail.send") == "mail"
    assert faults.calls["routes"] == 2
    clock.advance(KNOWN_FOR_S - 1)
    await client.enqueue(REQUEST)
    assert faults.calls["routes"] == 2
    clock.advance(1)
    await client.enqueue_many([REQUEST, EnqueueRequest("other"), EnqueueRequest("third")])
    assert faults.calls["routes"] == 3


async def test_nothing_is_asked_where_the_request_or_its_handler_says_all(
    storage: Storage,
) -> None:
    faults = Faults()
    handlers = HandlerRegistry()

    @handlers.job("mail.send")
    async def send(to: str) -> None: ...

    client = JobClient(faulty(storage, faults), handlers)
    await client.enqueue(REQUEST)
    await client.enqueue(send.request("me"))
    await client.enqueue(EnqueueRequest("elsewhere"), queue="q")
    await JobClient(faulty(storage, faults)).enqueue(send.request("me"))
    assert faults.calls["routes"] == 0


async def test_what_was_published_counts_while_the_fleet_is_down(storage: Storage) -> None:
    clock = ManualClock()
    client = JobClient(storage, clock=clock)
    lease = await storage.procs.register(
        a_pod(kinds=("mail.send",), routes={"mail.send": "mail"}), LEASE
    )
    assert await client.queue_of("mail.send") == "mail"
    await storage.procs.unregister(lease)
    clock.advance(KNOWN_FOR_S)
    assert await client.queue_of("mail.send") == "mail"


def registry() -> HandlerRegistry:
    handlers = HandlerRegistry()

    @handlers.job("gh.sync_issue", queue="gh")
    async def sync_issue(number: int) -> None: ...

    return handlers


async def test_a_misspelt_kind_is_refused_where_the_registry_is_at_hand(storage: Storage) -> None:
    client = JobClient(storage, registry())
    with pytest.raises(InvalidInput, match=r"kind: is 'gh.sync_isue', which no .* 'gh.sync_issue'"):
        await client.enqueue(EnqueueRequest("gh.sync_isue", {"number": 1}))
    with pytest.raises(InvalidInput, match=r"did you mean 'gh.sync_issue'"):
        await client.enqueue_many([EnqueueRequest("gh.sync_isue", {"number": 1})])


async def test_a_kind_that_pods_run_is_not_misspelt(storage: Storage) -> None:
    await publish(storage, {"gh.sync_issues": "many"})
    client = JobClient(storage, registry())
    assert await client.queue_of("gh.sync_issues") == "many"


async def test_a_kind_with_a_queue_is_stored_with_a_warning_when_it_seems_misspelt(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    client = JobClient(storage, registry())
    outcome = await client.enqueue(EnqueueRequest("gh.sync_isue"), queue="gh")
    assert await queue_of(storage, outcome.job_id) == "gh"
    [record] = caplog.records
    assert "did you mean 'gh.sync_issue'" in record.message
