"""A worker inside your own program: enqueue, wait, print."""

import anyio
from jobs import handlers, send_receipt

from forge_jobs import QueueRuntime, RateLimit, open_storage


async def main() -> None:
    async with await open_storage("sqlite:///shop.db") as storage:
        runtime = QueueRuntime(storage, handlers, rate_limits={"smtp": RateLimit(100, per=60)})
        async with runtime.with_queues("reports", mail=2).start() as handle:
            request = send_receipt.request(7, "ada@example.org")
            outcome = await handle.enqueue(request, priority=1)
            print(await handle.result(outcome.job_id, timeout=10))


anyio.run(main)

# Prints:
# order 7 -> ada@example.org
