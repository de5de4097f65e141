"""The config of a Postgres store: one statement takes tokens when enough are there."""

from collections.abc import Sequence
from datetime import timedelta

from forge_jobs.clock import duration_us
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

_TYPES = {"clock": "bigint", "scope": "text", "count": "bigint"}
# No turn is to come that has the next token.
_NO_TURN = "last_turn_at <= now - period_us / capacity - 1"


def _taking(level: str, full: str, *conditions: str) -> str:
    """Return a statement that adds tokens to the level. Without a row in the answer nothing has
    happened, and the script reports why."""
    condition = " AND ".join((f"{level} <= {full} - :count * period_us", *conditions))
    return f"""
        WITH {MOMENT}
        UPDATE forge_rate_limits SET level = {level} + :count * period_us, updated_at = now
        FROM moment
        WHERE scope = :scope AND :count BETWEEN 1 AND capacity AND period_us > 0 AND {condition}
        RETURNING TRUE
        """


_FULL = "capacity * period_us"
_TAKE = Direct(_taking(_LEVEL, _FULL), _TYPES)
_START = Direct(_taking(_LEVEL, _FULL, _NO_TURN), _TYPES)
# As in ``rate_keys.py``. A longer time than the period would leave 64 bits, and is refused as well.
_AHEAD = Direct(
    _taking(f"greatest({_LEVEL}, least(:ahead, period_us) * capacity)", f"{_FULL} / 2", _NO_TURN),
    {**_TYPES, "ahead": "bigint"},
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
        first = asks[0] if asks else RateAsk("")
        scope, ahead = first.scope, first.ahead
        if asks and all(not ask.key and ask.scope == scope and ask.ahead == ahead for ask in asks):
            values: dict[str, object] = {"scope": scope, "count": len(asks)}
            statement = _START
            if ahead:
                values["ahead"], statement = duration_us(ahead), _AHEAD
            if await self._postgres.direct(statement, values):
                return [_GRANTED] * len(asks)
        return await super().take_or_turn(asks, within)
