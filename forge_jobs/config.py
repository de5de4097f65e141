"""Settings: frozen, checked once, cross-checked where they meet.

Environment variables and settings files are read in this module and nowhere else.
"""

import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from forge_jobs.errors import ConfigError, InvalidInput
from forge_jobs.model.queues import RateLimit
from forge_jobs.model.retention import EVENTS_KEPT, HISTORY_KEPT, SERIES_KEPT
from forge_jobs.setting_values import (
    as_bytes,
    as_choice,
    as_concurrency,
    as_count,
    as_duration,
    as_flag,
    as_names,
    as_number,
    as_processes,
    as_queue,
    as_router,
    as_text,
    read_queues,
    read_rate_limits,
)

BEATS_PER_LEASE = 3
"""A lease outlives this many beats, so that one lost to a hiccup of the store costs nothing."""

_LEAST_KEPT = timedelta(hours=1)
_LONGEST_PATIENCE = timedelta(seconds=5)

PREFIX = "FORGE_"
SETTINGS_VARIABLE = "FORGE_SETTINGS"


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


class RuntimeSettings(Struct, frozen=True, kw_only=True):
    """The settings of a runtime that an operator may tune. Tests shrink them.

    :param heartbeat_interval: between two beats of a pod
    :param lease: a claim or a pod without a beat for this long counts as dead
    :param fence_margin: a pod that could not beat for ``lease - fence_margin`` stops all its
        handlers, before anyone else may revive their jobs
    :param leader_lease: a silent coordinator is replaced after this
    :param grace: how long handlers may go on after a stop was asked for, clean-up included
    :param patience: between two cancellations of a handler, and before the end of the grace: time
        for clean-up. None: a quarter of the grace, which is the most, but at most 5 seconds
    :param reap_interval: pause between two passes, as the other ``..._interval``
    :param keep_events: how long timeline events stay. Zero: none are written. That of the leader
        counts for what is removed, so give all pods of a store the same
    :param keep_minutes: after this the minutes of queues and pods are folded into hours. None: one
        day on Redis and Valkey, 30 days elsewhere. Likewise the leader's counts
    :param keep_hours: how long minutes and hours stay in all
    :param keep_series: how long the hours of series stay. Likewise the leader's counts
    :param keep_errors: how long groups of failures stay after their last failure, and the counts of
        each minute. Likewise the leader's counts
    :param queue_idle: how long a queue that is served by a pattern may be empty before the pod
        leaves the queue
    :param claim_ahead: work held beyond the free workers, in time at the measured pace. Zero
        turns claim-ahead off
    :param snooze_budget: how long a job may be handed back by snooze or throttle, from the first
        hand-back on, before the next one makes the job dead. For handlers without ``max_snoozes``
    :param max_crashes: after this many crashes a job is dead, unless its handler sets another
        limit
    :param hung_after: a loop blocked for this long counts as hung: the pod gives up
    :param blocked_after: a loop blocked for this long is reported with the handler's stack
    """

    heartbeat_interval: timedelta = _seconds(3)
    lease: timedelta = _seconds(15)
    fence_margin: timedelta = _seconds(3)
    leader_lease: timedelta = _seconds(10)
    grace: timedelta = _seconds(25)
    patience: timedelta | None = None
    reap_interval: timedelta = _seconds(3)
    coordinate_interval: timedelta = _seconds(2)
    handover_interval: timedelta = _seconds(1)
    cron_interval: timedelta = _seconds(5)
    rollup_interval: timedelta = _seconds(60)
    cleanup_interval: timedelta = _seconds(300)
    event_flush_interval: timedelta = _seconds(2)
    keep_events: timedelta = EVENTS_KEPT
    keep_minutes: timedelta | None = None
    keep_hours: timedelta = HISTORY_KEPT
    keep_errors: timedelta = HISTORY_KEPT
    keep_series: timedelta = SERIES_KEPT
    queue_idle: timedelta = _seconds(600)
    claim_ahead: timedelta = timedelta(milliseconds=50)
    snooze_budget: timedelta = timedelta(days=7)
    max_crashes: int = 3
    hung_after: timedelta = _seconds(600)
    blocked_after: timedelta = _seconds(1)

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in _DURATIONS and (value is not None or name not in _OPTIONAL):
                _require(isinstance(value, timedelta), name, value, "a timedelta")
                may_be_zero = name in ("claim_ahead", "keep_events")
                allowed = value >= timedelta(0) if may_be_zero else value > timedelta(0)
                _require(allowed, name, value, "zero or more" if may_be_zero else "above zero")
        for name in ("heartbeat_interval", "lease", "leader_lease", "coordinate_interval"):
            value = getattr(self, name)
            _require(value <= _CENTURY, name, value, "at most a century, 36500 days")
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
        if self.patience is not None:
            rule = f"at most a quarter of the grace ({self.grace / 4})"
            _require(self.patience <= self.grace / 4, "patience", self.patience, rule)
        if self.keep_minutes is not None:
            rule = "1 hour to 30 days"
            within = _LEAST_KEPT <= self.keep_minutes <= HISTORY_KEPT
            _require(within, "keep_minutes", self.keep_minutes, rule)
        least = self.keep_minutes or _LEAST_KEPT
        rule = f"at least keep_minutes ({least})" if self.keep_minutes else "at least 1 hour"
        _require(self.keep_hours >= least, "keep_hours", self.keep_hours, rule)
        rule = "at least 1 hour"
        _require(self.keep_errors >= _LEAST_KEPT, "keep_errors", self.keep_errors, rule)
        _require(self.keep_series >= _LEAST_KEPT, "keep_series", self.keep_series, rule)
        is_count = type(self.max_crashes) is int and self.max_crashes >= 1
        _require(is_count, "max_crashes", self.max_crashes, "a whole number, at least 1")

    def patience_within(self, grace: timedelta) -> timedelta:
        """The time that a handler has for clean-up in a stop with this grace."""
        return min(self.patience or _LONGEST_PATIENCE, grace / 4)


_CENTURY = timedelta(days=36_500)
_OPTIONAL = frozenset({"patience", "keep_minutes"})
_DURATIONS = frozenset(RuntimeSettings.__struct_fields__) - {"max_crashes"}


def _require(condition: bool, name: str, value: object, rule: str) -> None:
    if not condition:
        raise ConfigError(f"{name} must be {rule}, not {value} ({variable_of(name)})")


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
LogFormat = Literal["text", "json"]
EventLoop = Literal["auto", "asyncio", "uvloop"]


class Deployment(Struct, frozen=True, kw_only=True):
    """The settings that a deployment gives from outside the code. Each field has its variable.

    :param queues: queues to serve, and their ``max_workers`` where one was given (None: as
        stored, else the default). ``FORGE_QUEUES=gh,slack=2``. A name that holds ``=`` needs
        a number
    :param queue_patterns: globs of queues that are served once they have jobs, in the form of
        ``queues``: ``FORGE_QUEUE_PATTERNS=tenant-*=2``
    :param storage_url: may hold a password, so ``repr`` leaves it out
    :param outbox: URL of the database whose outbox workers relay into the storage, "" for none. May
        hold a password
    :param outbox_name: of the destination, see ``Outbox``
    :param rate_limits: token buckets by name: ``FORGE_RATE_LIMITS=smtp=100/1m,gh=5000/1h``
    :param handlers: ``module:attribute`` of the registry
    :param router: names the queue of a kind where neither request nor handler does: ``prefix``,
        or ``module:attribute`` of a function. "" for none
    :param worker_prefix, worker_version, worker_id: parts of the pod's label
    :param processes: worker processes that the ``worker`` command keeps alive, 1 to 1,000
    :param max_jobs_per_process: a worker process that has run so many jobs is replaced. None: never
    :param max_memory_per_process: bytes. A worker process that takes more is replaced. None: never
    :param concurrency: handlers that one worker process runs at once over all its queues. None:
        as many as the process has slots
    :param event_loop: of the ``worker`` command. ``auto`` is uvloop where uvloop is installed
    :param log: ``FORGE_LOG``
    :param log_jobs: a line for every job that the ``worker`` command ends
    :param redact: names of fields that commands and the dashboard hide, as ``Operator`` does
    :param runtime: each field has a variable of its own, as ``FORGE_LEASE=15s``
    """

    queues: Mapping[str, int | None] = {}
    queue_patterns: Mapping[str, int | None] = {}
    storage_url: str = ""
    outbox: str = ""
    outbox_name: str = "jobs"
    handlers: str = ""
    router: str = ""
    rate_limits: Mapping[str, RateLimit] = {}
    worker_prefix: str = ""
    worker_version: str = ""
    worker_id: str = ""
    processes: int = 1
    max_jobs_per_process: int | None = None
    max_memory_per_process: int | None = None
    concurrency: int | None = None
    event_loop: EventLoop = "auto"
    log: LogLevel = "INFO"
    log_format: LogFormat = "text"
    log_jobs: bool = True
    redact: tuple[str, ...] = ()
    runtime: RuntimeSettings = RuntimeSettings()

    @property
    def recycles(self) -> bool:
        """Return whether a worker process is replaced at a limit."""
        return bool(self.max_jobs_per_process or self.max_memory_per_process)

    def __repr__(self) -> str:
        given = "..." if self.storage_url else "''"
        return f"Deployment(queues={dict(self.queues)!r}, storage_url={given})"

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] = os.environ, file: Path | None = None
    ) -> "Deployment":
        """Read ``FORGE_*`` variables over an optional settings file.

        The file is TOML with the variables' names in lower case without the prefix. The
        environment wins. An empty variable counts as not set. Every unknown key of the file
        is refused. Of the environment only what looks like a known name misspelt, because
        other programs use the prefix too.

        :param file: the settings file. None: the one that ``FORGE_SETTINGS`` names, if any
        :raises ConfigError: names the variable or key, what is wrong and what to give
        """
        named = environ.get(SETTINGS_VARIABLE, "")
        path = file or (Path(named) if named else None)
        values = _read_file(path) if path else {}
        values.update(_read_environment(environ))
        runtime = {name: value for name, value in values.items() if name in _RUNTIME_FIELDS}
        rest = {name: value for name, value in values.items() if name not in _RUNTIME_FIELDS}
        return cls(runtime=RuntimeSettings(**runtime), **rest)


def child_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child process: this one's, with ``settings`` in place of all
    ``FORGE_*``.

    :param settings: names as in a settings file, without the prefix
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
    return kept | {variable_of(name): text for name, text in settings.items()}


def _read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or not text or variable == SETTINGS_VARIABLE:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name in _READERS and variable == variable_of(name):
            values[name] = _read(variable, name, text)
        elif near := _nearest(name):
            raise ConfigError(f"{variable} is not known; did you mean {variable_of(near)}?")
    return values


def _read_file(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"settings file {path.name}: cannot be read ({error.strerror}); "
            f"check --settings and {SETTINGS_VARIABLE}"
        ) from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise ConfigError(f"settings file {path.name}: is not TOML ({error})") from None
    values = {}
    for key, value in content.items():
        if key not in _READERS:
            near = _nearest(key)
            hint = f"did you mean {near}?" if near else f"known are {', '.join(sorted(_READERS))}"
            raise ConfigError(f"settings file {path.name}: {key[:80]} is not known; {hint}")
        values[key] = _read(f"settings file {path.name}: {key}", key, value)
    return values


_OF_COMMANDS = frozenset({"web_redact"})
"""Variables of single commands that look like settings of a deployment misspelt."""


def _nearest(name: str) -> str | None:
    if name in _OF_COMMANDS:
        return None
    # At 0.75 one or two slips are caught, while variables of other programs pass.
    return next(iter(difflib.get_close_matches(name.lower(), _READERS, n=1, cutoff=0.75)), None)


def _read(label: str, name: str, value: object) -> Any:
    try:
        return _READERS[name](value)
    except InvalidInput as error:
        raise ConfigError(f"{label}: {error.problem}; {error.fix}") from None
    except ValueError as error:
        raise ConfigError(f"{label}: {error}") from None


_RUNTIME_FIELDS = {field.name: field.type for field in msgspec.structs.fields(RuntimeSettings)}

_READERS: dict[str, Callable[[object], Any]] = {
    "queues": read_queues,
    "queue_patterns": read_queues,
    "processes": as_processes,
    "max_jobs_per_process": as_number,
    "max_memory_per_process": as_bytes,
    "concurrency": as_concurrency,
    "storage_url": as_text,
    "outbox": as_text,
    "outbox_name": as_queue,
    "handlers": as_text,
    "router": as_router,
    "rate_limits": read_rate_limits,
    "worker_prefix": as_text,
    "worker_version": as_text,
    "worker_id": as_text,
    "event_loop": as_choice(*cast(Any, EventLoop).__args__),
    "log": as_choice(*cast(Any, LogLevel).__args__),
    "log_format": as_choice(*cast(Any, LogFormat).__args__),
    "log_jobs": as_flag,
    "redact": as_names,
} | {name: as_count if kind is int else as_duration for name, kind in _RUNTIME_FIELDS.items()}
