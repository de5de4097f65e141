"""The settings of a Postgres session, and of each ``BEGIN`` behind a pooler."""

from collections.abc import Mapping
from typing import Protocol

_IDLE_IN_TRANSACTION_S = 10
"""A frozen process must not keep locks for longer."""

LOCK_S = 5
"""How long a statement waits for a lock before the call begins anew, so that the call does not wait
while holding locks. At most half the time limit, so that the error can still name the blocker."""

MOMENT_S = 0.5
"""How long an impatient call waits for locks: other calls share its transaction, and need none of
them."""

SHORT_S = 0.1
"""How long a statement of its own waits for a lock before the script of the call takes over, which
skips locked rows: longer than calls of the store hold a row."""

# A hot statement takes as long to plan as to run. So the server plans such a statement once, and
# the plan must be good for tables of any size, also when they were empty at planning: rows are
# looked up by index, one by one. All other statements are planned as the role and database say.
ONE_PLAN = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}


class Limits(Protocol):
    """The part of ``PostgresOptions`` that the setup of a session needs."""

    @property
    def timeout(self) -> float:
        """Seconds after which any call gives up."""
        ...

    @property
    def pooled(self) -> bool:
        """True when a pooler stands between."""
        ...

    @property
    def quoted_schema(self) -> str:
        """The schema of the tables."""
        ...

    @property
    def server_settings(self) -> Mapping[str, str]:
        """Further settings."""
        ...


def begin_write(options: Limits, lock_s: float = LOCK_S) -> str:
    """Return the BEGIN of a transaction that writes, under any defaults of the role and database.

    :param lock_s: seconds that the transaction waits for a lock, at most
    """
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    return "; ".join((begin, *_limits(options, lock_s)))


def begin_read(options: Limits) -> str:
    """Return the BEGIN of a transaction that reads one snapshot."""
    return "; ".join(("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", *_limits(options, LOCK_S)))


def _limits(options: Limits, lock_s: float) -> list[str]:
    """Return the settings that the session does not have already, which behind a pooler is all."""
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
    """Return the settings that override defaults of the role and the database."""
    return {
        **options.server_settings,
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "off",
        **_settings(options, LOCK_S),
    }


def plan_once(options: Limits) -> str:
    """Return the statement that sets a session up for statements planned once."""
    lasting = {**_settings(options, SHORT_S), **ONE_PLAN}
    return "; ".join(f"SET {name} = {lasting[name]}" for name in ("lock_timeout", *ONE_PLAN))
