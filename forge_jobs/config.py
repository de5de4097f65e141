"""Settings: frozen, checked once, cross-checked where they meet.

Environment variables and settings files are read in this module and nowhere else.
"""

from datetime import timedelta

from msgspec import Struct

from forge_jobs.errors import ConfigError

BEATS_PER_LEASE = 3
"""A lease outlives this many beats, so that one lost to a hiccup of the store costs nothing."""


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


class RuntimeSettings(Struct, frozen=True, kw_only=True):
    """What an operator may tune of a runtime; tests shrink it.

    :param heartbeat_interval: between two beats of a pod
    :param lease: a claim or a pod without a beat for this long counts as dead
    :param fence_margin: a pod that could not beat for ``lease - fence_margin`` stops its own
        handlers, before anyone else may revive their jobs
    :param leader_lease: a silent coordinator is replaced after this
    :param grace: how long running handlers may go on after a stop was asked for
    :param reap_interval, coordinate_interval, handover_interval, cron_interval,
        rollup_interval, cleanup_interval, event_flush_interval: pauses between two passes
    :param claim_ahead: work held beyond the free workers, in time at the measured pace; zero
        turns claim-ahead off
    :param max_snoozes: hand-backs by snooze or throttle before a job is dead
    :param max_crashes: the crash that makes a job dead, for handlers that do not set their own
    :param hung_after: a loop blocked for this long counts as hung: the pod gives up
    :param blocked_after: a loop blocked for this long is reported with the handler's stack
    """

    heartbeat_interval: timedelta = _seconds(3)
    lease: timedelta = _seconds(15)
    fence_margin: timedelta = _seconds(3)
    leader_lease: timedelta = _seconds(10)
    grace: timedelta = _seconds(30)
    reap_interval: timedelta = _seconds(3)
    coordinate_interval: timedelta = _seconds(2)
    handover_interval: timedelta = _seconds(1)
    cron_interval: timedelta = _seconds(5)
    rollup_interval: timedelta = _seconds(60)
    cleanup_interval: timedelta = _seconds(300)
    event_flush_interval: timedelta = _seconds(2)
    claim_ahead: timedelta = timedelta(milliseconds=50)
    max_snoozes: int = 100
    max_crashes: int = 3
    hung_after: timedelta = _seconds(600)
    blocked_after: timedelta = _seconds(1)

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, timedelta) and value <= timedelta(0) and name != "claim_ahead":
                raise ConfigError(f"{name} must be above zero, not {value}")
        least = BEATS_PER_LEASE * self.heartbeat_interval
        _require(self.lease >= least, "lease", self.lease, f"at least three heartbeats ({least})")
        _require(
            self.heartbeat_interval <= self.lease - self.fence_margin,
            "fence_margin",
            self.fence_margin,
            f"at most lease - heartbeat_interval ({self.lease - self.heartbeat_interval})",
        )
        least = 2 * self.coordinate_interval
        _require(
            self.leader_lease >= least,
            "leader_lease",
            self.leader_lease,
            f"at least two coordinator passes ({least})",
        )
        _require(self.max_crashes >= 1, "max_crashes", self.max_crashes, "at least 1")
        _require(self.max_snoozes >= 1, "max_snoozes", self.max_snoozes, "at least 1")


def _require(condition: bool, name: str, value: object, rule: str) -> None:
    if not condition:
        raise ConfigError(f"{name} must be {rule}, not {value}")
