"""What is set on a session of Postgres, and by each ``BEGIN`` behind a pooler."""

from collections.abc import Mapping
from typing import Protocol

_IDLE_IN_TRANSACTION_S = 10
"""A frozen process must not keep its locks for longer."""

LOCK_S = 5
"""Then the call begins anew, so that it does not wait with locks of its own. At most half the time
limit, so that it can still say what it waited for."""

MOMENT_S = 0.5
"""How long a call waits for locks that is not to hold up others which need none of them."""

SHORT_S = 0.1
"""How long a statement of its own waits before the script of its call takes over, which need not
wait: longer than calls of ours hold a row."""

# A hot statement takes as long to plan as to run. So it is planned once, and that plan must be
# good for tables of any size, also when they were empty then: rows are looked up by index, one by
# one. All else is planned as the role and database say.
ONE_PLAN = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}


class Limits(Protocol):
    """What of ``PostgresOptions`` says how a session is set up."""

    @property
    def timeout(self) -> float:
        """Seconds after which any call gives up."""
        ...

    @property
    def pooled(self) -> bool:
        """Whether a pooler stands between."""
        ...

    @property
    def quoted_schema(self) -> str:
        """Where the tables are."""
        ...

    @property
    def server_settings(self) -> Mapping[str, str]:
        """Further settings."""
        ...


def begin_write(options: Limits, lock_s: float = LOCK_S) -> str:
    """Begins a transaction that writes, whatever the defaults of the role and database are.

    :param lock_s: seconds for which it waits for a lock, at most
    """
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    return "; ".join((begin, *_limits(options, lock_s)))


def begin_read(options: Limits) -> str:
    """Begins a transaction that reads one snapshot."""
    return "; ".join(("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", *_limits(options, LOCK_S)))


def _limits(options: Limits, lock_s: float) -> list[str]:
    """What its session does not say already, which behind a pooler is all."""
    said = {} if options.pooled else _settings(options, LOCK_S)
    wanted = _settings(options, lock_s).items()
    return [f"SET LOCAL {name} = {value}" for name, value in wanted if said.get(name) != value]


def _settings(options: Limits, lock_s: float) -> dict[str, str]:
    limit = int(options.timeout * 1000)
    return {
        "search_path": options.quoted_schema,
        "statement_timeout": str(limit),
        "lock_timeout": str(min(limit // 2, int(lock_s * 1000))),
        "idle_in_transaction_session_timeout": str(_IDLE_IN_TRANSACTION_S * 1000),
    }


def session(options: Limits) -> dict[str, str]:
    """Which of the role's and the database's defaults do not hold."""
    return {
        **options.server_settings,
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "off",
        **_settings(options, LOCK_S),
    }


def plan_once(options: Limits) -> str:
    """Sets a session up for statements that are planned once."""
    lasting = {**_settings(options, SHORT_S), **ONE_PLAN}
    return "; ".join(f"SET {name} = {lasting[name]}" for name in ("lock_timeout", *ONE_PLAN))
