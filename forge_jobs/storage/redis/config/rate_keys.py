"""Tokens for jobs that are about to run: many at once, of rate limits and of their keys.

See the module ``rate_limits``, and ``take_or_turn.lua``.
"""

from collections.abc import Sequence
from datetime import timedelta

from forge_jobs.clock import duration_us
from forge_jobs.model.queues import RateAsk, TokenGrant
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import item_of, request_of

_AT_ONCE = 200
"""Requests of one script, so that each step is short."""

_A_TOKEN = -1

_GRANTED = TokenGrant(True, timedelta(0))


async def take_or_turn(
    database: Database, asks: Sequence[RateAsk], within: timedelta
) -> list[TokenGrant | None]:
    """See ``ConfigStore.take_or_turn``."""
    answers: list[TokenGrant | None] = []
    # Jobs of one bucket often share one request, and identities are cheaper to compare than values.
    items = {at: _item(ask) for at, ask in {id(ask): ask for ask in asks}.items()}
    for first in range(0, len(asks), _AT_ONCE):
        some = [items[id(ask)] for ask in asks[first : first + _AT_ONCE]]
        request = request_of("take_or_turn", asks=some, within=duration_us(within))
        waits = await database.run_one("take_or_turn", database.keys.fleet, request, list[int])
        answers += map(_answer, waits)
    return answers


def _item(ask: RateAsk) -> tuple[object, ...]:
    return item_of(
        "take_or_turn",
        "ask",
        scope=ask.scope,
        key=ask.key,
        waits=ask.waits,
        had_turn=ask.had_turn,
        ahead=duration_us(ask.ahead),
    )


def _answer(wait: int) -> TokenGrant | None:
    if wait >= 0:
        return TokenGrant(False, timedelta(microseconds=wait))
    return _GRANTED if wait == _A_TOKEN else None
