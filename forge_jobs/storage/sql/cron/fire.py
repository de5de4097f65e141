"""Fires schedules: many advance and enqueue together, in as many statements as one.

The rows are locked first, in the order of their names, and no earlier reading decides anything. A
second transaction that fires the same schedules waits, and then finds them moved on.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import select

from forge_jobs.clock import to_us
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.model.schedules import Firing
from forge_jobs.storage.salvage import tally
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import jobs, schedules
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.enqueue import enqueue

_LOCKED = (
    select(
        schedules.c.name,
        schedules.c.version,
        schedules.c.next_at,
        schedules.c.last_fired_at,
        schedules.c.fired,
        schedules.c.skipped,
        schedules.c.error,
    )
    .where(one_of(schedules.c.name, "names"), schedules.c.deleted.is_(False))
    .order_by(schedules.c.name)
    .with_for_update(key_share=True)
)
_STORED = select(jobs.c.id).where(one_of(jobs.c.id, "ids"))


class _Standing(msgspec.Struct):
    """The columns of a schedule that a firing changes."""

    name: str
    version: int
    next_at: int | None
    last_fired_at: int | None
    fired: int
    skipped: int
    error: str

    def advance(self, firing: Firing) -> bool:
        """Move the schedule to the next version. False: the firing no longer holds."""
        if self.version != firing.version:
            return False
        self.version += 1
        self.next_at = None if firing.error or firing.next_at is None else to_us(firing.next_at)
        self.skipped += firing.skipped
        self.error = firing.error
        return True

    def count(self, firing: Firing, stored: Sequence[tuple[EnqueueOutcome, bool]]) -> None:
        """Count the outcomes of the firing's jobs, as :func:`put_in` returned them."""
        fired = sum(is_new for _, is_new in stored)
        self.fired += fired
        self.skipped += sum(outcome.deduplicated for outcome, _ in stored)
        if fired:
            self.last_fired_at = None if firing.fired_at is None else to_us(firing.fired_at)


def fire(tx: Tx, firings: Sequence[Firing]) -> list[bool]:
    """See ``CronStore.fire``."""
    standing = _lock(tx, {firing.name for firing in firings})
    advanced = [
        firing.name in standing and standing[firing.name].advance(firing) for firing in firings
    ]
    held = [firing for firing, did in zip(firings, advanced, strict=True) if did]
    stored = iter(put_in(tx, [job for firing in held for job in firing.jobs]))
    for firing in held:
        standing[firing.name].count(firing, [next(stored) for _ in firing.jobs])
    if held:
        changed = sorted({firing.name for firing in held})
        rows = [msgspec.structs.asdict(standing[name]) for name in changed]
        tx.flavor.advance_schedules(tx.connection, rows)
    return advanced


def put_in(tx: Tx, requests: Sequence[NewJob]) -> list[tuple[EnqueueOutcome, bool]]:
    """Enqueue, and return the outcome of each request and whether it was stored now.

    A duplicate of a key is not stored now, nor is a repeat of an id.
    """
    known = _stored(tx, requests)
    answers = []
    for request, outcome in zip(requests, enqueue(tx, requests), strict=True):
        answers.append((outcome, not outcome.deduplicated and request.id not in known))
        known.add(request.id)
    return answers


def _lock(tx: Tx, names: Iterable[str]) -> dict[str, _Standing]:
    return {
        row.name: _standing(row)
        for portion in portions(sorted(names))
        for row in tx.execute(_LOCKED, {"names": portion})
    }


def _standing(row: Any) -> _Standing:
    found = _Standing(*row)
    # Unreadable counts begin anew.
    found.fired, found.skipped = tally(found.fired), tally(found.skipped)
    return found


def _stored(tx: Tx, requests: Iterable[NewJob]) -> set[str]:
    """Return the ids that are stored already: their requests are repeats."""
    ids = (request.id for request in requests)
    return {
        found
        for portion in portions(ids)
        for found in tx.execute(_STORED, {"ids": portion}).scalars()
    }
