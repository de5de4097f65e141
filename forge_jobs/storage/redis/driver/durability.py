"""The kind of a server and the durability of its writes, looked at when a store is opened."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError

from forge_jobs.errors import StorageError
from forge_jobs.storage.redis.driver.connections import Pool
from forge_jobs.storage.redis.driver.errors import is_unreached
from forge_jobs.storage.redis.driver.routing import Servers

_SETTINGS = ("appendfsync", "save", "min-replicas-to-write", "maxmemory-policy")
_OLDEST = (7, 0)


@dataclass(frozen=True)
class Findings:
    """The answers of one server about itself. Empty where this user may not look."""

    info: Mapping[str, str]
    settings: Mapping[str, str]
    is_silent: bool = False

    def check(self, *, in_cluster: bool) -> None:
        """Refuse a server that cannot keep jobs.

        :param in_cluster: the URL names a cluster
        :raises StorageError: the text says why and what to do
        """
        if self.info.get("cluster_enabled") == "1" and not in_cluster:
            raise StorageError("the server is part of a cluster; give redis+cluster:// in its URL")
        version = self.info.get("redis_version", "")
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
        if numbers and numbers < _OLDEST:
            raise StorageError(
                f"the server is version {version}; forge-jobs needs Redis 7.0, Valkey 7.2 or newer"
            )
        policy = self._policy
        if policy not in ("noeviction", ""):
            raise StorageError(
                f"the server drops keys when its memory is used up (maxmemory-policy {policy}), so "
                "jobs would be lost; set maxmemory-policy noeviction"
            )

    @property
    def _policy(self) -> str:
        """The server's policy when its memory is used up, '' when this user may not ask."""
        return self.info.get("maxmemory_policy") or self.settings.get("maxmemory-policy", "")

    def doubts(self) -> str:
        """The questions that could not be asked and may cost jobs, '' for none."""
        if self._policy or self.is_silent:
            return ""
        return (
            "whether it drops keys when its memory is used up could not be looked at (neither INFO "
            "nor CONFIG is allowed; maxmemory-policy must be noeviction)"
        )

    def is_durable(self) -> bool:
        """True when an acknowledged write survives a loss of power, False also when unknown."""
        return self.info.get("aof_enabled") == "1" and self.settings.get("appendfsync") == "always"

    def product(self) -> str:
        """Name and version of the server, '' when this user may not ask."""
        if "valkey_version" in self.info:
            return f"Valkey {self.info['valkey_version']}"
        version = self.info.get("redis_version", "")
        return f"Redis {version}" if version else ""

    def survives(self) -> str:
        """The events that an acknowledged write survives on this server alone."""
        if self.is_silent:
            return "a server did not answer, so what it keeps could not be looked at"
        if "aof_enabled" not in self.info:
            return "what survives a crash could not be looked at (INFO is not allowed)"
        if self.info["aof_enabled"] == "1":
            return _APPENDED[self.settings.get("appendfsync", "")]
        if self.settings.get("save", "unknown"):
            saves = "snapshots only" if self.settings else "no appendonly"
            return f"a crash of the server loses all since its last snapshot ({saves})"
        return "a crash of the server loses every job (neither appendonly nor snapshots)"

    def replicas(self, wait: int) -> str:
        """The losses at a takeover by a replica, '' when there is none."""
        number = int(self.info.get("connected_slaves", "0"))
        least = int(self.settings.get("min-replicas-to-write") or 0)
        if wait:
            return f"each write waits for {wait} of {number} replicas"
        if not number:
            return ""
        refusing = f", refused below {least} replicas" if least else ""
        return f"a failover to one of {number} replicas may lose the last writes{refusing}"


_APPENDED = {
    "always": "a write survives a crash and a loss of power (appendonly, appendfsync always)",
    "everysec": "a write survives a crash of the server; a loss of power may undo the last second "
    "(appendonly, appendfsync everysec)",
    "no": "a write survives a crash of the server; a loss of power may undo the last half minute "
    "(appendonly, appendfsync no)",
    "": "a write survives a crash of the server; whether a loss of power undoes the last second "
    "could not be looked at (CONFIG is not allowed)",
}


async def look(servers: Servers, limit: float | None = None) -> list[Findings]:
    """Look at every server that takes writes, in one round trip each.

    Of several servers, those that do not answer are passed over while one does.

    :param limit: seconds for each. None: as long as a call may take
    """
    looks = [_look_at(pool, limit) for pool in await servers.each()]
    looked = await asyncio.gather(*looks, return_exceptions=True)
    silent = [each for each in looked if isinstance(each, BaseException) and is_unreached(each)]
    for each in looked:
        if isinstance(each, BaseException) and (each not in silent or len(silent) == len(looked)):
            raise each
    return [Findings({}, {}, True) if isinstance(each, BaseException) else each for each in looked]


async def _look_at(pool: Pool, limit: float | None) -> Findings:
    async with asyncio.timeout(limit):
        info, settings = await pool.converse([("INFO",), ("CONFIG", "GET", *_SETTINGS)])
    return Findings(_info(_allowed(info)), _pairs(_allowed(settings)))


def _allowed(reply: Any) -> Any:
    """Return the reply, None when the user may not ask, or the provider has no such command."""
    if isinstance(reply, NoPermissionError) or (
        isinstance(reply, ResponseError) and str(reply).lower().startswith("unknown command")
    ):
        return None
    if isinstance(reply, Exception):
        raise reply
    return reply


def _info(reply: bytes | None) -> dict[str, str]:
    lines = (reply or b"").decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _pairs(reply: list[bytes] | None) -> dict[str, str]:
    texts = [text.decode(errors="replace") for text in reply or []]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def in_words(findings: list[Findings], wait_replicas: int) -> str:
    """Return one line for people. Of several servers the weakest counts in each respect."""
    lines = {
        part: None
        for each in findings
        for part in (each.survives(), each.replicas(wait_replicas), each.doubts())
    }
    return "; ".join(part for part in lines if part)
