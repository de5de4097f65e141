"""The lines of limits on the screen: limits by key with their full keys, and rate limits."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct

from forge_jobs.operating.settings.concurrency import ConcurrencyLine
from forge_jobs.operating.settings.documents import RateLimitView
from forge_jobs.operating.words import duration

LIMIT_COLUMNS = ("LIMIT", "QUEUE", "KEY", "IN USE", "WAITING", "OLDEST", "NO START FOR")


class LimitRow(Struct, frozen=True, kw_only=True):
    """A limit by key, a full key of one, or a rate limit.

    :param queue: "" of a rate limit
    :param key: None where the line is of the whole limit
    :param use: permits or tokens, for people
    :param oldest: since when the oldest waiting job is due
    :param claimed_at: when a job of the key was claimed last
    """

    name: str
    queue: str
    key: str | None
    use: str
    waiting: int = 0
    oldest: datetime | None = None
    claimed_at: datetime | None = None

    @property
    def id(self) -> str:
        """The name of the line among all."""
        return f"{self.queue}\n{self.name}\n{'' if self.key is None else f'={self.key}'}"


def rows_of(limits: Iterable[ConcurrencyLine], rates: Iterable[RateLimitView]) -> list[LimitRow]:
    """Return the lines: limits at which jobs wait first, each with full keys below, then rates."""
    rows: list[LimitRow] = []
    for each in sorted(limits, key=lambda each: (-each.waiting, each.queue, each.name)):
        full = f", {each.full:,} full" if each.full else ""
        rows.append(
            LimitRow(
                name=each.name,
                queue=each.queue,
                key=None,
                use=f"{each.running:,}{full}",
                waiting=each.waiting,
                oldest=each.oldest_due_at,
            )
        )
        rows += [
            LimitRow(
                name=each.name,
                queue=each.queue,
                key=key.key,
                use=f"{key.running:,}/{each.at_most:,}",
                waiting=key.waiting,
                oldest=key.due_at,
                claimed_at=key.claimed_at,
            )
            for key in each.full_keys
        ]
    for rate in rates:
        use = f"{rate.available:,}/{rate.limit.capacity:,} tokens"
        if rate.taken_a_minute or rate.refused_a_minute:
            use += f", {rate.taken_a_minute:,} taken {rate.refused_a_minute:,} refused/min"
        rows.append(LimitRow(name=rate.scope, queue="", key=None, use=use))
    return rows


def limit_cells(row: LimitRow, now: datetime) -> Sequence[str]:
    """The cells of a line."""
    oldest, claimed = (None if at is None else now - at for at in (row.oldest, row.claimed_at))
    return (
        row.name,
        row.queue or "(rate)",
        "" if row.key is None else row.key or "(all)",
        row.use,
        f"{row.waiting:,}" if row.queue else "-",
        duration(oldest),
        duration(claimed),
    )
