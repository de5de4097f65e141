"""Messages that a subscribed connection gets. A quiet connection must prove that it lives."""

from typing import Any

from redis.asyncio.connection import Connection
from redis.exceptions import TimeoutError as NoAnswer

PING_AFTER_S = 4.0
"""A connection that has been quiet for so long must answer, within as long again."""


async def next_message(connection: Connection) -> Any:
    """Read the next message.

    :raises redis.exceptions.RedisError: the connection is silent, or refused what was sent
    """
    message = await _read(connection)
    if message is None:
        await connection.send_command("PING", check_health=False)
        message = await reply(connection)
    return message


async def reply(connection: Connection) -> Any:
    """Read what comes next, which must come soon.

    :raises redis.exceptions.RedisError: nothing came, or a refusal
    """
    message = await _read(connection)
    if message is None:
        raise NoAnswer
    return message


async def _read(connection: Connection) -> Any:
    return await connection.read_response(timeout=PING_AFTER_S, disconnect_on_error=False)
