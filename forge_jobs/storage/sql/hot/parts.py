"""Parts of Postgres' statements that are a transaction of their own: their time, their counts."""

from typing import Any

from sqlalchemy.dialects import postgresql

_dialect: Any = postgresql.dialect()  # type: ignore[no-untyped-call]


def clock(given: str) -> str:
    """Return the time of the call: given by tests, otherwise the server's."""
    return f"coalesce({given}, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint)"


MOMENT = f"""
    moment AS MATERIALIZED (
        SELECT {clock(":clock")} AS now
    )
"""
NOW = "(SELECT now FROM moment)"

COUNT = """
    INSERT INTO forge_counters (queue, minute, host_id, part, name, count)
    SELECT news.queue, moment.now - moment.now % 60000000, news.host_id, :part, news.name,
        count(*)
    FROM news CROSS JOIN moment
    GROUP BY news.queue, moment.now, news.host_id, news.name
    ORDER BY news.queue, news.host_id, news.name
    ON CONFLICT (queue, minute, host_id, part, name)
        DO UPDATE SET count = forge_counters.count + excluded.count
"""
"""Adds the rows of the step before (queue, host_id, name) to the counters of ``:part``."""


def type_name(kind: Any) -> str:
    """Return the name of a column's type."""
    return str(kind.compile(dialect=_dialect)).partition(" COLLATE")[0]
