"""How long writes wait for replicas."""

from forge_jobs.clock import SystemClock
from forge_jobs.reports import reporter
from forge_jobs.storage.redis.address import RedisUrl

logger = reporter(__name__)

_elapsed = SystemClock().elapsed


class Replicas:
    """What writes of one bundle wait for.

    :ivar unreplicated: writes that too few replicas had in time
    """

    def __init__(self, url: RedisUrl) -> None:
        self._url = url
        self._short_waits = 0
        self._full_wait_at = 0.0
        self.unreplicated = 0

    def wait_for(self) -> tuple[int, int]:
        """For how many replicas a write waits, and for how many milliseconds at most.

        Never so long that its call fails for it. While replicas are known to be missing, one write
        of a second waits, to see whether they are back, and the others ask only how many have it:
        if all waited, calls would soon wait for connections.
        """
        now = _elapsed()
        full = min(self._url.wait_timeout, self._url.timeout / 4)
        if self._short_waits:
            if now < self._full_wait_at:
                return 0, 1
            self._full_wait_at = now + max(full, 1.0)
        return self._url.wait_replicas, int(full * 1000)

    def note(self, reached: int) -> None:
        wanted = self._url.wait_replicas
        if reached < wanted:
            self._short_waits += 1
            self.unreplicated += 1
            if self._short_waits == 1:
                logger.warning(
                    "a write reached %d of %d replicas within %g s; it stands, but a failover now "
                    "may lose it",
                    reached,
                    wanted,
                    self._url.wait_timeout,
                )
        elif self._short_waits:
            logger.info("writes reach %d replicas again; %d have not", wanted, self._short_waits)
            self._short_waits = 0
