"""Charges whose errors go to Sentry: ``python charges.py`` prints the events."""

import asyncio
import os

import sentry_sdk
from sentry import processing, report, sending
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from forge_jobs import Fixed, HandlerRegistry, JobDead, QueueRuntime, open_storage

handlers = HandlerRegistry(enqueue_middleware=[sending], middleware=[processing], on_error=report)


@handlers.job("card.charge", max_attempts=2, retry=Fixed(0.01))
async def charge(order: int) -> None:
    sentry_sdk.add_breadcrumb(message=f"charging order {order}")
    raise ConnectionError(f"no answer for order {order}")


class Printed(Transport):
    """In the place of Sentry's servers: prints events. In production leave ``transport`` out."""

    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            event = item.payload.json or {}
            trace = event.get("contexts", {}).get("trace", {}).get("trace_id")
            if item.type == "transaction":
                print("transaction", event["transaction"], trace)
            elif item.type == "event":
                [error] = event["exception"]["values"]
                job = event["contexts"]["job"]
                print(event["level"], error["type"], error["value"], job["attempt"], trace)


async def main() -> None:
    sentry_sdk.init("http://key@localhost/1", transport=Printed, traces_sample_rate=1.0)
    url = os.environ.get("FORGE_STORAGE_URL", "sqlite:///charges.db")
    async with (
        await open_storage(url) as storage,
        QueueRuntime(storage, handlers).with_queues("default").start() as handle,
    ):
        # As an integration of a web framework: each request has a scope of its own.
        with sentry_sdk.isolation_scope(), sentry_sdk.start_transaction(name="POST /orders"):
            outcome = await handle.enqueue(charge.request(7))
        try:
            await handle.result(outcome.job_id, timeout=30)
        except JobDead as error:
            print("dead:", error)


asyncio.run(main())
