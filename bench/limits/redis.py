"""redis-py with hiredis, and one script that finishes a batch and claims the next."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from bench.limits.bare import CHUNK, Bare

_EXCHANGE = (Path(__file__).parent / "exchange.lua").read_text()


class BareRedis(Bare):
    """A list of waiting ids and a hash per job."""

    fused = True

    async def __aenter__(self) -> Self:
        self._open = [
            Redis.from_url(
                self.url,
                protocol=2,
                decode_responses=True,
                socket_timeout=None,
                retry=Retry(NoBackoff(), 0),
                single_connection_client=True,
            )
            for _ in range(self.connections)
        ]
        self._exchanges: list[Any] = [each.register_script(_EXCHANGE) for each in self._open]
        return self

    async def __aexit__(self, *error: object) -> None:
        for each in self._open:
            await each.aclose()

    async def fill(self, count: int) -> None:
        for first in range(0, count, CHUNK):
            ids = range(first, min(first + CHUNK, count))
            pipe = self._open[0].pipeline(transaction=False)
            for n in ids:
                pipe.hset(
                    f"bare:{n}",
                    mapping={"status": "waiting", "token": 0, "payload": f'{{"n": {n}}}'},
                )
            pipe.rpush("bare:waiting", *ids)
            await pipe.execute()

    async def exchange(
        self, connection: int, ended: Sequence[tuple[int, int]], claim: int
    ) -> list[tuple[int, int]]:
        arguments = [claim, len(ended), *(value for pair in ended for value in pair)]
        ends = await self._exchanges[connection](keys=["bare:waiting", "bare:done"], args=arguments)
        return list(zip(map(int, ends[0::3]), map(int, ends[1::3]), strict=True))

    async def finished(self) -> int:
        return int(await self._open[0].llen("bare:done"))
