"""A Redis primary with a replica, watched by a sentinel."""

import subprocess
from contextlib import ExitStack

from redis.exceptions import RedisError

from forge_jobs.testing.servers import RedisServer
from tests.support import servers
from tests.support.waiting import wait_until


class Sentinel(RedisServer):
    """A sentinel. It trusts itself alone, so one sentinel is enough for a failover."""

    _ready = b"Sentinel ID is"

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        lines = [f"port {port}", "bind 127.0.0.1", f'dir "{self.folder}"']
        if self.password:
            lines.append(f"requirepass {self.password}")
        configuration = self.folder / "sentinel.conf"
        configuration.write_text("\n".join(lines) + "\n")
        command = [str(self._program), str(configuration), "--sentinel"]
        return self._run(command, refuse_root=False)

    def watch(self, primary: RedisServer, down_after_ms: int) -> None:
        self.command("SENTINEL", "MONITOR", "main", "127.0.0.1", primary.port, 1)
        settings: dict[str, str | int] = {
            "auth-pass": primary.password,
            "down-after-milliseconds": down_after_ms,
            "failover-timeout": 3000,
        }
        for name, value in settings.items():
            self.command("SENTINEL", "SET", "main", name, value)


class SentinelFleet:
    """A primary, a replica and a sentinel.

    :param safe: each server syncs the file before it replies and takes writes only beside its
        replica. A machine that is busy for a second does not pass for dead
    """

    def __init__(self, stack: ExitStack, *, safe: bool = False) -> None:
        settings = {"min-replicas-to-write": "1"} if safe else {}
        self.primary = stack.enter_context(servers.a_redis(durable=safe, settings=settings))
        self.replica = stack.enter_context(
            servers.a_redis(
                durable=safe,
                settings={**settings, "replicaof": f"127.0.0.1 {self.primary.port}"},
                password=self.primary.password,
            )
        )
        self.sentinel = stack.enter_context(Sentinel(program=self.primary._program))
        self.sentinel.watch(self.primary, 2_000 if safe else 300)

    @property
    def url(self) -> str:
        """The service, by one sentinel that is not there and one that is."""
        return (
            f"redis+sentinel://:{self.primary.password}@127.0.0.1:1,127.0.0.1:{self.sentinel.port}"
            f"/main?sentinel_password={self.sentinel.password}"
        )

    def with_sentinel(self, port: int, place: str) -> str:
        """:attr:`url` with a sentinel at ``port`` in place of the one that is not there.

        :param place: 'first' or 'last'
        """
        mine, other = f"127.0.0.1:{self.sentinel.port}", f"127.0.0.1:{port}"
        hosts = f"{other},{mine}" if place == "first" else f"{mine},{other}"
        return self.url.replace(f"127.0.0.1:1,{mine}", hosts)

    def swap(self) -> None:
        """Start the killed primary as a replica of the one that was promoted."""
        self.primary, self.replica = self.replica, self.primary
        self.replica._settings["replicaof"] = f"127.0.0.1 {self.primary.port}"
        self.primary._settings.pop("replicaof", None)
        self.replica.start()

    def has_switched(self) -> bool:
        """Return whether the sentinel names the replica as the primary, and the replica agrees."""
        told = self.sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")
        return int(told[1]) == self.replica.port and is_primary(self.replica)

    def takes_writes(self) -> bool:
        """Return whether the primary has as many replicas as a write needs."""
        try:
            self.primary.command("SET", "probe", "written")
        except RedisError:
            return False
        return True

    async def replicated(self) -> None:
        """Wait until the sentinel would fail over."""
        await wait_until(
            lambda: any(
                state["flags"] == "slave" and state["master-link-status"] == "ok"
                for state in self._replicas()
            ),
            description="the sentinel knows the replica",
        )

    def _replicas(self) -> list[dict[str, str]]:
        found = self.sentinel.command("SENTINEL", "REPLICAS", "main")
        return [
            each if isinstance(each, dict) else dict(zip(each[::2], each[1::2], strict=True))
            for each in found
        ]


def is_primary(server: RedisServer) -> bool:
    """Return whether the server says that it is a primary. False without an answer."""
    return _role(server) == "master"


def is_replica(server: RedisServer) -> bool:
    """Return whether the server says that it is a replica. False without an answer."""
    return _role(server) == "slave"


def _role(server: RedisServer) -> str:
    try:
        return str(server.command("ROLE")[0])
    except RedisError:  # every connection is closed when the role changes
        return ""
