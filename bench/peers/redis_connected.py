"""What the sides on Redis share: a connection that asks when all is done."""

from types import TracebackType
from typing import Any, Self

from bench.side import Side


class RedisSide(Side):
    """Asks by redis-py, which its library brings; opened and closed with the side."""

    store = "redis"

    async def __aenter__(self) -> Self:
        from redis.asyncio import Redis

        self._asking: Any = Redis.from_url(self.work.url)
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._asking.aclose()

    async def _is_acknowledged(self, stream: str) -> bool:
        """Whether every group of a stream has been given, and has acknowledged, all of it."""
        groups = await self._asking.xinfo_groups(stream)
        return bool(groups) and all(not g["pending"] and g["lag"] == 0 for g in groups)
