"""Import orders page by page, and lose nothing when the import breaks off: ``python pipeline.py``.

- A checkpoint after each page: a retry goes on with the next page.
- Rows and the note that they are in are one transaction (``ctx.once``), so a page that was written
  just before a crash is not written again. Only with jobs in the same SQL database: on Redis the
  page's own key does that.
- Progress and lines for people who watch.

The upstream is a stand-in that breaks off twice.
"""

import asyncio
import os
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from forge_jobs import Fixed, HandlerRegistry, JobContext, QueueRuntime, open_storage

PAGES, ROWS = 6, 50
URL = os.environ.get("FORGE_STORAGE_URL", "sqlite:///shop.db")
SHARES_DATABASE = URL.startswith(("sqlite", "postgres"))

handlers = HandlerRegistry()
metadata = sa.MetaData()
orders = sa.Table(
    "imported_orders",
    metadata,
    sa.Column("page", sa.Integer, primary_key=True),
    sa.Column("row", sa.Integer, primary_key=True),
    sa.Column("cents", sa.Integer, nullable=False),
)


@dataclass
class Place:
    """The place at which the next run goes on."""

    page: int
    rows: int


def engine() -> AsyncEngine:
    """The application's own engine: the database of the jobs, or a file beside jobs on Redis."""
    if not SHARES_DATABASE:
        return create_async_engine("sqlite+aiosqlite:///orders.db")
    url = sa.make_url(URL)
    driver = "sqlite+aiosqlite" if url.get_backend_name() == "sqlite" else "postgresql+asyncpg"
    return create_async_engine(url.set(drivername=driver, query={}))


async def fetch(page: int, attempt: int) -> list[dict[str, int]]:
    """Answer as the upstream does, which breaks off once on page 2 and once on page 4."""
    if (page, attempt) in {(2, 1), (4, 2)}:
        raise ConnectionError(f"the upstream broke off on page {page}")
    return [{"page": page, "row": row, "cents": page * 100 + row} for row in range(ROWS)]


async def write(
    ctx: JobContext, connection: AsyncConnection, page: int, rows: list[dict[str, int]]
) -> None:
    """Write the rows of a page, once."""
    if SHARES_DATABASE:
        if await ctx.once(connection, f"page {page}"):
            await connection.execute(sa.insert(orders), rows)
        return
    there = sa.select(sa.func.count()).where(orders.c.page == page)
    if not await connection.scalar(there):
        await connection.execute(sa.insert(orders), rows)


@handlers.job("orders.import", queue="imports", max_attempts=5, retry=Fixed(0.1))
async def import_orders(ctx: JobContext, pages: int) -> int:
    database = engine()
    try:
        place = await ctx.load_checkpoint(Place, Place(page=1, rows=0))
        ctx.log.info("begins with page %d", place.page)
        for page in range(place.page, pages + 1):
            rows = await fetch(page, ctx.attempt)
            async with database.begin() as connection:
                await write(ctx, connection, page, rows)
            place = Place(page + 1, place.rows + len(rows))
            await ctx.checkpoint(place)
            ctx.progress.set(page, pages, f"{place.rows} orders")
        return place.rows
    finally:
        await database.dispose()


async def main() -> None:
    database = engine()
    async with database.begin() as connection:
        await connection.run_sync(metadata.create_all)
    async with (
        await open_storage(URL) as storage,
        QueueRuntime(storage, handlers).with_queues("imports").start() as handle,
    ):
        outcome = await handle.enqueue(import_orders.request(PAGES))
        told = await handle.result(outcome.job_id, timeout=60)
        log = await handle.client.log(outcome.job_id)
        print("the last run", log.lines[0].text)
    async with database.connect() as connection:
        stored = await connection.scalar(sa.select(sa.func.count()).select_from(orders))
    await database.dispose()
    print(f"the job says {told} orders, the database has {stored}")


if __name__ == "__main__":
    asyncio.run(main())
