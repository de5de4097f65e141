"""Orders that commit together with their jobs, and are charged once: ``python pipeline.py``.

- An order, its charge and its delivery are one transaction. An order that rolls back leaves no job.
- With jobs in the database of the shop they are enqueued in that transaction. With jobs on another
  store, Redis for example, an outbox writes them down there, and the pod brings them over.
- The charge and the note that the card is charged are one transaction (``ctx.once``). A worker that
  breaks off right after that commit does not charge again. With jobs on another store a row with
  the id of the job does that.
- The delivery waits for the charge, by ``after=``.

The bank is a stand-in whose answer is lost at the first attempt.
"""

import asyncio
import os

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from forge_jobs import (
    After,
    EnqueueRequest,
    Fixed,
    HandlerRegistry,
    JobClient,
    JobContext,
    Outbox,
    QueueRuntime,
    open_storage,
)

URL = os.environ.get("FORGE_STORAGE_URL", "sqlite:///shop.db")
SHARES_DATABASE = URL.startswith(("sqlite", "postgres"))
SHOP = URL if SHARES_DATABASE else "sqlite:///shop.db"
STOCK = {"lamp": 2, "chair": 1}

handlers = HandlerRegistry()
metadata = sa.MetaData()
orders = sa.Table(
    "shop_orders",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("item", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
)
charges = sa.Table(
    "shop_charges",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("order_id", sa.Integer, nullable=False),
    sa.Column("cents", sa.Integer, nullable=False),
)
stock = sa.Table(
    "shop_stock",
    metadata,
    sa.Column("item", sa.Text, primary_key=True),
    sa.Column("left", sa.Integer, nullable=False),
)


class SoldOut(Exception):
    """The item of an order is not there."""


def engine() -> AsyncEngine:
    """Return the application's own engine on the database of the shop."""
    url = sa.make_url(SHOP)
    driver = "sqlite+aiosqlite" if url.get_backend_name() == "sqlite" else "postgresql+asyncpg"
    return create_async_engine(url.set(drivername=driver, query={}))


database = engine()
delivered: asyncio.Queue[int] = asyncio.Queue()
"""Orders that a worker of this process has shipped."""


async def is_first_charge(ctx: JobContext, connection: AsyncConnection) -> bool:
    """Return whether no attempt of this job has charged the card, in the transaction."""
    if SHARES_DATABASE:
        return await ctx.once(connection, "charge")
    mine = sa.select(sa.func.count()).where(charges.c.job_id == ctx.job_id)
    return not await connection.scalar(mine)


@handlers.job("order.charge", queue="payments", max_attempts=3, retry=Fixed(0.1))
async def charge(ctx: JobContext, order: int, cents: int) -> str:
    async with database.begin() as connection:
        is_first = await is_first_charge(ctx, connection)
        if is_first:
            row = {"job_id": ctx.job_id, "order_id": order, "cents": cents}
            await connection.execute(sa.insert(charges).values(row))
            paid = sa.update(orders).where(orders.c.id == order).values(state="paid")
            await connection.execute(paid)
    if is_first:
        raise ConnectionError("the answer of the bank was lost")
    return f"order {order} is charged, as attempt {ctx.attempt} finds"


@handlers.job("order.ship", queue="warehouse")
async def ship(order: int) -> None:
    async with database.begin() as connection:
        shipped = sa.update(orders).where(orders.c.id == order, orders.c.state == "paid")
        await connection.execute(shipped.values(state="shipped"))
    delivered.put_nowait(order)


class Shop:
    """Takes orders.

    :param client: enqueues where the jobs are in the database of the shop
    :param outbox: writes jobs down where they are not
    """

    def __init__(self, client: JobClient, outbox: Outbox) -> None:
        self._client = client
        self._outbox = outbox

    async def order(self, number: int, item: str) -> None:
        """Take an order: a row, a charge, and a delivery after the charge.

        :raises SoldOut: nothing is stored, neither a row nor a job
        """
        async with database.begin() as connection:
            row = {"id": number, "item": item, "state": "new"}
            await connection.execute(sa.insert(orders).values(row))
            charged = await self._enqueue(connection, charge.request(number, 1250))
            await self._enqueue(connection, ship.request(number), charged)
            taken = sa.update(stock).where(stock.c.item == item, stock.c.left > 0)
            if not (await connection.execute(taken.values(left=stock.c.left - 1))).rowcount:
                raise SoldOut(item)

    async def _enqueue(
        self, connection: AsyncConnection, request: EnqueueRequest, *parents: str
    ) -> str:
        after = [After(each) for each in parents]
        if SHARES_DATABASE:
            outcome = await self._client.enqueue(request, connection=connection, after=after)
        else:
            outcome = await self._outbox.enqueue(connection, request, after=after)
        return outcome.job_id


async def main() -> None:
    async with database.begin() as connection:
        await connection.run_sync(metadata.create_all)
        rows = [{"item": item, "left": left} for item, left in STOCK.items()]
        await connection.execute(sa.insert(stock), rows)
    async with await open_storage(SHOP) as here, await open_storage(URL) as there:
        outbox = Outbox(here, there, handlers)
        runtime = QueueRuntime(there, handlers).with_queues("payments", "warehouse")
        if not SHARES_DATABASE:
            runtime = runtime.with_outbox(outbox)
        async with runtime.start() as handle:
            shop = Shop(handle.client, outbox)
            taken = 0
            for number, item in enumerate(["lamp", "chair", "chair", "lamp"], start=1):
                try:
                    await shop.order(number, item)
                    taken += 1
                except SoldOut:
                    print(f"order {number}: no {item} is left, so neither row nor job is")
            for _ in range(taken):
                await asyncio.wait_for(delivered.get(), timeout=60)
    async with database.connect() as connection:
        states = (await connection.execute(sa.select(orders.c.id, orders.c.state))).all()
        charged = await connection.scalar(sa.select(sa.func.count()).select_from(charges))
    await database.dispose()
    print(", ".join(f"order {number} is {state}" for number, state in sorted(map(tuple, states))))
    print(f"{len(states)} orders, {charged} charges")


if __name__ == "__main__":
    asyncio.run(main())
