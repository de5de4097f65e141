"""OpenTelemetry for forge_jobs: a producer span for each enqueue, a consumer span for each run.

``HandlerRegistry(enqueue_middleware=[sending], middleware=[processing])``
"""

from collections.abc import AsyncIterator, Generator

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind

from forge_jobs import EnqueueOutcome, EnqueueRequest, JobContext

tracer = trace.get_tracer("forge_jobs")


def sending(request: EnqueueRequest) -> Generator[EnqueueRequest, EnqueueOutcome, None]:
    name, attributes = f"send {request.kind}", {"messaging.system": "forge_jobs"}
    # Never the current span: in enqueue_many all of these are open at once.
    with tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=attributes) as span:
        headers = dict(request.trace)
        propagate.inject(headers, trace.set_span_in_context(span))
        outcome = yield request.options(trace=headers)
        span.set_attribute("messaging.message.id", outcome.job_id)


async def processing(ctx: JobContext) -> AsyncIterator[None]:
    sender = trace.get_current_span(propagate.extract(ctx.trace)).get_span_context()
    links = [Link(sender)] if sender.is_valid else []
    attributes: dict[str, str | int] = {
        "messaging.system": "forge_jobs",
        "messaging.destination.name": ctx.queue,
        "messaging.message.id": ctx.job_id,
        "forge_jobs.attempt": ctx.attempt,
    }
    with tracer.start_as_current_span(
        f"process {ctx.kind}", Context(), SpanKind.CONSUMER, attributes, links
    ):
        yield
