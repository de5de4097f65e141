"""Rules on limits: jobs that wait long for tokens of a rate, or at a full key."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from urllib.parse import quote

from forge_jobs.model.names import path_part
from forge_jobs.policy import remedies
from forge_jobs.policy.judgement.long_runs import long_from
from forge_jobs.policy.judgement.problems.problem import (
    Finding,
    for_long,
    number,
    page_of,
    short,
    waits,
)
from forge_jobs.policy.judgement.problems.snapshot import FullKeySeen, HeldKeySeen, Snapshot

UNKNOWN_RUN = timedelta(minutes=25)
"""So long a run may take of a kind of which too few have ended to say what is usual."""

_NAMED = 3
"""Jobs that a finding names."""


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
    """Jobs wait at a full key, and none has started there for longer than runs take. Or long runs
    hold permits of the key, while jobs wait there.

    A key of which both are true is named once, as what was seen first.
    """
    found: dict[tuple[str, str, str], Finding] = {}
    for each in (*map(_held, seen.held_keys), *(_starving(key, seen.now) for key in seen.keys)):
        of = each.queue, each.about, each.page
        if of not in found or each.since < found[of].since:
            found[of] = each
    yield from found.values()


def _starving(key: FullKeySeen, now: datetime) -> Finding:
    return Finding(
        about=f"{key.limit} {key.key}".rstrip(),
        queue=key.queue,
        jobs=key.waiting,
        since=key.since + (UNKNOWN_RUN if key.usual is None else key.usual),
        evidence=(
            f"{waits(key.waiting, 'job')}{_named(key.key)} for the limit {key.limit} of queue "
            f"{key.queue}, and none has started for {for_long(now - key.since)}."
        ),
        why=_why(key),
        action=(
            "See where the jobs of the key stand. The next one starts when one of them "
            "ends, is cancelled, or the limit is raised."
        ),
        command=remedies.show_key(key.queue, key.limit, key.key),
        page=_page(key),
    )


def _held(key: HeldKeySeen) -> Finding:
    """Return the finding of a key some of whose permits long runs hold. Others may come and go."""
    runs = sorted(key.long, key=lambda run: (run.started_at, run.job_id))
    verb = "is" if len(runs) == 1 else "are"
    more = f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
    holders = ", ".join(f"{run.job_id} ({run.kind}) on {run.pod}" for run in runs[:_NAMED])
    usual = max(run.usual for run in runs if run.usual is not None)
    return Finding(
        about=f"{key.limit} {key.key}".rstrip(),
        queue=key.queue,
        jobs=key.waiting,
        since=min(run.started_at + long_from(run.usual) for run in runs if run.usual is not None),
        evidence=(
            f"{len(runs):,} of {number(key.running, 'permit')}{_named(key.key)} of the limit "
            f"{key.limit} of queue {key.queue} {verb} held for far longer than such runs take, and "
            f"{waits(key.waiting, 'job')} there."
        ),
        why=f"Held by {holders}{more}. 99 of 100 such runs take no longer than {short(usual)}.",
        action=(
            "See where these jobs stand. A permit is free once its job has ended: cancel one "
            "whose result is not wanted any more, or raise the limit."
        ),
        command=remedies.show_key(key.queue, key.limit, key.key),
        page=_page(key),
    )


def _named(key: str) -> str:
    return f" of key {key!r}" if key else ""


def _page(key: FullKeySeen | HeldKeySeen) -> str:
    value = quote(key.key, safe="")
    return f"{page_of('limits', key.queue)}/{path_part(key.limit)}?key={value}"


def _why(key: FullKeySeen) -> str:
    held = f"{number(key.running, 'job')} of {' and '.join(key.kinds) or 'the limit'}"
    verb = "holds" if key.running == 1 else "hold"
    usual = "Too few have ended in the last day to say how long they take."
    if key.usual is not None:
        usual = f"99 of 100 such runs take no longer than {short(key.usual)}."
    return f"{held} {verb} the key. {usual}"
