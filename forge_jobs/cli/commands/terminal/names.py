"""Names that a shell completes: of queues, kinds, schedules, limits and pods."""

import contextlib
import io
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

from forge_jobs.cli.logs import keep_off_the_screen
from forge_jobs.cli.options import with_operator
from forge_jobs.config import Deployment
from forge_jobs.operating.operator import Operator

PATIENCE, PATIENCE_S = "FORGE_COMPLETION_PATIENCE", 1.5
"""The variable, and seconds without. A slower store has no names to offer: people wait."""


async def _queues(operator: Operator) -> Iterable[str]:
    return [each.name for each in (await operator.board(most_runs=0)).queues]


async def _kinds(operator: Operator) -> Iterable[str]:
    return {kind for pod in (await operator.board(most_runs=0)).pods for kind in pod.pod.kinds}


async def _pods(operator: Operator) -> Iterable[str]:
    return [each.pod.host_id for each in (await operator.board(most_runs=0)).pods]


async def _schedules(operator: Operator) -> Iterable[str]:
    return [each.spec.name for each in (await operator.list_schedules()).schedules]


async def _limits(operator: Operator) -> Iterable[str]:
    scopes = {each.scope for each in (await operator.list_limits()).rate_limits}
    return scopes | {each.name for each in (await operator.list_concurrency()).limits}


async def _strikes(operator: Operator) -> Iterable[str]:
    return [each.name for each in (await operator.list_strikes()).strikes]


async def _outboxes(operator: Operator) -> Iterable[str]:
    return [each.name for each in (await operator.outbox_state()).outboxes]


Read = Callable[[Operator], Awaitable[Iterable[str]]]

_BY_PARAMETER: dict[str, Read] = {
    "--queue": _queues,
    "--kind": _kinds,
    "--schedule": _schedules,
    "queue": _queues,
    "pod": _pods,
    "pod_id": _pods,
}
_BY_GROUP: dict[str, Read] = {
    "queues": _queues,
    "cron": _schedules,
    "limits": _limits,
    "strikes": _strikes,
    "outbox": _outboxes,
}
"""Of commands of a group, whose arguments are called ``name`` or ``names``."""


class Name(StringParamType):
    """A text, for which shells offer names of the store."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so. Of a store that is silent or not there, none."""
        found = _within_patience(lambda: with_operator(_deployment_of(ctx), self._names))
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]

    async def _names(self, operator: Operator) -> list[str]:
        return sorted(await self._read(operator))


def offer_names(command: click.Command, group: str = "") -> None:
    """Let shells complete the names that parameters of a command, and of all below, stand for."""
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            offer_names(
                each, name if isinstance(each, click.Group) else group or command.name or ""
            )
        return
    for parameter in command.params:
        read = _read_for(parameter, group)
        if read is not None and type(parameter.type) is StringParamType:
            parameter.type = Name(read)


def _read_for(parameter: click.Parameter, group: str) -> Read | None:
    found = (_BY_PARAMETER[each] for each in parameter.opts if each in _BY_PARAMETER)
    read = next(found, None)
    if (
        read is None
        and isinstance(parameter, click.Argument)
        and parameter.name in ("name", "names")
    ):
        return _BY_GROUP.get(group)
    return read


def _deployment_of(ctx: click.Context) -> Deployment:
    import msgspec

    deployment = Deployment.from_environment(file=ctx.params.get("settings"))
    if url := ctx.params.get("storage_url"):
        deployment = msgspec.structs.replace(deployment, storage_url=url)
    return deployment


def _within_patience(read: Callable[[], list[str]]) -> list[str]:
    """Return what ``read`` returns. Nothing when that fails, or takes too long."""
    found: list[str] = []

    def run() -> None:
        # A prompt is no place for the words of an error.
        with contextlib.suppress(BaseException):
            found.extend(read())

    keep_off_the_screen()
    with _without_stderr():
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(_patience())
    if thread.is_alive():
        # The end of the process would wait for what a driver waits for.
        sys.stdout.flush()
        os._exit(0)
    return found


def _patience() -> float:
    try:
        return min(max(float(os.environ.get(PATIENCE, PATIENCE_S)), 0.0), 60.0)
    except ValueError:
        return PATIENCE_S


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    with contextlib.redirect_stderr(io.StringIO()):
        yield
