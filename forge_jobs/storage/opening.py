"""From a URL to a :class:`Storage`. The only importer of backends, and lazily: a program that
uses one store does not load the drivers of the others."""

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
        What "durable" means for a commit. ``full`` (default): it survives a crash of the process
        and a loss of power. ``normal``: it survives a crash of the process, a loss of power may
        undo the last ones; about twice as fast. ``extra`` and ``off`` as SQLite documents them.
    ``timeout``
        Seconds after which a call gives up with ``Unavailable``; 30 by default.

    **PostgreSQL** 15 or newer: ``postgresql://user:password@host:5432/database``. The database
    must be there, the tables are made in it. Several hosts stand with commas between,
    ``host1:5432,host2:5433``: the first that takes writes is used, and a silent one holds up
    nobody.

    ``target_session_attrs``
        As libpq spells it: ``read-write`` (default with several hosts), ``primary`` or ``any``.

    ``schema``
        Where the tables are, ``public`` by default; made when it is missing and the role may.
    ``pool_size``
        Connections of one bundle at most, 10 by default, opened as they are needed. A pod opens
        two bundles (the heartbeat has its own) and one connection that listens. Calls are
        batched, so a pod of a hundred workers needs no more than one of ten.
    ``timeout``
        As above, 5 by default; statements end by themselves in the server, too. Well below a pod's
        lease, so that a call that gets no answer leaves time for another try.
    ``wake``
        ``listen`` (default): commits ring those who wait. ``poll``: they look once a second, and
        nobody is told of what this program commits.
    ``pgbouncer``
        ``true``: the URL leads to a pooler that gives each transaction to another session.
        Prepared statements are not kept, and without ``direct`` waiters will poll.
    ``direct``
        ``host:port`` past the pooler, for the connection that listens; or several.
    ``sslmode``, ``sslrootcert``, ``sslcert``, ``host``, ``options``, ``connect_timeout``, ...
        As libpq documents them; all that are known are in ``docs/settings.md``. ``connect_timeout``
        is of one attempt at one host. The driver cannot do ``channel_binding=require``.

    **Redis** 7.0, **Valkey** 7.2 or newer: ``redis://:password@host:6379/0``,
    ``redis+sentinel://host,host/service/0``, ``redis+cluster://host,host``; with ``rediss`` by TLS.
    A server that drops keys when memory is short is refused. All options: ``docs/redis.md``.

    ``prefix``
        What every key begins with, ``forge`` by default; two prefixes are two stores.
    ``timeout``
        As above, 5 by default.
    ``wait_replicas``
        How many replicas each write waits for, 0 by default, at most ``wait_timeout`` seconds.

    A new database gets its schema at once. Any number of processes may do that together.

    :param clock: the store's clock in place of the machine's own, for tests
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
    """The schema of the store that ``url`` names: its state, its missing changes, its upgrade.

    :raises InvalidInput: the URL is wrong (field ``url``)
    """
    return _backend(url).migrator(clock)


async def back_up(url: str, target: Path) -> None:
    """Copy the SQLite store that ``url`` names to a new file, while programs use it.

    :raises InvalidInput: ``target`` is there already (field ``target``), or the URL is wrong, or of
        a store with tools of its own (field ``url``)
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
