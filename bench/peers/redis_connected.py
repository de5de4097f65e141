"""Common parts of the sides on Redis: a connection that asks for the end, and room in pools."""

from typing import Any

from bench.side import Side


def roomy(url: str) -> str:
    """With room for a connection per worker: redis-py 8 allows a hundred in a pool and refuses
    more, which a library meets that takes one for each of a hundred workers."""
    return f"{url}?max_connections=1000"


class RedisSide(Side):
    """Asks by redis-py, which the library brings. Opened and closed with the side."""

    store = "redis"

    async def open(self) -> None:
        from redis.asyncio import Redis

        self._asking: Any = Redis.from_url(self.work.url)

    async def close(self) -> None:
        await self._asking.aclose()

    async def _is_acknowledged(self, stream: str) -> bool:
        """Return whether every group of a stream has read and acknowledged all messages."""
        groups = await self._asking.xinfo_groups(stream)
        return bool(groups) and all(not g["pending"] and g["lag"] == 0 for g in groups)
