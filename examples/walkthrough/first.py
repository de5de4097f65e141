"""A handler, a job and a worker in one file."""

import asyncio

from forge_jobs import HandlerRegistry, QueueRuntime, open_storage

handlers = HandlerRegistry()


@handlers.job("mail.receipt", queue="mail", max_attempts=8, timeout=30)
async def send_receipt(order: int, address: str) -> str:
    return f"order {order} -> {address}"


async def main() -> None:
    async with await open_storage("sqlite:///shop.db") as storage:
        runtime = QueueRuntime(storage, handlers).with_queues(mail=2)
        async with runtime.start() as worker:
            job = await worker.enqueue(send_receipt.request(7, "ada@example.org"))
            print(await worker.result(job.job_id, timeout=10))


asyncio.run(main())

# Prints:
# order 7 -> ada@example.org
