"""Opens a :class:`Storage` by its URL.

The only importer of backends, and lazily: a program that uses one store does not load the drivers
of the others.
"""

from importlib import import_module
from pathlib import Path

from forge_jobs.clock import Clock
from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.storage.backend import Backend, Migrator
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.urls import unknown

_SQL = "forge_jobs.storage.sql"
_REDIS = "forge_jobs.storage.redis.opening"
_MODULES = {
    "sqlite": f"{_SQL}.sqlite.opening",
    "postgresql": f"{_SQL}.postgres.opening",
    "postgres": f"{_SQL}.postgres.opening",
    "redis": _REDIS,
    "rediss": _REDIS,
    "redis+sentinel": _REDIS,
    "rediss+sentinel": _REDIS,
    "redis+cluster": _REDIS,
    "rediss+cluster": _REDIS,
}


async def open_storage(
    url: str, *, clock: Clock | None = None, migrate: bool | None = None, create: bool = True
) -> Storage:
    """Open the store that ``url`` names. Options follow as ``?name=value&...``.

    **SQLite**: ``sqlite:///jobs.db`` (relative), ``sqlite:////srv/jobs.db`` (absolute), or
    ``sqlite:///:memory:``, a private temporary file that is removed at close.

    ``synchronous``
        What a commit survives. ``full`` (default): a crash of the process and a loss of power.
        ``normal``: a crash of the process, while a loss of power may undo the last commits. About
        twice as fast as ``full``. ``extra`` and ``off`` as SQLite documents them.
    ``timeout``
        Seconds after which a call gives up with ``Unavailable``, 30 by default.

    **PostgreSQL** 15 or newer: ``postgresql://user:password@host:5432/database``. The database
    must exist, the tables are created. Several hosts are separated by commas,
    ``host1:5432,host2:5433``: the first that takes writes is used, and a silent one delays no
    call.

    ``target_session_attrs``
        As libpq spells it: ``read-write`` (default with several hosts), ``primary`` or ``any``.

    ``schema``
        The schema of the tables, ``public`` by default. Created when missing, if the role may.
    ``pool_size``
        Connections of one bundle at most, 10 by default, opened as they are needed. A pod opens
        two bundles (the heartbeat has one of its own) and one connection that listens. Calls are
        batched, so a pod of a hundred workers needs no more than one of ten.
    ``timeout``
        As above, 5 by default. The server ends statements after this time, too. Keep the timeout
        well below a pod's lease, so that a call without an answer leaves time for another try.
    ``wake``
        ``listen`` (default): commits wake waiters. ``poll``: waiters look once a second, and
        commits of this program wake no other process.
    ``pgbouncer``
        ``true``: the URL leads to a pooler that gives each transaction to another session.
        Prepared statements are not kept, and without ``direct`` waiters will poll.
    ``direct``
        ``host:port`` past the pooler, for the connection that listens. Several are possible.
    ``sslmode``, ``sslrootcert``, ``sslcert``, ``host``, ``options``, ``connect_timeout``, ...
        As libpq documents them. ``docs/settings.md`` lists all that are known.
        ``connect_timeout`` limits one attempt at one host. The driver cannot do
        ``channel_binding=require``.

    **Redis** 7.0, **Valkey** 7.2 or newer: ``redis://:password@host:6379/0``,
    ``redis+sentinel://host,host/service/0``, ``redis+cluster://host,host``. ``rediss`` means TLS.
    A server that drops keys when memory is short is refused. All options: ``docs/redis.md``.

    ``prefix``
        The beginning of every key, ``forge`` by default. Two prefixes are two stores.
    ``timeout``
        As above, 5 by default.
    ``wait_replicas``
        How many replicas each write waits for, 0 by default, at most ``wait_timeout`` seconds.

    A new database gets the schema at once. Any number of processes may do that together.

    :param clock: a clock in place of the store's own, for tests
    :param migrate: True: bring an older schema up to date
    :param create: False: a database that does not exist is ``NotFound``, not a new one
    :raises NotFound: there is no such database, and ``create`` is False
    :raises InvalidInput: the URL is wrong (field ``url``)
    :raises SchemaMismatch: the schema is older (and ``migrate`` is not True), or newer and not one
        that works with this program
    :raises Unavailable: the store cannot be reached
    :raises StorageError: the server is too old, may lose jobs, or refuses this user
    """
    return await _backend(url).open(clock=clock, migrate=bool(migrate), create=create)


def open_migrator(url: str, *, clock: Clock | None = None) -> Migrator:
    """Return the migrator of the store that ``url`` names.

    :raises InvalidInput: the URL is wrong (field ``url``)
    """
    return _backend(url).migrator(clock)


async def back_up(url: str, target: Path) -> None:
    """Copy the SQLite store that ``url`` names to a new file, while programs use the store.

    :raises InvalidInput: ``target`` exists already (field ``target``), or the URL is wrong, or
        names a store with tools of its own (field ``url``)
    :raises NotFound: there is no such store
    """
    await _backend(url).back_up(target)


def _backend(url: str) -> Backend:
    if not isinstance(url, str):
        example = "give a text, for example sqlite:///jobs.db"
        raise InvalidInput("url", f"is {a_type(url)}", example)
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise InvalidInput("url", "has no scheme", "give for example sqlite:///jobs.db")
    module = _MODULES.get(scheme)
    if module is None:
        raise unknown("scheme", scheme, _MODULES)
    found: Backend = import_module(module).parse(url)
    return found
