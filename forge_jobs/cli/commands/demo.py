"""``forge-jobs demo``: a run with a killed worker, to watch."""

import os
import signal
import sysconfig
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forge_jobs.cli.dashboard.web import need_web
from forge_jobs.cli.failures import FAILED
from forge_jobs.cli.output import emit_json, is_terminal, talk
from forge_jobs.errors import InvalidInput

if TYPE_CHECKING:
    import anyio

    from forge_jobs.demo.play import Plan
    from forge_jobs.demo.stage import ServerKind, Stage
    from forge_jobs.demo.summary import Summary
    from forge_jobs.demo.view import View

MAX_FILES = 2_000
DEFAULT_PACE = 0.03


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the summary alone, as one line.")
@click.option(
    "--pace",
    type=click.FloatRange(0, 1),
    default=DEFAULT_PACE,
    show_default=True,
    help="Seconds each file's handler rests, so that one can watch; 0 is full speed.",
)
@click.option("--storage", metavar="URL", help="Use this store in place of a temporary file.")
@click.option("--web", is_flag=True, help="Serve the dashboard beside, with three problems to end.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8642,
    show_default=True,
    envvar="FORGE_WEB_PORT",
    help="The port of the dashboard (FORGE_WEB_PORT). 0 takes a free one.",
)
@click.option("--postgres", "server", flag_value="postgres", help="Start a PostgreSQL for it.")
@click.option("--redis", "server", flag_value="redis", help="Start a Valkey (Redis) for it.")
def demo(
    folder: Path | None,
    *,
    as_json: bool,
    pace: float,
    web: bool,
    port: int,
    storage: str | None,
    server: "ServerKind | None",
) -> None:
    """Work through the files of FOLDER while a worker is killed, and lose nothing.

    One job per file hashes the file and counts lines and words. Without FOLDER these are the
    files of Python's own library. Three files do not exist at first, and one never will. Two
    worker processes share the queue, and half way one of them is killed with SIGKILL. Each
    handler rests for --pace seconds after its work: nothing else is staged. The demo ends by itself
    within a minute.

    With --web the dashboard shows all of it live, on this machine alone, beside three planted
    problems. The demo then goes on until Ctrl-C.

    Without --storage nothing stays behind. In a store of yours the demo keeps to the schema
    forge_demo of a PostgreSQL database or the prefix forge-demo of a Redis, removes its
    jobs at the end, and says what stays.
    """
    import anyio

    from forge_jobs.demo.stage import NOTHING_LEFT, Stage, in_store
    from forge_jobs.demo.summary import NEXT

    if storage and server:
        raise click.UsageError("--storage, --postgres and --redis exclude each other.")
    if web and as_json:
        raise click.UsageError("--web goes on until a signal, so not with --json.")
    if web:
        need_web()
    stage = in_store(storage) if storage else server
    left = stage.leaves if isinstance(stage, Stage) else NOTHING_LEFT
    perform = partial(_perform, port=port if web else None)
    summary = anyio.run(perform, _files(folder), pace, stage, _view(as_json))
    if web:
        talk(f"Stopped. {left}")
        return
    if summary is None:
        raise click.Abort
    if as_json:
        emit_json(summary)
    else:
        _tell(summary)
        click.echo(f"{left}\n\n{NEXT}")
    if not summary.is_good:
        raise click.exceptions.Exit(FAILED)


def _tell(summary: "Summary") -> None:
    from forge_jobs.demo.summary import sentences

    click.echo("\n".join(["", *sentences(summary)]))


def _view(as_json: bool) -> "View":
    from forge_jobs.demo.view import LiveView, PlainView, SilentView

    if as_json:
        return SilentView()
    return LiveView() if is_terminal() else PlainView()


def _files(folder: Path | None) -> tuple[Path, ...]:
    """At most ``MAX_FILES`` files, always the same ones in the same order."""
    root = folder or Path(sysconfig.get_paths()["stdlib"])
    if not root.is_dir():
        raise InvalidInput("folder", f"{root.name!r} is not a folder", "give one that exists")
    found: list[Path] = []
    for where, folders, names in os.walk(root):
        folders[:] = sorted(each for each in folders if not _is_passed_over(each))
        paths = (Path(where, name) for name in sorted(names))
        found += (path for path in paths if path.is_file() and (folder or path.suffix == ".py"))
        if len(found) >= MAX_FILES:
            break
    if not found:
        raise InvalidInput("folder", "holds no files", "give one that does, or none")
    return tuple(found[:MAX_FILES])


def _is_passed_over(folder: str) -> bool:
    # Installed packages differ from machine to machine. Hidden folders are left out.
    return folder.startswith(".") or folder in {"__pycache__", "site-packages", "dist-packages"}


async def _perform(
    files: tuple[Path, ...],
    pace: float,
    stage: "Stage | ServerKind | None",
    view: "View",
    *,
    port: int | None,
) -> "Summary | None":
    """Play the demo, and clean up. None when a signal stopped it.

    :param port: of the dashboard. None for none
    :param stage: a store. Or a server to start. None: a file in the demo's own folder
    """
    import anyio

    from forge_jobs.demo.crew import folder_for_now
    from forge_jobs.demo.play import Plan
    from forge_jobs.demo.stage import in_folder, on_a_server

    stopped = anyio.Event()
    async with anyio.create_task_group() as group:
        await group.start(_stop_on_signal, stopped)
        with folder_for_now() as folder, ExitStack() as stack:
            url = in_folder(folder).url
            if isinstance(stage, str):
                # In a thread, so that a signal meanwhile is not missed.
                start = partial(stack.enter_context, on_a_server(stage))
                url = (await anyio.to_thread.run_sync(start)).url
                talk(f"Until the demo ends, there is a server at {url}")
            elif stage:
                url = stage.url
            plan = Plan(files=files, folder=folder, pace=pace)
            summary = await _play(plan, url, view, stopped, port)
        group.cancel_scope.cancel()
    return None if stopped.is_set() else summary


async def _play(
    plan: "Plan", url: str, view: "View", stopped: "anyio.Event", port: int | None
) -> "Summary":
    from forge_jobs.demo.crew import two_workers
    from forge_jobs.demo.play import Play, clear
    from forge_jobs.demo.stage import check_unused
    from forge_jobs.storage.opening import open_storage

    async with await open_storage(url) as storage:
        await check_unused(storage)
        if port is not None:
            from forge_jobs.demo.dashboard import play_with_dashboard
            from forge_jobs.web.alone.server import WebOptions

            return await play_with_dashboard(
                storage,
                plan,
                view,
                stopped,
                url=url,
                options=WebOptions(port=port),
                tell=click.echo,
                tell_summary=_tell,
            )
        try:
            with view, two_workers(url, plan.folder) as members:
                return await Play(storage, plan, members, view).run(stopped)
        finally:
            await clear(storage)


async def _stop_on_signal(
    stopped: "anyio.Event", *, task_status: "anyio.abc.TaskStatus[None]"
) -> None:
    import anyio

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
        task_status.started()
        async for _ in received:
            stopped.set()
