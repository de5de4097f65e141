"""The ways to use a bare store, and one run of one of them."""

from collections.abc import Mapping

from bench.host import StealTime
from bench.limits.bare import Bare
from bench.limits.postgres import BarePostgres, FusedPostgres
from bench.limits.redis import BareRedis
from bench.limits.sqlite import BareSqlite, NormalSqlite
from bench.stores import Store

WAYS: Mapping[str, Mapping[str, type[Bare]]] = {
    "postgres": {"two statements": BarePostgres, "one statement": FusedPostgres},
    "redis": {"one script": BareRedis},
    "sqlite": {"synchronous=full": BareSqlite, "synchronous=normal": NormalSqlite},
}
FASTEST: Mapping[str, type[Bare]] = {
    "postgres": FusedPostgres,
    "redis": BareRedis,
    "sqlite": BareSqlite,
}
"""The best of them at the durability that ours has by default."""


async def ceiling(
    store: Store, way: type[Bare], batch: int, connections: int, jobs: int
) -> tuple[float, dict[str, float]]:
    """Run once on a fresh store. Return jobs per second, and the costs of a job."""
    async with way(await store.fresh(), connections) as bare:
        await bare.fill(jobs)
        stolen, before = StealTime(), await store.used()
        rate, cpu = await bare.drain(jobs, batch)
        used = (await store.used()).since(before)
        lost = stolen.costs()
    costs = {"client CPU, us/job": cpu} | lost
    if used.cpu is not None:
        costs["server CPU, us/job"] = 1e6 * used.cpu / jobs
    if used.wal is not None:
        costs["WAL, bytes/job"] = used.wal / jobs
    return rate, costs
