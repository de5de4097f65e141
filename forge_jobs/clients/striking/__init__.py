"""Strikes as programs and people set and lift them, with a record of each change."""

from collections.abc import Awaitable, Callable, Iterable

from msgspec import Struct

from forge_jobs.model.names import check_name
from forge_jobs.model.strikes import Strike, StrikeRule
from forge_jobs.policy.strikes import Judge
from forge_jobs.storage.protocols import Storage

ADD, LIFT = "add_strike", "lift_strike"
_AT_ONCE, _BATCHES = 1_000, 20

Recorded = Callable[[str, str, Callable[[], Awaitable[None]]], Awaitable[None]]
"""Makes a change, and keeps a record: of the verb, and of the name of the strike."""


class Lifted(Struct, frozen=True, kw_only=True):
    """A lifted strike.

    :param released: how many held jobs this call has made ready, at most 20,000. The leader of the
        pods does the same beside it, so all become ready. A job that another strike means is held
        again
    """

    name: str
    released: int


async def put_strike(
    storage: Storage, recorded: Recorded, name: str, rule: StrikeRule, by: str
) -> Strike:
    """Set a strike, and make the jobs ready that no strike holds any more."""
    check_name("name", name)
    config = storage.config
    await recorded(ADD, name, lambda: config.put_strike(name, rule, by))
    strikes = await config.strikes()
    await _release(storage, strikes)
    # Another program may have lifted the strike since.
    mine = next((strike for strike in strikes if strike.name == name), None)
    return mine or Strike(name=name, rule=rule, by=by, at=None)


async def lift_strike(storage: Storage, recorded: Recorded, name: str) -> Lifted:
    """Lift a strike, and make the jobs ready that no strike holds any more.

    :raises NotFound: no such strike
    """
    check_name("name", name)
    config = storage.config
    await recorded(LIFT, name, lambda: config.lift_strike(name))
    return Lifted(name=name, released=await _release(storage, await config.strikes()))


async def _release(storage: Storage, in_force: Iterable[Strike]) -> int:
    marks, released = Judge(in_force).marks, 0
    for _ in range(_BATCHES):
        count = await storage.jobs.release_struck(marks, _AT_ONCE)
        released += count
        if count < _AT_ONCE:
            break
    return released
