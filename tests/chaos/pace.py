"""The pace of a run: the settings of the pods, and by how much they are shrunk."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import anyio

from forge_jobs import RuntimeSettings

WORK, LINGER = "work", "linger"
"""Queues: short jobs that keep coming, and long ones that are there to be found running."""

PODS = 5
WORK_SLOTS = 8
LINGER_SLOTS = 4
LINGERING = 2
"""Long jobs per pod: half the slots, so that a pod which takes one over has a slot free."""

QUEUES = {WORK: PODS * WORK_SLOTS, LINGER: PODS * LINGER_SLOTS}

_NEVER = 1_000
"""The program kills so often that a few jobs meet death more often than any suspicion allows."""


async def pause(seconds: float) -> None:
    """Let time pass: what is done here lasts."""
    with suppress(TimeoutError):
        with anyio.fail_after(seconds):
            await anyio.sleep_forever()


@dataclass(frozen=True)
class Pace:
    """:param shrunk: the default settings are divided by this, the grace is not among them"""

    name: str
    shrunk: float
    grace: float

    @property
    def settings(self) -> RuntimeSettings:
        """Return the settings of the pods."""
        default = RuntimeSettings()
        names = (
            "heartbeat_interval",
            "lease",
            "fence_margin",
            "leader_lease",
            "reap_interval",
            "coordinate_interval",
            "handover_interval",
            "cron_interval",
            "event_flush_interval",
        )
        scaled = {name: getattr(default, name) / self.shrunk for name in names}
        return RuntimeSettings(**scaled, grace=timedelta(seconds=self.grace), max_crashes=_NEVER)

    @property
    def lease(self) -> float:
        """Seconds."""
        return self.settings.lease.total_seconds()

    @property
    def linger(self) -> tuple[float, float]:
        """Seconds that a long job takes, at least and at most."""
        return self.lease / 3, self.lease * 1.5


QUICK = Pace("quick", shrunk=5, grace=1.0)
DEFAULT = Pace("default", shrunk=1, grace=1.0)
PACES = {pace.name: pace for pace in (QUICK, DEFAULT)}
