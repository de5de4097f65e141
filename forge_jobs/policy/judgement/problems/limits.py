"""Rules on limits: jobs that wait long for tokens of a rate, or at a full key."""

from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import quote

from forge_jobs.policy import remedies
from forge_jobs.policy.judgement.problems.problem import (
    Finding,
    for_long,
    number,
    page_of,
    short,
    waits,
)
from forge_jobs.policy.judgement.problems.snapshot import FullKeySeen, Snapshot

UNKNOWN_RUN = timedelta(minutes=25)
"""So long a run may take of a kind of which too few have ended to say what is usual."""


def limit_starving(seen: Snapshot) -> Iterator[Finding]:
    """Jobs wait long for the tokens of a rate limit."""
    for limit in seen.limits:
        if not limit.waiting:
            continue
        minutes = limit.waiting / limit.refill_a_minute if limit.refill_a_minute > 0 else None
        last = f" The last of them has one in {minutes:.3g} min." if minutes else ""
        yield Finding(
            about=limit.scope,
            jobs=limit.waiting,
            since=limit.oldest_since,
            evidence=(
                f"{waits(limit.waiting, 'job')} for the limit {limit.scope}, the oldest for "
                f"{for_long(seen.now - limit.oldest_since)}."
            ),
            why=f"The limit gives {limit.refill_a_minute:.3g} tokens a minute.{last}",
            action="Raise the limit when the other side allows more.",
            command=remedies.LIST_LIMITS,
            page=page_of("limits"),
        )


def key_starving(seen: Snapshot) -> Iterator[Finding]:
    """Jobs wait at a full key, and none has started there for longer than runs take."""
    for key in seen.keys:
        began = key.since + (UNKNOWN_RUN if key.usual is None else key.usual)
        named = f" of key {key.key!r}" if key.key else ""
        yield Finding(
            about=f"{key.limit} {key.key}".rstrip(),
            queue=key.queue,
            jobs=key.waiting,
            since=began,
            evidence=(
                f"{waits(key.waiting, 'job')}{named} for the limit {key.limit} of queue "
                f"{key.queue}, and none has started for {for_long(seen.now - key.since)}."
            ),
            why=_why(key),
            action=(
                "See where the jobs of the key stand. The next one starts when one of them "
                "ends, is cancelled, or the limit is raised."
            ),
            command=remedies.show_key(key.queue, key.limit, key.key),
            page=f"{page_of('limits', key.queue)}/{quote(key.limit, safe='')}"
            f"?key={quote(key.key, safe='')}",
        )


def _why(key: FullKeySeen) -> str:
    held = f"{number(key.running, 'job')} of {' and '.join(key.kinds) or 'the limit'}"
    verb = "holds" if key.running == 1 else "hold"
    usual = "Too few have ended in the last day to say how long they take."
    if key.usual is not None:
        usual = f"99 of 100 such runs take no longer than {short(key.usual)}."
    return f"{held} {verb} the key. {usual}"
