"""Spans of enqueues and runs, as the SDK of OpenTelemetry exports them."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.outcomes import Again, Dead, Failed, RateLimited, Snoozed, Throttled
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.protocols import Storage
from forge_jobs.tracing import enqueues, runs
from tests.support.factories import get_job
from tests.support.runtimes import a_runtime, ended, found_no_work, job_when
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

SECRET = "swordfish"
# A process has one provider for good.
_EXPORTER, _ADDED = InMemorySpanExporter(), list[bool]()


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """The spans that have ended since the test began."""
    if not _ADDED:
        if not isinstance(trace.get_tracer_provider(), TracerProvider):
            trace.set_tracer_provider(TracerProvider())
        provider = trace.get_tracer_provider()
        assert isinstance(provider, TracerProvider)
        provider.add_span_processor(SimpleSpanProcessor(_EXPORTER))
        _ADDED.append(True)
    _EXPORTER.clear()
    yield _EXPORTER
    _EXPORTER.clear()


def traced() -> HandlerRegistry:
    return HandlerRegistry(enqueue_middleware=[enqueues], middleware=[runs])


async def the_spans(exporter: InMemorySpanExporter, kind: SpanKind, count: int) -> Any:
    """Wait for so many spans of a kind. A span ends a moment behind the job."""

    def found() -> list[ReadableSpan]:
        return [span for span in exporter.get_finished_spans() if span.kind is kind]

    await wait_until(lambda: len(found()) >= count, description=f"{count} spans have ended")
    assert len(found()) == count
    return found()


async def test_a_run_is_linked_to_its_enqueue_and_a_root_of_its_own(
    storage: Storage, spans: InMemorySpanExporter
) -> None:
    handlers = traced()

    @handlers.job("order.pack")
    def pack(ctx: JobContext, card: str) -> None:
        with trace.get_tracer("shop").start_as_current_span("look"):
            ctx.sync.enqueue(send.request())

    @handlers.job("order.send")
    async def send() -> None: ...

    async with a_runtime(storage, handlers).start() as handle:
        with trace.get_tracer("shop").start_as_current_span("POST /orders") as caller:
            job_id = (await handle.enqueue(pack.request(SECRET))).job_id
        job = await ended(storage, job_id)
        packed, sent = await the_spans(spans, SpanKind.CONSUMER, 2)
        asked, asked_next = await the_spans(spans, SpanKind.PRODUCER, 2)

    assert (asked.name, packed.name, sent.name) == (
        "enqueue order.pack",
        "process order.pack",
        "process order.send",
    )
    assert asked.parent == caller.get_span_context()
    assert packed.parent is None
    assert [link.context.span_id for link in packed.links] == [asked.context.span_id]
    assert [link.context.span_id for link in sent.links] == [asked_next.context.span_id]
    [look] = [span for span in spans.get_finished_spans() if span.name == "look"]
    assert look.parent is not None
    assert look.parent.span_id == packed.context.span_id
    assert asked_next.parent.span_id == look.context.span_id
    assert f"{asked.context.trace_id:032x}-{asked.context.span_id:016x}" in job.trace
    assert dict(packed.attributes) == {
        "messaging.system": "forge_jobs",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": job_id,
        "forge_jobs.kind": "order.pack",
        "forge_jobs.attempt": 1,
    }
    assert asked.attributes["messaging.message.id"] == job_id
    assert SECRET not in "".join(span.to_json() for span in spans.get_finished_spans())


@pytest.mark.any_store
@pytest.mark.parametrize(
    ("raised", "outcome", "error"),
    [
        (Snoozed(3_600), "snoozed", None),
        (Throttled(3_600), "throttled", None),
        (RateLimited("upstream"), "ratelimited", None),
        (ExceptionGroup("of a task group", [Snoozed(3_600)]), "snoozed", None),
        (Again(after=3_600), "again", None),
        (Failed(SECRET), None, "Failed"),
        (Dead(SECRET), None, "Dead"),
        (LookupError(SECRET), None, "LookupError"),
        (ExceptionGroup("two", [Snoozed(1), KeyError(SECRET)]), None, "ExceptionGroup"),
    ],
    ids=repr,
)
async def test_only_failures_are_errors_and_no_message_is_recorded(
    raised: Exception,
    outcome: str | None,
    error: str | None,
    storage: Storage,
    spans: InMemorySpanExporter,
) -> None:
    handlers = traced()

    @handlers.job("tells", max_attempts=1)
    async def tells() -> None:
        raise raised

    async with a_runtime(storage, handlers).start() as handle:
        await handle.enqueue(tells.request())
        [span] = await the_spans(spans, SpanKind.CONSUMER, 1)

    assert span.attributes.get("forge_jobs.outcome") == outcome
    assert span.attributes.get("error.type") == error
    assert span.status.status_code is (StatusCode.ERROR if error else StatusCode.UNSET)
    assert not span.events
    assert SECRET not in span.to_json()


@pytest.mark.any_store
async def test_a_cancel_is_no_error(storage: Storage, spans: InMemorySpanExporter) -> None:
    handlers, begun = traced(), anyio.Event()

    @handlers.job("waits")
    async def waits() -> None:
        begun.set()
        await anyio.sleep_forever()

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(waits.request())).job_id
        await begun.wait()
        await handle.client.cancel(job_id)
        await job_when(storage, job_id, JobStatus.CANCELLED)
        [span] = await the_spans(spans, SpanKind.CONSUMER, 1)

    assert span.attributes["forge_jobs.outcome"] == "cancelled"
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.any_store
async def test_each_job_of_many_has_its_own_span_and_a_refused_one_is_an_error(
    storage: Storage, spans: InMemorySpanExporter
) -> None:
    handlers = traced()

    @handlers.job("counts")
    async def counts(number: int) -> None: ...

    async with a_runtime(storage, handlers, workers=0).start() as handle:
        outcomes = await handle.enqueue_many(counts.request(number) for number in range(3))
        asked = await the_spans(spans, SpanKind.PRODUCER, 3)
        assert {span.attributes["messaging.message.id"] for span in asked} == {
            outcome.job_id for outcome in outcomes
        }
        jobs = [await get_job(storage, outcome.job_id) for outcome in outcomes]
        assert len({job.trace for job in jobs}) == 3
        spans.clear()
        with pytest.raises(ValueError, match="white space"):
            await handle.enqueue(counts.request(1).options(queue="no such name!"))
        [refused] = await the_spans(spans, SpanKind.PRODUCER, 1)
        assert refused.status.status_code is StatusCode.ERROR


@pytest.mark.any_store
async def test_an_idle_pod_makes_no_span(storage: Storage, spans: InMemorySpanExporter) -> None:
    async with a_runtime(storage, traced()).start() as handle:
        await found_no_work(handle)
    assert not spans.get_finished_spans()


_WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
import forge_jobs, forge_jobs.cli.main, forge_jobs.web
try:
    import forge_jobs.tracing
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.long
def test_without_the_extra_only_tracing_is_missing() -> None:
    done = subprocess.run(
        (sys.executable, "-c", _WITHOUT), capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        "forge_jobs.tracing needs opentelemetry-api; pip install 'forge-jobs[otel]'\n"
    )


def test_what_is_not_traced_imports_nothing_of_opentelemetry() -> None:
    program = (
        "import sys, forge_jobs, forge_jobs.runtime.runtime\n"
        "print([name for name in sys.modules if 'opentel' in name])"
    )
    done = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
