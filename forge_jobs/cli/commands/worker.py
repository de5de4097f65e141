"""``forge-jobs worker``: run handlers until a signal."""

import os
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import click
import msgspec

from forge_jobs.cli.loading import load_handlers
from forge_jobs.cli.logs import configure_logging
from forge_jobs.cli.options import BYTES, OWN_PROCESS, QUEUES, deployment_options, storage_url
from forge_jobs.config import Deployment, EventLoop, variable_of
from forge_jobs.errors import ConfigError
from forge_jobs.model.queues import MAX_WORKERS_LIMIT
from forge_jobs.reports import reporter
from forge_jobs.setting_values import MAX_PROCESSES

logger = reporter(__name__)

_LAST_PORT = 65_535


@click.command()
@click.argument("handlers", metavar="[MODULE:ATTR]", required=False)
@click.option(
    "--queues", type=QUEUES, metavar="NAMES", help="As gh,slack=2: name=workers (FORGE_QUEUES)."
)
@click.option(
    "--queue-patterns",
    type=QUEUES,
    metavar="GLOBS",
    help="Queues served once they have jobs, as 'tenant-*=2' (FORGE_QUEUE_PATTERNS).",
)
@click.option(
    "--processes",
    type=click.IntRange(1, MAX_PROCESSES),
    help="Keep so many worker processes alive (FORGE_PROCESSES).",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, MAX_WORKERS_LIMIT),
    help="Run at most so many jobs at once in each process (FORGE_CONCURRENCY).",
)
@click.option(
    "--max-jobs-per-process",
    type=click.IntRange(1),
    metavar="N",
    help="Replace a process that has run so many jobs (FORGE_MAX_JOBS_PER_PROCESS).",
)
@click.option(
    "--max-memory-per-process",
    type=BYTES,
    metavar="SIZE",
    help="Replace a process that takes more, as 512MiB (FORGE_MAX_MEMORY_PER_PROCESS).",
)
@click.option(
    "--reload", is_flag=True, help="Start anew whenever a .py file changes. For development."
)
@click.option(
    "--reload-dir",
    "reload_folders",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    multiple=True,
    help="Look there for changes, instead of the working directory. May be repeated.",
)
@click.option("--once", is_flag=True, help="Work off what is due, then end.")
@click.option("--until-empty", is_flag=True, help="End when no job of the queues waits any more.")
@click.option(
    "--health-port",
    type=click.IntRange(1, _LAST_PORT),
    envvar="FORGE_HEALTH_PORT",
    metavar="PORT",
    help="Answer /healthz, /readyz, /metrics there; the next processes on the next ports "
    "(FORGE_HEALTH_PORT).",
)
@click.option(
    "--health-host",
    default="",
    envvar="FORGE_HEALTH_HOST",
    metavar="ADDRESS",
    help="The address of that port, as 127.0.0.1. All addresses when left out, as probes of "
    "Kubernetes need (FORGE_HEALTH_HOST).",
)
@click.option("--stop-on-eof", is_flag=True, hidden=True, help="A parent is at stdin.")
@click.option("--health-socket", type=int, hidden=True, help="The parent's socket for probes.")
@click.option("--successor", is_flag=True, hidden=True, help="Another process still answers.")
@deployment_options
def worker(
    deployment: Deployment,
    *,
    handlers: str | None,
    queues: dict[str, int | None] | None,
    queue_patterns: dict[str, int | None] | None,
    processes: int | None,
    concurrency: int | None,
    max_jobs_per_process: int | None,
    max_memory_per_process: int | None,
    reload: bool,
    reload_folders: tuple[Path, ...],
    once: bool,
    until_empty: bool,
    health_port: int | None,
    health_host: str,
    stop_on_eof: bool,
    health_socket: int | None,
    successor: bool,
) -> None:
    """Run jobs until SIGTERM, SIGINT, SIGHUP or SIGQUIT.

    The first signal drains, a second one hurries.

    MODULE:ATTR is the registry, as myapp.jobs:handlers. FORGE_HANDLERS when left out. With several
    processes each is a separate pod. A process that dies is started again.
    """
    if once and until_empty:
        raise click.UsageError("--once and --until-empty exclude each other.")
    if reload and (once or until_empty):
        raise click.UsageError("--reload runs until a signal, so not with --once or --until-empty.")
    if reload_folders and not reload:
        raise click.UsageError("--reload-dir has a meaning with --reload alone.")
    given = {
        "queues": queues,
        "queue_patterns": queue_patterns,
        "concurrency": concurrency,
        "max_jobs_per_process": max_jobs_per_process,
        "max_memory_per_process": max_memory_per_process,
    }
    chosen = {name: value for name, value in given.items() if value}
    deployment = msgspec.structs.replace(deployment, **chosen)
    if deployment.queue_patterns and (once or until_empty):
        raise click.UsageError(
            "--once and --until-empty know when named queues are empty: give --queues, and no "
            "--queue-patterns (FORGE_QUEUE_PATTERNS)."
        )
    if not (deployment.queues or deployment.queue_patterns):
        raise ConfigError("FORGE_QUEUES is not set; set it, or give --queues gh,slack=2")
    storage_url(deployment)
    count = processes or deployment.processes
    parent = None
    if stop_on_eof:
        from forge_jobs.cli.processes.link import ParentLink

        parent = ParentLink()
    elif count > 1 or deployment.recycles or reload:
        restart = not (once or until_empty)
        watched = (reload_folders or (Path.cwd(),)) if reload else ()
        code = _keep(
            deployment,
            _listeners(health_port, health_host, count),
            restart=restart,
            watched=watched,
        )
        raise click.exceptions.Exit(code)
    registry = load_handlers(handlers, deployment)
    configure_logging(deployment)
    from forge_jobs.cli.serving import RunMode, run_worker

    code = run_worker(
        deployment,
        registry,
        RunMode.ONCE if once else RunMode.UNTIL_EMPTY if until_empty else RunMode.FOREVER,
        owns_process=click.get_current_context().find_root().obj is OWN_PROCESS,
        use_uvloop=_is_uvloop(deployment.event_loop),
        health_port=health_port if health_socket is None else socket.socket(fileno=health_socket),
        health_host=health_host,
        parent=parent,
        is_successor=successor,
    )
    raise click.exceptions.Exit(code)


def _is_uvloop(wanted: EventLoop) -> bool:
    installed = find_spec("uvloop") is not None
    if wanted == "uvloop" and not installed:
        raise ConfigError(
            f"{variable_of('event_loop')} is uvloop, which is not installed; "
            "pip install forge-jobs[uvloop], or give auto"
        )
    return installed and wanted != "asyncio"


def _keep(
    deployment: Deployment,
    listeners: "Sequence[socket.socket | None]",
    *,
    restart: bool,
    watched: Sequence[Path],
) -> int:
    """Run this very command line in a process per listener. The exit code.

    :param listeners: where each process answers probes. None: nowhere
    :param watched: folders with code whose changes start the processes anew
    """
    configure_logging(deployment)
    import anyio

    from forge_jobs.cli.processes.changes import SourceFiles
    from forge_jobs.cli.processes.process import Child
    from forge_jobs.cli.processes.supervising import run_processes

    arguments = [*sys.argv[1:], "--processes=1", "--stop-on-eof"]
    identity, environ = deployment.worker_id, dict(os.environ)
    files = SourceFiles(watched) if watched else None
    if files is not None:
        logger.warning(
            "worker processes start anew whenever a .py file changes below %s: for development, "
            "not for production",
            ", ".join(map(str, watched)),
        )
        # A compiled module counts as new for a second: a second change in that time, of the same
        # length, would not be seen.
        environ["PYTHONDONTWRITEBYTECODE"] = "1"
        arguments.insert(0, "--traceback")
    command = [sys.executable, "-m", "forge_jobs", *arguments]
    children = [
        Child(
            command + ([f"--health-socket={listener.fileno()}"] if listener else []),
            {**environ, **({variable_of("worker_id"): f"{identity}-{n}"} if identity else {})},
            listener,
        )
        for n, listener in enumerate(listeners, start=1)
    ]

    async def run() -> int:
        grace = deployment.runtime.grace
        return await run_processes(children, grace=grace, restart=restart, files=files)

    return anyio.run(run)


def _listeners(first: int | None, host: str, count: int) -> list[socket.socket | None]:
    """Return a listening socket per process, at the given port and the next ones."""
    from forge_jobs.cli.health_server import listening

    if first is None:
        return [None] * count
    last = first + count - 1
    if last > _LAST_PORT:
        raise click.BadParameter(
            f"{count} processes need ports up to {last}, and there are {_LAST_PORT}",
            param_hint="--health-port",
        )
    return [listening(port, host) for port in range(first, last + 1)]
