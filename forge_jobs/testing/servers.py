"""Real servers to throw away: PostgreSQL, Redis or Valkey, a Redis cluster and PgBouncer.

::

    with PostgresServer() as server:
        storage = await open_storage(server.url)

The programs come from the wheels of the extra ``dev`` unless others are named. Servers listen on
a free port of the loopback interface under a password of their own, keep their data in a
private folder, and end with this process in any case. They run as root and as an
ordinary user. Starting and stopping blocks: 0.4 s for PostgreSQL, milliseconds for Redis, 2.3 s
for a cluster.
"""

import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from forge_jobs.testing.base import Server
from forge_jobs.testing.ports import HOST
from forge_jobs.testing.programs import (
    ServerError,
    copy_of_wheel,
    on_path,
    postgres_programs,
    redis_program,
    refuses_root,
)

_SLOTS = 16_384
_CLUSTER_SECONDS = 60.0
_CLUSTER_LOOKS_S = 0.05


class PostgresServer(Server):
    """A PostgreSQL server. The superuser is ``postgres``. ``url`` names the database of that name.

    :param programs: the folder of ``postgres`` and ``initdb``. None: the wheel's
    :param durable: False: fast, and what is acknowledged survives the end of the server's
        processes only when the server stops in good order. True: PostgreSQL's own defaults
    :param settings: further settings by name, as in ``postgresql.conf``
    :param folder: where the private folder is made
    """

    name = "PostgreSQL"
    _ready = b"database system is ready to accept connections"
    _stop_signal = signal.SIGINT
    _end_signal = "QUIT"

    _SETTINGS: ClassVar[dict[str, str]] = {
        "listen_addresses": HOST,
        "unix_socket_directories": "",
        "max_connections": "200",
        # In the data folder, so that nothing stays behind when the server is killed.
        "dynamic_shared_memory_type": "mmap",
    }
    _FAST: ClassVar[dict[str, str]] = {
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
    }

    def __init__(
        self,
        *,
        programs: Path | None = None,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__(folder)
        self._given_programs = self._programs = programs
        self._settings = {
            **self._SETTINGS,
            **({} if durable else self._FAST),
            **(settings or {}),
        }

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{self.password}@{HOST}:{self.port}/postgres"

    def _prepare(self) -> None:
        programs = self._programs or postgres_programs()
        _, user = refuses_root()
        if user is not None and self._programs is None:
            programs = copy_of_wheel(programs, self.folder)
        self._programs = programs
        self._own(self.folder)
        self._prepare_data()

    def _prepare_data(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        self._own(secret)
        self._run_program(
            "initdb",
            f"--pwfile={secret}",
            "--username=postgres",
            # The quickest check of a password: the password guards a moment of one machine.
            "--auth=md5",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            what="could not make its database",
        )

    def _run_program(self, program: str, *arguments: str, what: str) -> None:
        """Run one of PostgreSQL's programs on the data. ``what`` names the deed in an error."""
        assert self._programs is not None
        data = f"--pgdata={self.folder / 'data'}"
        command = [str(self._programs / program), *arguments, data]
        if self._run(command, refuse_root=True).wait() != 0:
            raise self._failed(what)

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        assert self._programs is not None
        # Nothing of this server runs any more, and the process id may belong to another by now.
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)
        settings = {**self._settings, "port": str(port)}
        options = [f"--{name}={value}" for name, value in settings.items()]
        command = [str(self._programs / "postgres"), "-D", str(self.folder / "data"), *options]
        return self._run(command, refuse_root=True)


class RedisServer(Server):
    """A Redis or Valkey server.

    :param program: the server's program. None: Valkey from the wheel
    :param durable: False: in memory, saved only when the server stops in good order. True: an
        append-only file that is synced before each reply
    :param settings: further settings by name, as in ``redis.conf``
    :param folder: where the private folder is made
    :param password: what clients must give. None: a new one
    """

    name = "Redis"
    _ready = b"Ready to accept connections"
    _stop_signal = signal.SIGTERM
    _end_signal = "KILL"

    def __init__(
        self,
        *,
        program: Path | None = None,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
        password: str | None = None,
    ) -> None:
        super().__init__(folder)
        self.password = password or self.password
        self._program = program
        self._settings = {
            "bind": HOST,
            "save": '""',
            "shutdown-on-sigterm": "save",
            "appendonly": "yes" if durable else "no",
            "appendfsync": "always",
            "requirepass": self.password,
            "masterauth": self.password,
            **(settings or {}),
        }

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    def command(self, name: str, *arguments: str | int) -> Any:
        """Run a command on a connection of its own. Return the reply as redis-py gives it.

        :raises redis.exceptions.RedisError: refused, or the server is not there
        """
        import redis

        with redis.Redis.from_url(self.url, decode_responses=True, protocol=2) as client:
            return client.execute_command(name, *arguments)

    def _prepare(self) -> None:
        self._program = self._program or redis_program()

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        settings = {**self._settings, "dir": f'"{self.folder}"', "port": str(port)}
        lines = [f"{name} {value}\n" for name, value in settings.items()]
        configuration = self.folder / "redis.conf"
        configuration.write_text("".join(lines))
        return self._run([str(self._program), str(configuration)], refuse_root=False)


class RedisCluster:
    """Three Redis or Valkey servers that form a cluster. ``nodes`` can be killed one by one.

    A node takes writes two seconds after its start at the earliest: a constant in the server, not
    a setting. So start a cluster early, in a thread, when something else is to be done meanwhile.

    :param program: the server's program. None: Valkey from the wheel
    :param durable: as for :class:`RedisServer`
    :param settings: further settings of every node
    :param folder: where the nodes' private folders are made
    """

    def __init__(
        self,
        *,
        program: Path | None = None,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        first = ClusterNode(
            program=program, durable=durable, settings=settings or {}, folder=folder
        )
        others = [
            ClusterNode(
                program=program,
                durable=durable,
                settings=settings or {},
                folder=folder,
                password=first.password,
            )
            for _ in range(2)
        ]
        self.nodes = [first, *others]
        self._formed = False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """All three nodes and the password. Valid once started."""
        addresses = ",".join(f"{HOST}:{node.port}" for node in self.nodes)
        return f"redis+cluster://:{self.nodes[0].password}@{addresses}"

    def start(self) -> Self:
        """Start the nodes that do not run. Returns when every node serves all slots.

        :raises ServerError: they do not start, or do not find together
        """
        try:
            for node in self.nodes:
                node.start()
            if not self._formed:
                self._form()
        except BaseException:
            if not self._formed:
                self.close()
            raise
        self._formed = True
        self.wait_until_up()
        return self

    def wait_until_up(self) -> None:
        """Wait until every node says that all slots are served.

        :raises ServerError: that takes longer than a minute
        """
        deadline = time.monotonic() + _CLUSTER_SECONDS
        while not all(self._is_up(node) for node in self.nodes):
            if time.monotonic() > deadline:
                raise ServerError(f"the cluster was not up after {_CLUSTER_SECONDS:g} s")
            time.sleep(_CLUSTER_LOOKS_S)

    def stop(self) -> None:
        """Stop all nodes in good order. The data stays."""
        for node in self.nodes:
            node.stop()

    def kill(self) -> None:
        """SIGKILL all nodes. The data stays."""
        for node in self.nodes:
            node.kill()

    def restart(self) -> None:
        """Stop in good order and start on the same data and ports."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the nodes and remove their data. Closing twice is fine."""
        for node in self.nodes:
            node.close()
        self._formed = False

    def _form(self) -> None:
        for index, node in enumerate(self.nodes):
            first, end = (_SLOTS * i // len(self.nodes) for i in (index, index + 1))
            node.command("CLUSTER ADDSLOTSRANGE", first, end - 1)
            node.command("CLUSTER SET-CONFIG-EPOCH", index + 1)
        for node in self.nodes[1:]:
            self.nodes[0].command("CLUSTER MEET", HOST, node.port, node.bus_port)

    def _is_up(self, node: RedisServer) -> bool:
        told: dict[str, str] = node.command("CLUSTER INFO")
        return (
            told["cluster_state"] == "ok"
            and told["cluster_slots_ok"] == str(_SLOTS)
            and told["cluster_known_nodes"] == str(len(self.nodes))
        )


class ClusterNode(RedisServer):
    """A server of a :class:`RedisCluster`."""

    name = "The cluster node"
    bus_port = 0
    _ports_needed = 2

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        self.bus_port = port + 1
        self._settings |= {"cluster-enabled": "yes", "cluster-port": str(self.bus_port)}
        return super()._launch(port)


class PgBouncer(Server):
    """A PgBouncer in front of ``server``, for all databases there. Found on the PATH.

    :param pool_mode: when PgBouncer takes a server connection back from its client
    :param users: passwords of further users by name. The superuser is known anyway
    :param settings: further settings by name, as in ``pgbouncer.ini``
    """

    name = "PgBouncer"
    _ready = b"process up: PgBouncer"
    _stop_signal = signal.SIGINT
    _end_signal = "KILL"

    def __init__(
        self,
        server: PostgresServer,
        pool_mode: Literal["session", "transaction", "statement"] = "transaction",
        *,
        users: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.password = server.password
        self._server = server
        self._users = {"postgres": server.password, **(users or {})}
        self._settings = {
            "listen_addr": HOST,
            "unix_socket_dir": "",
            "auth_type": "md5",
            "pool_mode": pool_mode,
            "max_client_conn": "1000",
            "admin_users": "postgres",
            **(settings or {}),
        }

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{self.password}@{HOST}:{self.port}/postgres"

    def _prepare(self) -> None:
        self._program = on_path("pgbouncer")
        accounts = self.folder / "users"
        accounts.write_text("".join(f'"{name}" "{word}"\n' for name, word in self._users.items()))
        self._own(self.folder, accounts)

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        settings = {
            **self._settings,
            "auth_file": str(self.folder / "users"),
            "listen_port": str(port),
        }
        lines = [
            "[databases]",
            f"* = host={HOST} port={self._server.port}",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in settings.items()),
        ]
        configuration = self.folder / "pgbouncer.ini"
        configuration.write_text("\n".join(lines) + "\n")
        self._own(configuration)
        return self._run([str(self._program), str(configuration)], refuse_root=True)
