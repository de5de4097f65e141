"""``redis:`` URLs: parsed, and opened as a :class:`Storage`."""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from forge_jobs.clock import Clock
from forge_jobs.errors import InvalidInput, Unavailable
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols import Storage, StoreReport
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.listening import waiters_of
from forge_jobs.storage.redis.base.places import KnownOfStore
from forge_jobs.storage.redis.base.queues import unreadable
from forge_jobs.storage.redis.base.rights import check_rights
from forge_jobs.storage.redis.base.schema import RedisMigrator, layout_version, settle_schema
from forge_jobs.storage.redis.config.store import RedisConfigStore
from forge_jobs.storage.redis.cron.store import RedisCronStore
from forge_jobs.storage.redis.driver.address import RedisUrl, parse_url
from forge_jobs.storage.redis.driver.durability import Findings, in_words, look
from forge_jobs.storage.redis.driver.reporting import report_of
from forge_jobs.storage.redis.fleet.pods import RedisProcStore
from forge_jobs.storage.redis.jobs.store import RedisJobStore
from forge_jobs.storage.redis.locators.late_check import LateCheck
from forge_jobs.storage.redis.locators.moving import begin
from forge_jobs.storage.redis.locators.moving import look as look_at_locators

logger = reporter(__name__)

_KINDS = {"": "redis", "sentinel": "redis by sentinel", "cluster": "redis cluster"}


def parse(url: str) -> "RedisAddress":
    """The servers and the options that the URL names.

    :raises InvalidInput: the URL is wrong (field ``url``)
    """
    return RedisAddress(parse_url(url))


@dataclass(frozen=True)
class RedisAddress:
    """A ``Backend``: what a ``redis:`` URL says."""

    url: RedisUrl

    async def open(self, *, clock: Clock | None, migrate: bool, create: bool) -> Storage:
        """See ``Backend.open``.

        :raises StorageError: also when the server is too old, or drops keys
        """
        return await _Opener(self.url, clock).open(migrate=migrate, create=create)

    async def back_up(self, target: Path) -> None:
        """See ``Backend.back_up``."""
        fix = "use BGSAVE, or the backups of your server"
        raise InvalidInput("url", "names a Redis server", fix)

    def migrator(self, clock: Clock | None) -> RedisMigrator:
        """See ``Backend.migrator``."""

        @asynccontextmanager
        async def connect() -> AsyncGenerator[Database]:
            database = _database(self.url, clock)
            try:
                yield database
            finally:
                with anyio.CancelScope(shield=True):
                    await database.close()

        return RedisMigrator(connect)


class _Opener:
    """Opens bundles on one store: the first, and those for other event loops."""

    def __init__(self, url: RedisUrl, clock: Clock | None) -> None:
        self._url = url
        self._clock = clock
        self._findings: list[Findings] = []
        self._known = KnownOfStore(url.keys)

    async def open(self, *, migrate: bool, create: bool) -> Storage:
        database = _database(self._url, self._clock, self._known)
        try:
            limit = self._url.timeout / 2 if database.is_cluster else None
            self._findings = await database.guarded(lambda: look(database.servers, limit))
            for each in self._findings:
                each.check(in_cluster=database.is_cluster)
            try:
                await check_rights(database)
                is_new = await settle_schema(database, migrate=migrate, create=create)
            except Unavailable as error:
                await LateCheck(database).begin(error)
            else:
                await (begin if is_new and database.is_cluster else look_at_locators)(database)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await database.close()
            raise
        storage = self._bundle(database)
        logger.info("%s: %s", storage.name, storage.durability)
        return storage

    async def _reopen(self) -> Storage:
        return self._bundle(_database(self._url, self._clock, self._known))

    def _bundle(self, database: Database) -> Storage:
        async def close() -> None:
            # Also in a scope that is cancelled, which is when most stores are closed.
            with anyio.CancelScope(shield=True):
                await database.close()

        url = self._url
        number = "" if url.kind == "cluster" else f"database {url.database}, "
        return Storage(
            RedisJobStore(database),
            RedisProcStore(database),
            RedisConfigStore(database),
            RedisCronStore(database),
            reopen=self._reopen,
            close=close,
            name=f"{_KINDS[url.kind]} ({number}prefix {url.keys.prefix})",
            server=", ".join(sorted({each.product() for each in self._findings} - {""})),
            durability=in_words(self._findings, url.wait_replicas),
            is_durable=all(each.is_durable() for each in self._findings),
            health=database.health,
            unreadable=lambda: unreadable(database),
            report=lambda: _report(database),
            pool_size=url.pool_size,
            is_parted=database.is_cluster,
        )


async def _report(database: Database) -> StoreReport:
    version = await layout_version(database)
    return report_of(await database.guarded(lambda: look(database.servers)), version)


def _database(url: RedisUrl, clock: Clock | None, known: KnownOfStore | None = None) -> Database:
    store_id = _identity(url)
    waiters = waiters_of(url, store_id)
    return Database(url, store_id=store_id, waiters=waiters, known=known, clock=clock)


def _identity(url: RedisUrl) -> str:
    """Return a name that all URLs of one store share, as far as can be known, without secrets."""
    parts = (url.kind, sorted(url.hosts), url.service, url.database, url.keys.prefix)
    return f"redis {hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"
