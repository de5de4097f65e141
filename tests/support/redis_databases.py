"""Connections and scripts of a Redis store, opened without the views."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.listening import waiters_of
from forge_jobs.storage.redis.driver.address import parse_url
from forge_jobs.storage.redis.keys import Keys

KEYS = Keys("tested")
"""Of the one store on a server that a test has to itself."""


def with_options(url: str, **options: object) -> str:
    """``url`` with more options."""
    text = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{url}{'&' if '?' in url else '?'}{text}"


@asynccontextmanager
async def opened(url: str, **options: object) -> AsyncGenerator[Database]:
    """Yield a database, by default under a new prefix."""
    options.setdefault("prefix", f"test-{secrets.token_hex(6)}")
    parsed = parse_url(with_options(url, **options))
    store_id = f"test of {options['prefix']}"
    waiters = waiters_of(parsed, store_id)
    database = Database(parsed, store_id=store_id, waiters=waiters, clock=None)
    try:
        yield database
    finally:
        await database.close()
