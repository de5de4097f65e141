"""Options that several commands share, and how their texts are read."""

import functools
import getpass
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click
import msgspec
from msgspec import UNSET

from forge_jobs.config import Deployment
from forge_jobs.durations import parse_duration
from forge_jobs.errors import ConfigError, InvalidInput
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.routing import Router
from forge_jobs.model.jobs import MAX_MAX_ATTEMPTS
from forge_jobs.model.retries import Retry, parse_retry
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.setting_values import as_bytes, read_queues
from forge_jobs.storage.protocols import Storage

P = ParamSpec("P")
T = TypeVar("T")

_NOBODY = "(unknown user)"
OWN_PROCESS = "own process"
"""The object of the root context when the process is there for the command alone."""


def _field(parameter: click.Parameter | None) -> str:
    if parameter is None:
        return "value"
    # As typed: --keep-done is stored under the shorter name of a setting.
    return max(parameter.opts, key=len).lstrip("-").replace("_", "-")


class DurationType(click.ParamType):  # type: ignore[type-arg] # generic only in newer click
    """``90``, ``1h30m``: see :func:`~forge_jobs.config.parse_duration`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(value)
        except ValueError as error:
            problem, _, fix = str(error).partition("; ")
            raise InvalidInput(_field(param), problem, fix) from None


class InstantType(click.ParamType):  # type: ignore[type-arg] # as above
    """An ISO 8601 instant with an offset."""

    name = "instant"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        fix = "give one like 2026-01-31T18:00:00Z or 2026-01-31T18:00:00+02:00"
        try:
            parsed = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            raise InvalidInput(_field(param), f"is {value[:40]!r}, not an instant", fix) from None
        if parsed.tzinfo is None:
            raise InvalidInput(_field(param), "has no time zone", fix)
        return parsed


class RetryType(click.ParamType):  # type: ignore[type-arg] # as above
    """A retry policy in one word: ``exponential:1s:10m``, ``fixed:30s``, ``delays:1s,5s``."""

    name = "retry"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Retry:
        if not isinstance(value, str):
            policy: Retry = value
            return policy
        return parse_retry(value, _field(param))


class AttemptsType(click.ParamType):  # type: ignore[type-arg] # as above
    """A number from 1, or ``unlimited``, which is read as 0."""

    name = "attempts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "unlimited":
            return 0
        text = str(value)
        if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= MAX_MAX_ATTEMPTS:
            raise InvalidInput(
                _field(param),
                f"is {text[:40]!r}",
                f"give a number from 1 to {MAX_MAX_ATTEMPTS}, or unlimited",
            )
        return int(text)


class QueuesType(click.ParamType):  # type: ignore[type-arg] # as above
    """``gh,slack=2``: see :func:`~forge_jobs.setting_values.read_queues`."""

    name = "queues"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, int | None]:
        try:
            return value if isinstance(value, dict) else read_queues(value)
        except InvalidInput as error:
            raise InvalidInput(_field(param), error.problem, error.fix) from None
        except ValueError as error:
            problem, _, fix = str(error).partition("; ")
            raise InvalidInput(_field(param), problem, fix) from None


class BytesType(click.ParamType):  # type: ignore[type-arg] # as above
    """``512MiB``: see :func:`~forge_jobs.setting_values.as_bytes`."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return as_bytes(value)
        except ValueError as error:
            problem, _, fix = str(error).partition("; ")
            raise InvalidInput(_field(param), problem, fix) from None


class OrNoneType(click.ParamType):  # type: ignore[type-arg] # as above
    """Read as another type, or ``none`` as UNSET. See :func:`without`."""

    def __init__(self, read: click.ParamType) -> None:  # type: ignore[type-arg] # as above
        self._read = read
        self.name = read.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return UNSET if value == "none" else self._read.convert(value, param, ctx)


def without(given: dict[str, Any]) -> dict[str, Any]:
    """Return options of an edit as the edit has them: ``none`` and no bound are None.

    A tag without a letter is left out, so that one empty tag means none.
    """
    found: dict[str, Any] = dict(given)
    if "tags" in given:
        found["tags"] = tuple(tag for tag in given["tags"] if tag)
    if found.get("max_attempts") == 0:
        found["max_attempts"] = None
    return {name: None if value is UNSET else value for name, value in found.items()}


ATTEMPTS = AttemptsType()
BYTES = BytesType()
QUEUES = QueuesType()
DURATION = DurationType()
INSTANT = InstantType()
RETRY = RetryType()
DURATION_OR_NONE = OrNoneType(DURATION)
INSTANT_OR_NONE = OrNoneType(INSTANT)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def deployment_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add ``--storage`` and ``--settings``. The command is given the ``deployment`` they make."""

    @click.option("--storage", "storage_url", metavar="URL", help="The store (FORGE_STORAGE_URL).")
    @click.option(
        "--settings",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="A TOML file of settings (FORGE_SETTINGS); the environment wins over it.",
    )
    @functools.wraps(command)
    def with_deployment(
        *args: Any, storage_url: str | None, settings: Path | None, **options: Any
    ) -> T:
        deployment = Deployment.from_environment(file=settings)
        if storage_url:
            deployment = msgspec.structs.replace(deployment, storage_url=storage_url)
        return command(*args, deployment=deployment, **options)

    return with_deployment


def with_store(
    deployment: Deployment,
    work: Callable[[Storage], Coroutine[Any, Any, T]],
    *,
    create: bool = False,
) -> T:
    """Run ``work`` on the deployment's store, opened before and closed afterwards.

    :param create: make a store that is not there yet. Else a mistyped URL is reported
    :raises ConfigError: the deployment names no store
    :raises NotFound: there is no such store
    """
    import anyio

    from forge_jobs.storage.opening import open_storage

    async def opened() -> T:
        async with await open_storage(storage_url(deployment), create=create) as storage:
            return await work(storage)

    return anyio.run(opened)


def with_operator(
    deployment: Deployment,
    work: Callable[[Operator], Coroutine[Any, Any, T]],
    *,
    create: bool = False,
    handlers: HandlerRegistry | None = None,
    router: Router | None = None,
) -> T:
    """Run ``work`` with the operator of this command line. See :func:`with_store`."""

    async def operated(storage: Storage) -> T:
        operator = as_operator(storage, handlers=handlers, router=router, redact=deployment.redact)
        async with operator:
            return await work(operator)

    return with_store(deployment, operated, create=create)


def as_operator(
    storage: Storage,
    *,
    handlers: HandlerRegistry | None = None,
    router: Router | None = None,
    redact: tuple[str, ...] = (),
) -> Operator:
    """The operator of this command line: who can open the store may do everything."""
    actor = Actor(name=_user(), surface="command", access=ALL)
    return Operator(storage, actor, handlers=handlers, router=router, redact=redact)


def _user() -> str:
    try:
        return getpass.getuser()[:100] or _NOBODY
    except (OSError, KeyError, ImportError):
        return _NOBODY


def storage_url(deployment: Deployment) -> str:
    """The store's URL.

    :raises ConfigError: the deployment names none
    """
    if not deployment.storage_url:
        raise ConfigError(
            "FORGE_STORAGE_URL is not set; set it, or give --storage sqlite:///jobs.db"
        )
    return deployment.storage_url
