"""An outcome tells the type of the result, and the result is of that type."""

import pickle
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pydantic
import pytest

from forge_jobs import (
    EnqueueOutcome,
    EnqueueRequest,
    HandlerRegistry,
    InvalidInput,
    JobClient,
    JobContext,
    Snoozed,
    SyncJobClient,
    open_storage,
)
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime

if TYPE_CHECKING:
    from forge_jobs.model.jobs import Job as Receipt

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


@dataclass(frozen=True)
class Report:
    pages: int
    day: date


class Model(pydantic.BaseModel):
    name: str


class Opaque:
    """No JSON type."""


handlers = HandlerRegistry()
DAY = date(2026, 1, 31)


@handlers.job("report")
async def report(pages: int) -> Report:
    return Report(pages, DAY)


@handlers.job("model")
def model(ctx: JobContext) -> Model:
    return Model(name="a model")


@handlers.job("several")
async def several() -> list[tuple[int, timedelta]] | Snoozed:
    return [(1, timedelta(minutes=1))]


@handlers.job("bare")
async def bare():  # type: ignore[no-untyped-def]
    return {"pages": 1}


@handlers.job("object")
async def an_object() -> object:
    return {"pages": 1}


@handlers.job("nothing")
async def nothing() -> None: ...


@handlers.job("opaque", max_attempts=1)
async def opaque() -> Opaque:
    return {"pages": 1}  # type: ignore[return-value]


@handlers.job("elsewhere")
async def elsewhere() -> "Receipt":
    return {"pages": 1}  # type: ignore[return-value]


@handlers.job("liar")
async def liar() -> int:
    return "no number"  # type: ignore[return-value]


@pytest.fixture
async def client(storage: Storage) -> AsyncIterator[JobClient]:
    async with a_runtime(storage, handlers).start() as handle:
        yield handle.client


async def result_of(client: JobClient, request: EnqueueRequest) -> Any:
    return await client.result(await client.enqueue(request), timeout=60)


async def test_the_result_of_an_outcome_is_what_the_handler_returned(client: JobClient) -> None:
    assert await result_of(client, report.request(7)) == Report(7, DAY)
    assert await result_of(client, model.request()) == Model(name="a model")
    assert await result_of(client, several.request()) == [(1, timedelta(minutes=1))]
    assert await result_of(client, nothing.request()) is None


async def test_those_of_many_are_too(client: JobClient) -> None:
    outcomes = await client.enqueue_many([report.request(7), model.request()])
    results = [await client.result(outcome, timeout=60) for outcome in outcomes]
    assert results == [Report(7, DAY), Model(name="a model")]


async def test_an_id_gives_json_types_or_the_type_that_is_asked_for(client: JobClient) -> None:
    outcome = await client.enqueue(report.request(7))
    plain = {"pages": 7, "day": "2026-01-31"}
    assert await client.result(outcome.job_id, timeout=60) == plain
    assert await client.result(outcome.job_id, 60, Report) == Report(7, DAY)
    assert await client.result(outcome, 60, dict) == plain
    with pytest.raises(InvalidInput, match="type: does not fit the result of job"):
        await client.result(outcome.job_id, 60, int)


async def test_where_no_type_is_known_the_result_has_json_types(client: JobClient) -> None:
    for request in (EnqueueRequest("report", {"pages": 7}), bare.request(), an_object.request()):
        assert (await result_of(client, request))["pages"] in (1, 7)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (
            elsewhere.request(),
            "is Receipt, as the annotation of elsewhere says, which is not there",
        ),
        (opaque.request(), "cannot be read from the result"),
        (liar.request(), "does not fit the result"),
    ],
)
async def test_a_type_that_no_result_can_have_is_refused_in_words(
    client: JobClient, request_: EnqueueRequest, says: str
) -> None:
    outcome = await client.enqueue(request_)
    with pytest.raises(InvalidInput, match=says):
        await client.result(outcome, timeout=60)
    assert await client.result(outcome.job_id, timeout=60) in ({"pages": 1}, "no number")


async def test_a_blocking_client_reads_the_same(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with await open_storage(url) as storage, a_runtime(storage, handlers).start():
        import anyio.to_thread

        def asks() -> list[Any]:
            with SyncJobClient(lambda: open_storage(url)) as client:
                [first, second] = client.enqueue_many([report.request(1), report.request(2)])
                read = [client.result(first, 60), client.result(second.job_id, 60, Report)]
                return [*read, client.result(second.job_id, 60)["pages"]]

        assert await anyio.to_thread.run_sync(asks) == [Report(1, DAY), Report(2, DAY), 2]


async def test_the_type_is_no_part_of_what_others_see_of_an_outcome(client: JobClient) -> None:
    outcome = await client.enqueue(report.request(7))
    assert outcome.result_type is Report
    assert outcome == EnqueueOutcome(outcome.job_id)
    assert hash(outcome) == hash(EnqueueOutcome(outcome.job_id))
    assert set(msgspec.to_builtins(outcome)) == {
        "job_id", "deduplicated", "replaced", "follow_up", "struck_by",
    }  # fmt: skip
    assert pickle.loads(pickle.dumps(outcome)).result_type is Any


async def test_in_a_handler_too(storage: Storage) -> None:
    own = HandlerRegistry()
    own.include(handlers)

    @own.job("asks")
    async def asks(ctx: JobContext) -> list[str]:
        one = await ctx.enqueue(report.request(7), priority=1)
        [two] = await ctx.enqueue_many([model.request()])
        return [one.result_type.__name__, two.result_type.__name__]

    async with a_runtime(storage, own).start() as handle:
        outcome = await handle.enqueue(asks.request())
        assert await handle.result(outcome, timeout=60) == ["Report", "Model"]
