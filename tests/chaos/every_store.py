"""The stores by the names that ``--backend`` takes."""

from tests.chaos.limited_stores import LimitedPostgres, LimitedRedis, LimitedSqlite
from tests.chaos.sharding import ShardedStore
from tests.chaos.stores import ChaosStore, PostgresStore, RedisStore, SqliteStore
from tests.chaos.switching import ClusterStore, PoolerStore, SentinelStore, StandbyStore

STORES: dict[str, type[ChaosStore]] = {
    "sqlite": SqliteStore,
    "postgres": PostgresStore,
    "redis": RedisStore,
    "pooler": PoolerStore,
    "standby": StandbyStore,
    "sentinel": SentinelStore,
    "cluster": ClusterStore,
    "shards": ShardedStore,
    "limits-sqlite": LimitedSqlite,
    "limits-postgres": LimitedPostgres,
    "limits-redis": LimitedRedis,
}
