"""The config of a Postgres store: one statement takes tokens when enough are there."""

from collections.abc import Sequence
from datetime import timedelta

from forge_jobs.model.queues import RateAsk, TokenGrant
from forge_jobs.storage.protocols.config import NOT_AHEAD
from forge_jobs.storage.sql.config.store import SqlConfigStore
from forge_jobs.storage.sql.hot.parts import MOMENT
from forge_jobs.storage.sql.postgres.database import PostgresDatabase
from forge_jobs.storage.sql.postgres.direct import Direct

_GRANTED = TokenGrant(True, timedelta(0))

# The level as in ``sql/config/rate_limits.py``, at the time of the call. A call that has waited for
# another taker's lock has an earlier time than the row: then the level was higher by what has
# leaked since. No time is longer than the level takes to leak out, so no product leaves 64 bits.
_LEVEL = "greatest(0, level - least(now - updated_at, level / capacity + 1) * capacity)"

# Without a row in the answer nothing has happened, and the script reports why.
_TAKING = f"""
    WITH {MOMENT}
    UPDATE forge_rate_limits SET level = {_LEVEL} + :count * period_us, updated_at = now
    FROM moment
    WHERE scope = :scope AND :count BETWEEN 1 AND capacity AND period_us > 0
        AND {_LEVEL} <= (capacity - :count) * period_us
    """
_TYPES = {"clock": "bigint", "scope": "text", "count": "bigint"}
_TAKE = Direct(f"{_TAKING} RETURNING TRUE", _TYPES)

# For jobs about to run: also no turn is to come that has the next token.
_START = Direct(
    f"{_TAKING} AND last_turn_at <= now - period_us / capacity - 1 RETURNING TRUE", _TYPES
)


class PostgresConfigStore(SqlConfigStore):
    """:class:`~forge_jobs.storage.protocols.ConfigStore` on Postgres."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._postgres = database

    async def take_tokens(
        self, scope: str, count: int, within: timedelta = NOT_AHEAD
    ) -> TokenGrant:
        if await self._postgres.direct(_TAKE, {"scope": scope, "count": count}):
            return _GRANTED
        return await super().take_tokens(scope, count, within)

    async def take_or_turn(
        self, asks: Sequence[RateAsk], within: timedelta
    ) -> list[TokenGrant | None]:
        scope = asks[0].scope if asks else ""
        if asks and all(not ask.key and ask.scope == scope for ask in asks):
            values = {"scope": scope, "count": len(asks)}
            if await self._postgres.direct(_START, values):
                return [_GRANTED] * len(asks)
        return await super().take_or_turn(asks, within)
