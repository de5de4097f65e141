"""All grants written to Redis, as the server itself reports them."""

import asyncio
import re
import secrets
from collections import defaultdict
from urllib.parse import parse_qs, urlsplit

import msgspec
from anyio.abc import TaskStatus
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from forge_jobs.model.processes import Pod
from tests.support.waiting import wait_until

_LINE = re.compile(r"\+(?P<at>[\d.]+) \[\d+ (?P<by>[^\]]*)\] (?P<words>.*)")
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')
_BY_A_SCRIPT = "lua"


class RedisGrantLog:
    """Replays the writes that a server shows under MONITOR, of the queues "work" and "side".

    The commands of a script follow the call of the script and come before anything else. So the sum
    when something else comes is one that other clients could see.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._password = parts.hostname, parts.port, parts.password
        [prefix] = parse_qs(parts.query)["prefix"]
        self._base = prefix
        self._slots = re.compile(rf"{re.escape(prefix)}:\{{([^}}#@]+)\}}:slots")
        self._pod = f"{prefix}:{{#}}:pod:"
        self._client = Redis.from_url(
            parts._replace(query="").geturl(), retry=Retry(NoBackoff(), 0)
        )
        self._grants: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._moved: set[str] = set()
        self._sums: defaultdict[str, list[int]] = defaultdict(list)
        self._writes: defaultdict[str, list[tuple[float, str, int]]] = defaultdict(list)
        self._processes: dict[str, int] = {}
        self._marks: set[str] = set()
        self._first_mark = secrets.token_hex(8)

    async def watch(self, *, task_status: TaskStatus[None]) -> None:
        """Read until cancelled. Started once everything from now on is seen."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(f"AUTH {self._password}\r\nMONITOR\r\n".encode())
            for _ in range(2):
                assert await reader.readline() == b"+OK\r\n"
            await self._take_stock()
            task_status.started()
            while line := await reader.readline():
                self._read(line.decode("latin-1"))
        finally:
            writer.close()

    async def aclose(self) -> None:
        """Close the log when no task watches any more."""
        await self._client.aclose()

    async def sums(self, queue: str = "work") -> list[int]:
        """See ``GrantLog``."""
        await self._catch_up()
        return list(self._sums[queue])

    async def grants_of(self, process_id: int, queue: str = "work") -> list[tuple[float, int]]:
        """See ``GrantLog``."""
        await self._catch_up()
        hosts = {host for host, process in self._processes.items() if process == process_id}
        return [(at, granted) for at, host, granted in self._writes[queue] if host in hosts]

    async def _take_stock(self) -> None:
        """Read the present grants, and mark the place in the stream at which counting starts."""
        async with self._client.pipeline(transaction=True) as both:
            both.echo(self._first_mark)
            both.hgetall(f"{self._base}:{{work}}:slots")
            both.hgetall(f"{self._base}:{{side}}:slots")
            _, *stock = await both.execute()
        for queue, slots in zip(("work", "side"), stock, strict=True):
            self._grants[queue] = {
                host.decode(): _grant_in(packed) for host, packed in slots.items()
            }

    async def _catch_up(self) -> None:
        mark = secrets.token_hex(8)
        await self._client.echo(mark)
        await wait_until(lambda: mark in self._marks, description="the mark comes by")

    def _read(self, line: str) -> None:
        found = _LINE.match(line)
        assert found is not None, line
        words = [_unescaped(word) for word in _WORD.findall(found["words"])]
        name = words[0].upper()
        if found["by"] != _BY_A_SCRIPT:
            self._close_step()
        if name == "ECHO":
            self._marks.add(words[1])
        if self._first_mark not in self._marks:
            return
        if name in ("HSET", "HDEL") and (slots := self._slots.fullmatch(words[1])):
            self._note(slots[1], float(found["at"]) * 1_000, name, words[2:])
        elif name == "HSET" and words[1].startswith(self._pod) and "doc" in words:
            pod = msgspec.json.decode(words[words.index("doc") + 1].encode("latin-1"), type=Pod)
            self._processes[pod.host_id] = pod.process_id

    def _note(self, queue: str, at_ms: float, name: str, words: list[str]) -> None:
        host = words[0]
        grant = _grant_in(words[1].encode("latin-1")) if name == "HSET" else 0
        if self._grants[queue].get(host, 0) != grant:
            self._grants[queue][host] = grant
            self._writes[queue].append((at_ms, host, grant))
            self._moved.add(queue)

    def _close_step(self) -> None:
        for queue in self._moved:
            self._sums[queue].append(sum(self._grants[queue].values()))
        self._moved.clear()


def _grant_in(packed: bytes) -> int:
    grant: int = msgspec.msgpack.decode(packed)[3]
    return grant


def _unescaped(word: str) -> str:
    return word.encode("latin-1").decode("unicode_escape")
