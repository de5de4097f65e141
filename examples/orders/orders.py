"""A small service. FORGE_STORAGE_URL names the store of the jobs. Nothing else depends on the
store:

FORGE_STORAGE_URL=postgresql://user:password@localhost/shop python orders.py
FORGE_STORAGE_URL=redis://localhost python orders.py
"""

import logging
import os
from datetime import timedelta

import anyio

from forge_jobs import After, Fixed, HandlerRegistry, JobContext, QueueRuntime, open_storage

handlers = HandlerRegistry()
looked = anyio.Event()


@handlers.job("order.charge", queue="payments", max_attempts=3, retry=Fixed(timedelta(seconds=0.1)))
async def charge(ctx: JobContext, order: int, cents: int) -> str:
    """Charge a card. The bank is busy at first. The job's id prevents a second charge."""
    if ctx.attempt == 1:
        raise ConnectionError("the bank is busy")
    return f"order {order}: {cents} cents charged in attempt {ctx.attempt}"


@handlers.job("order.ship", queue="warehouse")
def ship(order: int) -> str:
    """Ship an order. A plain function runs in a thread. Enqueued to wait for the charge."""
    return f"order {order}: shipped"


@handlers.cron("@every 1s")
@handlers.job("stock.look", queue="warehouse")
async def look_at_stock() -> None:
    """Runs every second, once in the whole fleet."""
    looked.set()


async def main() -> None:
    url = os.environ.get("FORGE_STORAGE_URL", "sqlite:///orders.db")
    async with await open_storage(url) as storage:
        runtime = QueueRuntime(storage, handlers).with_queues("payments", warehouse=2)
        async with runtime.start() as handle:
            charged = await handle.enqueue(charge.request(7, 1250), unique_key="order-7")
            again = await handle.enqueue(charge.request(7, 1250), unique_key="order-7")
            print("asked for twice, charged once:", again.job_id == charged.job_id)
            shipped = await handle.enqueue(ship.request(7), after=[After(charged.job_id)])
            print(await handle.result(charged.job_id, timeout=30))
            print(await handle.result(shipped.job_id, timeout=30))
            with anyio.fail_after(30):
                await looked.wait()
            print("the schedule has fired")


if __name__ == "__main__":
    logging.basicConfig(filename="orders.log")
    anyio.run(main)

# Prints:
# asked for twice, charged once: True
# order 7: 1250 cents charged in attempt 2
# order 7: shipped
# the schedule has fired
