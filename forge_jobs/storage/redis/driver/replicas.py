"""How long a write waits for replicas, server by server."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from forge_jobs.clock import SystemClock
from forge_jobs.reports import reporter
from forge_jobs.storage.redis.driver.address import Host, RedisUrl, in_words

logger = reporter(__name__)

_elapsed = SystemClock().elapsed


@dataclass
class _Server:
    """The outcome of the last writes to one server.

    :ivar short: writes in a row that too few replicas had in time
    :ivar next_full: the time of the next write that waits all the same
    """

    short: int = 0
    next_full: float = 0.0


class Replicas:
    """Watches whether the replicas of each server follow.

    :ivar wanted: how many replicas a write waits for
    :ivar unreplicated: all writes so far that too few had in time
    """

    def __init__(self, url: RedisUrl) -> None:
        self.wanted = url.wait_replicas
        self._longest = min(url.wait_timeout, url.timeout / 4)
        self._servers: dict[Host, _Server] = {}
        self.unreplicated = 0

    def wait_at(self, host: Host) -> tuple[int, int]:
        """Return for how many replicas a write waits there, and for how many milliseconds at most.

        Never so long that the call fails for it. While replicas are known to be missing, one write
        of a second waits, to see whether they are back, and the others only ask for the count.
        If all waited, calls would soon wait for connections.
        """
        server = self._servers.get(host)
        if server is not None and server.short:
            now = _elapsed()
            if now < server.next_full:
                return 0, 1
            server.next_full = now + max(self._longest, 1.0)
        return self.wanted, int(self._longest * 1000)

    def note(self, host: Host, reached: int, *, has_waited: bool) -> None:
        """Take note of how many replicas of a server had a write in time.

        :param has_waited: False: the write only asked, before any replica could have had it
        """
        server = self._servers.setdefault(host, _Server())
        if reached < self.wanted:
            self.unreplicated += 1
            # The question went out before a write has shown that the replicas are back, and the
            # answer came after that write.
            if not has_waited and not server.short:
                return
            server.short += 1
            if server.short == 1:
                logger.warning(
                    "a write to the server at %s reached %d of %d replicas within %g s; the "
                    "write stands, but a failover there may lose it now",
                    in_words((host,)),
                    reached,
                    self.wanted,
                    self._longest,
                )
        elif server.short:
            logger.info(
                "writes to the server at %s reach %d replicas again; %d have not",
                in_words((host,)),
                self.wanted,
                server.short,
            )
            server.short = 0


class Wait(Sequence[str | int | bytes]):
    """A WAIT of one write. The time limit is decided when the command is sent: before, the call may
    have waited, and the server may have been replaced.

    :ivar host: where the command is sent
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._has_waited = True
        self.host: Host = ("", 0)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[str | int | bytes]:
        number, milliseconds = self._replicas.wait_at(self.host)
        self._has_waited = number > 0
        return iter(("WAIT", number, milliseconds))

    def is_short(self, reached: object) -> bool:
        """True when fewer replicas had the write than were asked for."""
        return isinstance(reached, int) and reached < self._replicas.wanted

    def ended(self, reached: int) -> None:
        """So many replicas had the write in time."""
        self._replicas.note(self.host, reached, has_waited=self._has_waited)
