"""Traces by OpenTelemetry: a producer span for each enqueue, a linked consumer span for each run.

::

    from forge_jobs.tracing import enqueues, runs

    handlers = HandlerRegistry(enqueue_middleware=[enqueues], middleware=[runs])

Uses the API of OpenTelemetry alone, the extra ``otel``. The program brings an SDK and sets a
provider, else spans are nothing. A program that does not import this module pays nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Generator

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "forge_jobs.tracing needs opentelemetry-api; pip install 'forge-jobs[otel]'",
        name=missing.name,
    ) from missing

from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.outcomes import Dead, Failed, Outcome, said_by
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import EnqueueOutcome

# Uses the provider of the program from when the program sets one.
_TRACER = trace.get_tracer("forge_jobs")


def enqueues(request: EnqueueRequest) -> Generator[EnqueueRequest, EnqueueOutcome, None]:
    """Middleware around enqueues: a producer span, whose context travels in the job's ``trace``.

    The span is a child of the caller's. Of ``enqueue_many`` each job has a span of its own. An
    enqueue that is refused or fails is an error. A context that the caller has put into ``trace``
    is replaced.
    """
    attributes: dict[str, str] = {
        "messaging.system": "forge_jobs",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "forge_jobs.kind": request.kind,
    }
    if isinstance(request.queue, str):
        attributes["messaging.destination.name"] = request.queue
    # Never the current span: in enqueue_many all of these are open at once.
    span = _TRACER.start_span(
        f"enqueue {request.kind}", kind=SpanKind.PRODUCER, attributes=attributes
    )
    try:
        headers = dict(request.trace)
        propagate.inject(headers, trace.set_span_in_context(span))
        outcome = yield request.options(trace=headers)
        span.set_attribute("messaging.message.id", outcome.job_id)
        if outcome.deduplicated:
            span.set_attribute("forge_jobs.deduplicated", True)
    except Exception as error:
        _fail(span, error)
        raise
    finally:
        span.end()


async def runs(ctx: JobContext) -> AsyncIterator[None]:
    """Middleware around runs: a consumer span, linked to the span of the enqueue.

    The span is the root of a trace of its own, because a job may run days later and many times. A
    snooze, a throttle, a wait for a rate limit, ``Again`` and a cancel are no errors. Of errors the
    type alone is recorded, because messages may hold payloads.
    """
    sender = trace.get_current_span(propagate.extract(ctx.trace)).get_span_context()
    span = _TRACER.start_span(
        f"process {ctx.kind}",
        context=Context(),
        kind=SpanKind.CONSUMER,
        links=[Link(sender)] if sender.is_valid else [],
        attributes={
            "messaging.system": "forge_jobs",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": ctx.queue,
            "messaging.message.id": ctx.job_id,
            "forge_jobs.kind": ctx.kind,
            "forge_jobs.attempt": ctx.attempt,
        },
    )
    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield
    except asyncio.CancelledError:
        span.set_attribute("forge_jobs.outcome", "cancelled")
        raise
    except Exception as error:
        said = said_by(error)
        if isinstance(said, Outcome) and not isinstance(said, Failed | Dead):
            span.set_attribute("forge_jobs.outcome", type(said).__name__.lower())
        else:
            _fail(span, said)
        raise
    finally:
        span.end()


def _fail(span: Span, error: BaseException) -> None:
    kind = type(error).__qualname__
    span.set_attribute("error.type", kind)
    # The type alone: the message of an error may quote a payload.
    span.set_status(Status(StatusCode.ERROR, kind))
