"""Bugs of lists in the order of times, and of counts."""

from tests.meta.bugs import Bug, Edit

_SQL, _REDIS = "forge_jobs/storage/sql/jobs/", "forge_jobs/storage/redis/"
_ORDERS = ("tests/conformance/test_list_orders.py",)


def _of_sql(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"lists: {name}", _ORDERS, (Edit(f"{_SQL}{file}.py", old, new),))


def _of_redis(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"lists on redis: {name}", _ORDERS, (Edit(f"{_REDIS}{file}", old, new),), "redis")


_RANKS = "lua/lib/jobs/lists/ranks.lua"

LIST_BUGS: tuple[Bug, ...] = (
    _of_sql(
        "a page by time begins behind all jobs of one time",
        "lists/ordered",
        "key < start if way.is_descending else key > start",
        "way.at < beyond.at if way.is_descending else way.at > beyond.at",
    ),
    _of_sql(
        "by time, a part that ended sooner hides jobs of others",
        "lists/ordered",
        "(max if way.is_descending else min)(ends, default=None)",
        "(min if way.is_descending else max)(ends, default=None)",
    ),
    _of_sql(
        "jobs of one status are asked for, and all that wait come",
        "lists/ordered",
        "statuses=() if waiting == _IN_LINE else tuple(waiting)",
        "statuses=()",
    ),
    _of_sql(
        "a count of a walk counts what the next call counts again",
        "lists/counting",
        "looked_for.append(first.c.id >= end)",
        "pass",
    ),
    _of_sql(
        "a count of all that may be counted says that there are more",
        "lists/counting",
        "if number > at_most:\n        return",
        "if number >= at_most:\n        return",
    ),
    _of_redis(
        "a page by time begins behind all jobs of one time",
        _RANKS,
        "if member ~= id and is_before(member, id) == is_descending then",
        "if false then",
    ),
    _of_redis(
        "by time, a line that was read in part hides jobs of others",
        _RANKS,
        "    and not (horizon and comes_before(horizon, jobs[last + 1], is_descending)) do",
        "    do",
    ),
    _of_redis(
        "a count adds up the lists of one part and forgets the other parts",
        "jobs/lists/counting.py",
        "len(given) <= 1 and ",
        "",
    ),
)
