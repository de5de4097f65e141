"""Faults of the store, or of the way there. Each deed leaves the store as it should be."""

import random
from collections.abc import Collection
from contextlib import ExitStack
from typing import cast

import anyio

from tests.chaos.crew import Crew
from tests.chaos.pace import Pace, pause
from tests.chaos.record import ROTATION, Record, ShardLoss, now_ns
from tests.chaos.sharding import ShardedStore
from tests.chaos.stores import ChaosStore, RedisStore, ServerStore, SqliteStore
from tests.chaos.switching import PoolerStore, SwitchedStore
from tests.support.ledger import Ledger
from tests.support.shards import FAULTS
from tests.support.waiting import wait_until

_AT_WORK_AGAIN = 180.0


class StoreDeeds:
    """A deed per method. Afterwards every pod at work must go on by itself."""

    def __init__(
        self,
        store: ChaosStore,
        crew: Crew,
        pace: Pace,
        record: Record,
        ledger: Ledger,
        rng: random.Random,
    ) -> None:
        self._store = store
        self._crew = crew
        self._pace = pace
        self._record = record
        self._ledger = ledger
        self._rng = rng

    async def lock(self, seconds: float | None = None) -> None:
        """A program holds the file's write lock."""
        with self._outage("lock"):
            async with cast(SqliteStore, self._store).locked():
                await pause(seconds or self._rng.uniform(0.1, 0.5) * self._pace.lease)
        await self._all_work_again()

    async def kill_store(self, seconds: float | None = None) -> None:
        """SIGKILL all processes of the store, and start them on the same data."""
        server = self._server.server
        with self._outage("kill_store", refused=True):
            await anyio.to_thread.run_sync(server.kill)
            await pause(seconds or self._rng.uniform(0, 0.3) * self._pace.lease)
            await anyio.to_thread.run_sync(server.start)
        await self._all_work_again()

    async def restart_store(self) -> None:
        """A stop in good order, and a start."""
        with self._outage("restart_store", refused=True):
            await anyio.to_thread.run_sync(self._server.server.restart)
        await self._all_work_again()

    async def end_sessions(self) -> None:
        """Close every connection, by the server."""
        with self._outage("end_sessions"):
            await self._server.end_sessions()
        await self._all_work_again()

    async def flush_scripts(self) -> None:
        """Make the server forget every script."""
        with self._outage("flush_scripts"):
            await cast(RedisStore, self._store).flush_scripts()
        await self._all_work_again()

    async def cut_replies(self) -> None:
        """For a while every connection breaks in the middle of a reply."""
        with self._outage("cut_replies"):
            for between in self._store.proxies:
                between.cut_replies_after(self._rng.randrange(1, 2_000))
            await pause(0.1 * self._pace.lease)
            self._heal()
        await self._all_work_again()

    async def swallow_replies(self) -> None:
        """For a while requests arrive and no reply does."""
        with self._outage("swallow_replies"):
            for between in self._store.proxies:
                between.swallow_replies()
            await pause(0.1 * self._pace.lease)
            self._heal()
        await self._all_work_again()

    async def blackhole(self) -> None:
        """Half the pods are cut off, in silence, for longer than their leases."""
        with self._outage("blackhole"):
            self._store.proxies[0].freeze()
            await pause(1.3 * self._pace.lease)
            self._heal()
        await self._all_work_again()

    async def rotate_password(self) -> None:
        """Refuse the password of the URL for a while, after all connections have ended."""
        with self._outage(ROTATION, refused=True):
            async with self._server.refusing_logins():
                await pause(self._rng.uniform(0.1, 0.5) * self._pace.lease)
        await self._all_work_again()

    async def switch_primary(self) -> None:
        """A primary is killed, a replica takes over, and the killed one comes back as a replica."""
        store = cast(SwitchedStore, self._store)
        with self._outage("switch_primary", refused=True):
            await store.lose_primary(self._rng)
        await self._all_work_again()
        await store.settle()

    async def restart_pooler(self) -> None:
        """The pooler stops in good order, and starts."""
        with self._outage("restart_pooler", refused=True):
            await anyio.to_thread.run_sync(cast(PoolerStore, self._store).pooler.restart)
        await self._all_work_again()

    async def kill_pooler(self, seconds: float | None = None) -> None:
        """SIGKILL to the pooler, and a start."""
        pooler = cast(PoolerStore, self._store).pooler
        with self._outage("kill_pooler", refused=True):
            await anyio.to_thread.run_sync(pooler.kill)
            await pause(seconds or self._rng.uniform(0, 0.3) * self._pace.lease)
            await anyio.to_thread.run_sync(pooler.start)
        await self._all_work_again()

    async def kill_shard(self, seconds: float | None = None) -> None:
        """SIGKILL a primary that holds queues alone. Its replica takes over later."""
        await self._lose_shard("kill_shard", "killed", seconds)

    async def freeze_shard(self) -> None:
        """The same with SIGSTOP: no connection is refused, and nothing is answered."""
        await self._lose_shard("freeze_shard", "frozen")

    async def kill_fleet_shard(self) -> None:
        """SIGKILL to the primary that holds the fleet's own records beside queues."""
        await self._lose_shard("kill_fleet_shard", "killed", of_fleet=True)

    async def freeze_fleet_shard(self) -> None:
        """The same with SIGSTOP."""
        await self._lose_shard("freeze_fleet_shard", "frozen", of_fleet=True)

    async def _lose_shard(
        self, name: str, fault: str, seconds: float | None = None, *, of_fleet: bool = False
    ) -> None:
        store = cast(ShardedStore, self._store)
        window = seconds or self._pace.lease
        shard = await store.a_shard(self._rng, of_fleet=of_fleet)
        shard.hold_back()
        await self._all_begin(store.queues, "all queues are served")
        await pause(window)
        with self._outage(name), ExitStack() as stack:
            loss = ShardLoss(name, shard.queues, int(window * 1e9), now_ns())
            self._record.losses.append(loss)
            down = FAULTS[fault](shard.primary)
            await anyio.to_thread.run_sync(stack.enter_context, down)
            await pause(window)
            await self._all_begin(store.queues.keys() - loss.queues, "other queues are served")
            await shard.replace()
            loss.promoted_ns = now_ns()
            await self._all_begin(loss.queues, "its queues are served again")
            await anyio.to_thread.run_sync(stack.close)
        await self._all_work_again()
        await store.settle()
        loss.to_ns = now_ns()

    async def _all_begin(self, queues: Collection[str], description: str) -> None:
        """Wait until each of these queues has begun a job since now."""
        since, left, seen = now_ns(), set(queues), len(self._ledger.runs)

        def is_done() -> bool:
            nonlocal seen
            news = self._ledger.runs[seen:]
            seen += len(news)
            for run in news:
                if run.started_ns > since:
                    left.discard(self._record.queue_of(run.job_id))
            return not left

        await wait_until(is_done, description=description, timeout=_AT_WORK_AGAIN)

    @property
    def _server(self) -> ServerStore:
        return cast(ServerStore, self._store)

    def _heal(self) -> None:
        for between in self._store.proxies:
            between.heal()

    def _outage(self, name: str, *, refused: bool = False):  # type: ignore[no-untyped-def]
        return self._record.outage(name, tuple(self._crew.at_work), refused=refused)

    async def _all_work_again(self) -> None:
        """Wait until every pod has begun a run since now."""
        pods, since = set(self._crew.at_work), now_ns()
        await wait_until(
            lambda: self.has_each_begun(pods & self._crew.at_work.keys(), since),
            description="every pod runs jobs again",
            timeout=_AT_WORK_AGAIN,
        )

    def has_each_begun(self, pods: Collection[int], since_ns: int) -> bool:
        """Return whether each of these processes has begun a run since.

        Times are compared: a run that began before may be read from the ledger only now.
        """
        return all(self._ledger.last_start_ns.get(pod, 0) > since_ns for pod in pods)
