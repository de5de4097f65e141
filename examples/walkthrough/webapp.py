"""The order and the receipt are one transaction: both are there, or neither is."""

import anyio
from jobs import send_receipt
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from forge_jobs import JobClient, open_storage

engine = create_async_engine("sqlite+aiosqlite:///shop.db")


async def place_order(client: JobClient, address: str, *, stock: int) -> int:
    """Handle an order, as a request handler of your web framework would."""
    async with AsyncSession(engine) as session, session.begin():
        order = await session.scalar(
            text("INSERT INTO orders (address) VALUES (:address) RETURNING id"),
            {"address": address},
        )
        request = send_receipt.request(order, address)
        await client.enqueue(request, connection=session)
        if stock == 0:
            raise LookupError("sold out")  # rolls back the order and the receipt
        return int(order)


async def main() -> None:
    async with await open_storage("sqlite:///shop.db") as storage:
        client = JobClient(storage)
        async with engine.begin() as connection:
            await connection.execute(
                text("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, address TEXT)")
            )
        print("order", await place_order(client, "ada@example.org", stock=1))
        try:
            await place_order(client, "bob@example.org", stock=0)
        except LookupError as error:
            print(error)
        counts = await storage.jobs.counts(["mail"])
        print("waiting receipts:", counts["mail"].by_status["pending"])
        await client.aclose()
    await engine.dispose()


anyio.run(main)

# Prints:
# order 1
# sold out
# waiting receipts: 1
