"""Stores requests without parents and unique keys by one statement."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from forge_jobs.model.jobs import NewJob
from forge_jobs.storage.sql.base.job_rows import new_job_values
from forge_jobs.storage.sql.base.transaction import Key
from forge_jobs.storage.sql.hot import enqueue as hot
from forge_jobs.storage.sql.hot.behind import is_due_at_once, key_of
from forge_jobs.storage.sql.jobs.enqueue import place_of
from forge_jobs.storage.sql.postgres.direct import Direct
from forge_jobs.storage.wakeups import QUEUE

MOST_QUEUES = 50
"""So that the names of the queues fit into one notification."""

_MANY = Direct(hot.MANY, hot.TYPES_OF_MANY)
_ONE = Direct(hot.ONE, hot.TYPES_OF_ONE)
_MANY_OF_KEYS = Direct(hot.MANY_OF_KEYS, hot.TYPES_OF_MANY_OF_KEYS)
_ONE_OF_KEY = Direct(hot.ONE_OF_KEY, hot.TYPES_OF_ONE)


def fits(requests: Sequence[NewJob]) -> bool:
    """Return whether the statement can store the requests."""
    return (
        all(
            one.unique is None and not one.after and one.sequence is None and one.struck is None
            for one in requests
        )
        and len({one.id for one in requests}) == len(requests)
        and len({one.queue for one in requests}) <= MOST_QUEUES
    )


def topic_of(requests: Sequence[NewJob]) -> str:
    """Return the one topic that the requests are sure to wake, empty where that is not known."""
    [first, *others] = requests
    is_due = first.run_at is None and first.delay is None
    return QUEUE + first.queue if is_due and not others else ""


def statement_for(requests: Sequence[NewJob]) -> Direct:
    """Return the statement for the requests, with the lists or values of :func:`values_of`."""
    if _are_of_limits(requests):
        return _ONE_OF_KEY if len(requests) == 1 else _MANY_OF_KEYS
    return _ONE if len(requests) == 1 else _MANY


def rows_of(requests: Sequence[NewJob]) -> list[dict[str, Any]]:
    """Return the rows of the requests, in the order in which the script stores them."""
    return [
        # Times are relative to the server's now, so they count from zero here.
        {**new_job_values(one, 0, has_children=False), "from_now": one.run_at is None}
        for one in sorted(requests, key=place_of)
    ]


def values_of(requests: Sequence[NewJob]) -> dict[str, Any]:
    """Return the values of the statement, by the parameters' names."""
    rows = rows_of(requests)
    given = rows[0] if len(rows) == 1 else {name: [row[name] for row in rows] for name in hot.GIVEN}
    keys = _keys_of(requests) if len(rows) > 1 and _are_of_limits(requests) else {}
    return {"size": len(rows), **given, **keys}


def _are_of_limits(requests: Sequence[NewJob]) -> bool:
    limited = [one for one in requests if one.limit_name]
    return any(map(is_due_at_once, limited))


def _keys_of(requests: Sequence[NewJob]) -> dict[str, Any]:
    """Return the keys to look at, and the place of each row's key among them, None for none."""
    places: dict[Key, int] = {}
    of_key = [
        places.setdefault(key_of(one), len(places) + 1) if is_due_at_once(one) else None
        for one in sorted(requests, key=place_of)
    ]
    queues, names, keys = zip(*places, strict=True)
    counts = Counter(of_key)
    return {
        "of_key": of_key,
        "jobs": [counts[place] for place in places.values()],
        "key_queues": list(queues),
        "key_names": list(names),
        "keys": list(keys),
    }
