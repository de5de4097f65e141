"""A list of requests is treated as each of them would be alone."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.preparing import prepare_many
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.handlers.routing import Router
from forge_jobs.model.jobs import Job, NewJob, Unique
from forge_jobs.storage.opening import open_storage
from tests.support.factories import counters

pytestmark = pytest.mark.anyio

handlers = HandlerRegistry()


@handlers.job("mail.send", queue="mail", priority=7, max_attempts=2, timeout=9, tags=("a",))
async def send(to: str) -> None:
    """Declare options that are defaults for the jobs."""


REQUESTS = {
    "defaults of the handler": send.request("x"),
    "defaults by kind": EnqueueRequest("mail.send", {"to": "x"}),
    "explicit": send.request("x").options(priority=0, max_attempts=5, timeout=None, tags=()),
    "trace": send.request("x").options(trace={"traceparent": "00-1-2-03"}),
    "key": send.request("x").options(unique=Unique("k")),
    "rest": send.request("x").options(
        run_at=datetime(2031, 5, 1, tzinfo=UTC),
        expires_at=datetime(2031, 6, 1, tzinfo=UTC),
        metadata={"who": "me"},
        keep_result=False,
        queue="other",
    ),
}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[JobClient]:
    async with (
        await open_storage(f"sqlite:///{tmp_path}/jobs.db?synchronous=off") as storage,
        JobClient(storage, handlers) as opened,
    ):
        yield opened


def alike(job: Job | None) -> Job:
    """Without what differs from job to job."""
    assert job is not None
    assert len(job.id) == 26
    at = datetime(2030, 1, 1, tzinfo=UTC)
    due_at = job.due_at if job.due_at.year == 2031 else at
    return structs.replace(job, id="", enqueued_at=at, token=0, due_at=due_at)


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_job_of_a_list_is_stored_like_one_enqueued_alone(
    client: JobClient, name: str
) -> None:
    alone = await client.enqueue(REQUESTS[name])
    one = await client.get(alone.job_id)
    await client.delete(alone.job_id)
    [listed] = await client.enqueue_many([REQUESTS[name]])
    assert alike(await client.get(listed.job_id)) == alike(one)


async def test_a_list_is_counted_like_as_many_jobs(client: JobClient) -> None:
    keyed = send.request("x").options(unique_key="k")
    for request in (send.request("1"), keyed, keyed):
        await client.enqueue(request, queue="alone")
    await client.enqueue_many(
        [request.options(queue="listed") for request in (send.request("1"), keyed, keyed)]
    )
    counted = await counters(client.storage, "alone")
    assert counted == {"enqueued": 2, "deduplicated": 1}
    assert await counters(client.storage, "listed") == counted


def prepared(*requests: EnqueueRequest, router: Router | None = None) -> list[NewJob]:
    return [structs.replace(job, id="") for job in prepare_many(requests, handlers, router)]


@pytest.mark.parametrize(
    ("first", "second"), [(a, b) for a in REQUESTS for b in (*REQUESTS, "another payload")]
)
def test_what_came_before_changes_nothing(first: str, second: str) -> None:
    before = REQUESTS[first]
    after = REQUESTS.get(second) or structs.replace(before, payload={"to": "y"})
    assert prepared(before, after) == [*prepared(before), *prepared(after)]


@pytest.mark.parametrize("name", ["kind", "queue"])
def test_names_are_compared_one_by_one(name: str) -> None:
    requests = [EnqueueRequest("a", queue="a") for _ in range(3)]
    requests[1] = structs.replace(requests[1], **{name: "b"})
    assert [getattr(job, name) for job in prepared(*requests)] == ["a", "b", "a"]


def test_each_job_of_a_list_has_an_id_of_its_own_in_its_order() -> None:
    ids = [job.id for job in prepare_many([send.request("x")] * 3_000, handlers)]
    assert len(set(ids)) == 3_000
    assert ids == sorted(ids)


@pytest.mark.parametrize("option", [{"priority": 1}, {"max_attempts": 1}, {"keep_result": True}])
def test_a_value_that_only_equals_a_good_one_is_refused(option: dict[str, Any]) -> None:
    good = send.request("x").options(**option)
    wrong: dict[str, Any] = dict.fromkeys(option, 1.0)
    bad = send.request("x").options(**wrong)
    with pytest.raises(InvalidInput, match="is a float"):
        prepared(good, bad)


def test_payloads_of_a_list_are_checked_each() -> None:
    with pytest.raises(InvalidInput, match="send"):
        prepared(EnqueueRequest("mail.send", {"to": "x"}), EnqueueRequest("mail.send", {"to": 1}))


@pytest.mark.parametrize("name", ["metadata", "trace"])
def test_a_dictionary_that_has_changed_meanwhile_is_read_again(name: str) -> None:
    shared: dict[str, str] = {}
    option: dict[str, Any] = {name: shared}
    request = send.request("x").options(**option)

    def growing() -> Iterator[EnqueueRequest]:
        for key in ("a", "b"):
            yield request
            shared[key] = "1"

    jobs = list(prepare_many(growing(), handlers))
    assert [getattr(job, name) for job in jobs][1:] == ['{"a":"1"}']


def test_a_router_is_asked_for_each_request() -> None:
    turns = cycle("ab")
    jobs = prepared(*[EnqueueRequest("any")] * 3, router=lambda _: next(turns))
    assert [job.queue for job in jobs] == ["a", "b", "a"]
