"""What is asked of any store, seen where it leaves this process."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis.asyncio.connection import Connection
from sqlalchemy import Engine, event

from forge_jobs.storage.redis import connections


@contextmanager
def asked() -> Iterator[Counter[str]]:
    """Counts SQL statements by their text, and Redis commands by their name or script."""
    seen: Counter[str] = Counter()
    real = connections.converse

    def note(_c: object, _k: object, text: str, parameters: object, *_: object) -> None:
        seen[text] += len(parameters) if isinstance(parameters, list) else 1

    async def converse(
        connection: Connection, commands: Sequence[connections.Command]
    ) -> list[Any]:
        seen.update(" ".join(map(str, command[:2])) for command in commands)
        return await real(connection, commands)

    event.listen(Engine, "before_cursor_execute", note)
    connections.converse = converse
    try:
        yield seen
    finally:
        connections.converse = real
        event.remove(Engine, "before_cursor_execute", note)
