"""Keys of limits at which jobs wait, and the jobs of a key. See ``permits.lua``."""

from forge_jobs.model.queues import MOST_KEY_JOBS, LimitHolders, LimitKey
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import request_of


async def keys(
    database: Database, queue: str, name: str, after: str | None, limit: int
) -> list[LimitKey]:
    """See ``ConfigStore.limit_keys``."""
    if not queue:
        return []
    base = database.keys.queue(queue)
    begin = f"[{name}\n" if after is None else f"({name}\n{after}"
    request = request_of("limit_keys", name=name, begin=begin, limit=limit)
    found = await database.run_one("limit_keys", base, request, list[tuple[str, int, int]])
    return [
        LimitKey(key=permit.partition("\n")[2], running=used, waiting=min(parked, MOST_KEY_JOBS))
        for permit, used, parked in found
    ]


async def holders(database: Database, queue: str, name: str, key: str, limit: int) -> LimitHolders:
    """See ``ConfigStore.limit_holders``."""
    if not queue:
        return LimitHolders()
    base = database.keys.queue(queue)
    request = request_of("limit_holders", permit=f"{name}\n{key}", limit=limit)
    found = await database.run_one("limit_holders", base, request, list[list[str]])
    running, waiting = found
    return LimitHolders(running=tuple(running), waiting=tuple(waiting))
