"""Limits of queues: how many jobs of a key may run. See ``permits.lua``."""

from collections.abc import Mapping

from forge_jobs.model.names import check_name
from forge_jobs.model.queues import LimitState, check_limits
from forge_jobs.storage.deleting import no_limit
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.job_rows import StoredFields
from forge_jobs.storage.redis.base.queues import in_all_queues, note_queues
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.redis.config.queues import DEFAULT_FIELDS


async def declare(
    database: Database,
    queue: str,
    limits: Mapping[str, int],
    shares: Mapping[str, int],
    *,
    by_operator: bool,
) -> None:
    """See ``ConfigStore.ensure_limits`` and ``ConfigStore.set_limit``."""
    check_name("queue", queue)
    check_limits(limits, shares)
    if not limits:
        return
    await note_queues(database, [queue])
    request = request_of(
        "set_key_limits",
        defaults=DEFAULT_FIELDS,
        limits=[
            part
            for name, at_most in limits.items()
            for part in (name, f"{at_most}/{shares[name]}" if name in shares else str(at_most))
        ],
        by_operator=by_operator,
    )
    base = database.keys.queue(queue)
    for name in await database.run_one("set_key_limits", base, request, list[str]):
        await _open(database, base, name)


async def remove(database: Database, queue: str, name: str) -> None:
    """See ``ConfigStore.delete_limit``."""
    base = database.keys.queue(queue)
    if not queue or not await database.run_one("drop_key_limit", base, [name], bool):
        raise no_limit(queue, name)
    await _open(database, base, name)


async def _open(database: Database, base: str, name: str) -> None:
    """Let jobs be ready that a limit held back. Where this stops half way, the sweep goes on."""
    permit, ready = "", 0
    while True:
        request = request_of("open_parked", name=name, **{"from": permit}, before=ready)
        permit, ready = await database.run_one("open_parked", base, request, tuple[str, int])
        if not permit:
            return


async def states(database: Database) -> list[LimitState]:
    """See ``ConfigStore.limits``."""
    found = await in_all_queues(database, "key_limits", [], list[str])
    return [
        _state(queue, name, stored)
        for queue, flat in sorted(found.items())
        for name, stored in sorted(zip(flat[::2], flat[1::2], strict=True))
    ]


def _state(queue: str, name: str, stored: str) -> LimitState:
    numbers, _, mark = stored.partition(" ")
    number, slash, share = numbers.partition("/")
    read = StoredFields({"at_most": number, "share": share})
    return LimitState(
        queue=queue,
        name=name,
        at_most=read.at_most(),
        share=read.number("share") if slash else None,
        overridden=mark == "set",
        unreadable=read.problems,
    )
