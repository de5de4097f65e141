"""Strikes: rules by which operators keep jobs from running."""

from typing import Any

from sqlalchemy import Row, bindparam, delete, func, select

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
from forge_jobs.storage.salvage import Fields
from forge_jobs.storage.sql.base.tables import strikes
from forge_jobs.storage.sql.base.transaction import Tx

_ALL = select(strikes)
_OTHERS = select(func.count()).where(strikes.c.name != bindparam("named"))
_REMOVE = delete(strikes).where(strikes.c.name == bindparam("named"))
_KEYS = ("name",)


def put(tx: Tx, name: str, rule: StrikeRule, by: str) -> None:
    """See ``ConfigStore.put_strike``."""
    check_name("name", name)
    if tx.execute(_OTHERS, {"named": name}).scalar_one() >= rules.MOST_STRIKES:
        raise too_many()
    row = {"name": name, "rule": strike_text(rule, by), "at": tx.now}
    tx.put(tx.flavor.insert_replace(strikes, _KEYS), [row])
    tx.wake_beats()


def lift(tx: Tx, name: str) -> None:
    """See ``ConfigStore.lift_strike``."""
    if not tx.execute(_REMOVE, {"named": name}).rowcount:
        raise no_strike(name)
    tx.wake_beats()


def stored(tx: Tx) -> list[Strike]:
    """See ``ConfigStore.strikes``."""
    return sorted(map(_strike, tx.execute(_ALL)), key=lambda strike: strike.name)


def _strike(row: Row[Any]) -> Strike:
    # A time that cannot be read is left out: the rule counts as before.
    at = Fields({**row._mapping}).instant_or_none("at")
    return read_strike(row.name, row.rule, at)
