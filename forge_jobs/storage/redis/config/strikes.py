"""Strikes: rules by which operators keep jobs from running."""

from forge_jobs.model import strikes as rules
from forge_jobs.model.names import check_name
from forge_jobs.model.strikes import (
    Strike,
    StrikeRule,
    no_strike,
    read_strike,
    strike_text,
    too_many,
)
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.job_rows import StoredFields
from forge_jobs.storage.redis.base.scripts import request_of


async def put(database: Database, name: str, rule: StrikeRule, by: str) -> None:
    """See ``ConfigStore.put_strike``."""
    check_name("name", name)
    request = request_of(
        "put_strike", name=name, rule=strike_text(rule, by), most=rules.MOST_STRIKES
    )
    if not await database.run_one("put_strike", database.keys.fleet, request, bool):
        raise too_many()


async def lift(database: Database, name: str) -> None:
    """See ``ConfigStore.lift_strike``."""
    if not await database.run_one("lift_strike", database.keys.fleet, [name], bool):
        raise no_strike(name)


async def stored(database: Database) -> list[Strike]:
    """See ``ConfigStore.strikes``."""
    flat = await database.run_one("strikes", database.keys.fleet, [], list[str])
    return [_strike(name, kept) for name, kept in sorted(zip(flat[::2], flat[1::2], strict=True))]


# A kept text is the time of the change in microseconds, a space, and the rule, which the script
# puts together: only the store knows the time.
def _strike(name: str, kept: str) -> Strike:
    at, _, rule = kept.partition(" ")
    # A time that cannot be read is left out: the rule counts as before.
    return read_strike(name, rule, StoredFields({"at": at}).instant_if_set("at"))
