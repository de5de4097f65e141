"""Orders whose jobs are traced: ``python orders.py`` prints the spans."""

import asyncio
import os

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from forge_jobs import Fixed, HandlerRegistry, JobContext, QueueRuntime, Snoozed, open_storage
from forge_jobs.tracing import enqueues, runs

handlers = HandlerRegistry(enqueue_middleware=[enqueues], middleware=[runs])


@handlers.job("order.pack", max_attempts=2, retry=Fixed(0.01))
def pack(ctx: JobContext, order: int) -> str:
    with trace.get_tracer("shop").start_as_current_span("look into the shelf"):
        if ctx.attempt == 1:
            raise LookupError("not there yet")
    return ctx.sync.enqueue(send.request(order)).job_id


@handlers.job("order.send")
async def send(ctx: JobContext, order: int) -> None:
    if await ctx.load_checkpoint() is None:  # the first time the carrier is not open yet
        await ctx.checkpoint("asked")
        raise Snoozed(0.01)
    with trace.get_tracer("shop").start_as_current_span("call the carrier"):
        pass


async def main() -> None:
    exporter = InMemorySpanExporter()  # in production an OTLPSpanExporter
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    url = os.environ.get("FORGE_STORAGE_URL", "sqlite:///orders.db")
    async with (
        await open_storage(url) as storage,
        QueueRuntime(storage, handlers).with_queues("default").start() as handle,
    ):
        with trace.get_tracer("shop").start_as_current_span("POST /orders"):
            outcome = await handle.enqueue(pack.request(7))
        sent = await handle.result(outcome.job_id, timeout=30)
        await handle.result(sent, timeout=30)

    spans = exporter.get_finished_spans()
    names = {span.context.span_id: span.name for span in spans if span.context is not None}
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        under = f" in {names[span.parent.span_id]!r}" if span.parent else ""
        links = "".join(f" linked to {names[link.context.span_id]!r}" for link in span.links)
        status = span.status.status_code.name
        became = (span.attributes or {}).get("forge_jobs.outcome", "")
        print(f"{span.kind.name} {span.name!r}{under}{links}: {status} {became}")


asyncio.run(main())
