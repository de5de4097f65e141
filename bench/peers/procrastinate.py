"""procrastinate 3.10, https://procrastinate.readthedocs.io: statements per job, not per batch."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.peers.running import beside, coroutines
from bench.side import Side, Work

LEAST_POOL_SIZE = 20


class Procrastinate(Side):
    """Finished jobs stay, as by default and as ours do."""

    name = "procrastinate"
    store = "postgres"
    requirements = ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9")
    settings = {
        "concurrency": "the workers; docs/howto/production/concurrency.md",
        "pool": "one connection more than workers, at least 20: the shorter the jobs, the more; "
        "docs/discussions.md, Mind the size of your PostgreSQL pool",
        "psycopg": "the binary build, which has its C module; psycopg docs/basic/install.rst",
        "delete_jobs": "never, the default; docs/howto/production/delete_finished_jobs.md",
        "listen_notify": "True, the default; API, App.run_worker_async",
    }
    jobs = 3_000

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        from procrastinate import App, PsycopgConnector

        most = max(LEAST_POOL_SIZE, work.workers + 1)
        self._app = App(connector=PsycopgConnector(conninfo=work.url, min_size=4, max_size=most))
        noop, stamp = coroutines(self.tally)
        self._noop: Any = self._app.task(name="noop")(noop)
        self._stamp: Any = self._app.task(name="stamp")(stamp)

    async def open(self) -> None:
        await self._app.open_async()

    async def close(self) -> None:
        await self._app.close_async()

    async def prepare(self) -> None:
        from procrastinate import App, PsycopgConnector

        async with App(connector=PsycopgConnector(conninfo=self.work.url)).open_async() as app:
            await app.schema_manager.apply_schema_async()

    async def enqueue(self, number: int) -> None:
        await self._noop.defer_async(n=number)

    async def enqueue_stamped(self, sent: float) -> None:
        await self._stamp.defer_async(sent=sent)

    async def enqueue_bulk(self, numbers: Sequence[int]) -> None:
        await self._noop.batch_defer_async(*({"n": number} for number in numbers))

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        worker = self._app.run_worker_async(
            concurrency=self.work.workers, install_signal_handlers=False
        )
        async with beside(worker):
            yield

    async def is_drained(self, target: int) -> bool:
        row: Any = await self._app.connector.execute_query_one_async(
            "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
            " AS busy"
        )
        return not row["busy"]
