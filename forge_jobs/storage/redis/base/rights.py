"""The rights that a user of the server must have, looked at when a store is opened."""

from forge_jobs.errors import StorageError
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import item_of

# Per command, how many arguments follow the key.
_NEEDED = (
    *[(name, 0) for name in ("GET", "DEL", "EXISTS", "PTTL")],
    *[(name, 0) for name in ("HGETALL", "HKEYS", "HLEN", "HVALS", "SMEMBERS", "ZCARD")],
    *[(name, 1) for name in ("SET", "RENAME", "PEXPIRE")],
    *[(name, 1) for name in ("HGET", "HMGET", "HDEL", "HEXISTS", "HSCAN", "HSTRLEN")],
    *[(name, 1) for name in ("RPUSH", "LINDEX", "SADD", "SREM", "ZREM", "ZSCORE", "ZMSCORE")],
    *[(name, 2) for name in ("HSET", "HSETNX", "HINCRBY", "LRANGE", "LREM", "LTRIM")],
    *[(name, 2) for name in ("ZADD", "ZCOUNT", "ZRANGE", "ZRANGEBYSCORE", "ZREMRANGEBYSCORE")],
)

_OF_SHARDS = ("SPUBLISH", "SSUBSCRIBE")

ON_KEYS = frozenset(name for name, _ in _NEEDED)
"""All commands on a key that a script or this package runs."""


async def check_rights(database: Database) -> None:
    """Look whether the user may do all that scripts do.

    :raises StorageError: the user lacks rights. The text names the commands
    """
    await check_rights_at(database, database.keys.fleet)


async def check_rights_at(database: Database, base: str) -> None:
    """:func:`check_rights` on the server of this base."""
    needed = [
        item_of("rights", "entry", command=command, following=following)
        for command, following in _NEEDED
    ]
    lacking = await database.run_one("rights", base, needed, list[str])
    missing = [name for name in lacking if name not in _OF_SHARDS]
    if database.is_cluster and len(missing) == len(lacking):
        database.known.publish = "SPUBLISH"
    if missing:
        raise StorageError(
            "the server's access rules do not let this user run "
            f"{', '.join(name.lower() for name in missing)} on the keys and the channel of the "
            "prefix; see docs/redis.md for all it needs"
        )
