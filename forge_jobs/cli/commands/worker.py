"""``forge-jobs worker``: run handlers until a signal."""

import os
import signal
import sys
import threading
from importlib.util import find_spec

import click
import msgspec

from forge_jobs.cli.loading import load_handlers
from forge_jobs.cli.logs import configure_logging
from forge_jobs.cli.options import OWN_PROCESS, QUEUES, deployment_options, storage_url
from forge_jobs.config import MAX_PROCESSES, Deployment, EventLoop, variable_of
from forge_jobs.errors import ConfigError
from forge_jobs.model.queues import MAX_WORKERS_LIMIT

_LAST_PORT = 65_535


@click.command()
@click.argument("handlers", metavar="[MODULE:ATTR]", required=False)
@click.option(
    "--queues", type=QUEUES, metavar="NAMES", help="As gh,slack=2: name=workers (FORGE_QUEUES)."
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
@click.option("--once", is_flag=True, help="Work off what is due, then end.")
@click.option("--until-empty", is_flag=True, help="End when no job of the queues waits any more.")
@click.option(
    "--health-port",
    type=click.IntRange(1, _LAST_PORT),
    metavar="PORT",
    help="Answer /healthz and /readyz there; the next processes on the next ports.",
)
@click.option("--stop-on-eof", is_flag=True, hidden=True, help="Stop when stdin closes.")
@deployment_options
def worker(
    deployment: Deployment,
    *,
    handlers: str | None,
    queues: dict[str, int | None] | None,
    processes: int | None,
    concurrency: int | None,
    once: bool,
    until_empty: bool,
    health_port: int | None,
    stop_on_eof: bool,
) -> None:
    """Run jobs until SIGTERM, SIGINT, SIGHUP or SIGQUIT.

    The first signal drains, a second one hurries.

    MODULE:ATTR is the registry, as myapp.jobs:handlers. FORGE_HANDLERS when left out. With several
    processes each is a separate pod. A process that dies is started again.
    """
    if once and until_empty:
        raise click.UsageError("--once and --until-empty exclude each other.")
    if queues:
        deployment = msgspec.structs.replace(deployment, queues=queues)
    if concurrency:
        deployment = msgspec.structs.replace(deployment, concurrency=concurrency)
    if not deployment.queues:
        raise ConfigError("FORGE_QUEUES is not set; set it, or give --queues gh,slack=2")
    storage_url(deployment)
    count = processes or deployment.processes
    if count > 1:
        restart = not (once or until_empty)
        raise click.exceptions.Exit(_keep(count, deployment, health_port, restart=restart))
    registry = load_handlers(handlers, deployment)
    configure_logging(deployment)
    if stop_on_eof:
        threading.Thread(target=_stop_on_eof, args=(_own_stdin(),), daemon=True).start()
    from forge_jobs.cli.serving import RunMode, run_worker

    code = run_worker(
        deployment,
        registry,
        RunMode.ONCE if once else RunMode.UNTIL_EMPTY if until_empty else RunMode.FOREVER,
        owns_process=click.get_current_context().find_root().obj is OWN_PROCESS,
        use_uvloop=_is_uvloop(deployment.event_loop),
        health_port=health_port,
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


def _keep(count: int, deployment: Deployment, health_port: int | None, *, restart: bool) -> int:
    """Run this very command line in ``count`` processes. The exit code."""
    configure_logging(deployment)
    import anyio

    from forge_jobs.cli.processes import Child, run_processes

    _check_ports(health_port, count)
    command = [sys.executable, "-m", "forge_jobs", *sys.argv[1:], "--processes=1", "--stop-on-eof"]
    identity = deployment.worker_id
    children = [
        Child(
            command + ([f"--health-port={health_port + n - 1}"] if health_port else []),
            {**os.environ, **({variable_of("worker_id"): f"{identity}-{n}"} if identity else {})},
        )
        for n in range(1, count + 1)
    ]

    async def run() -> int:
        grace = deployment.runtime.grace
        return await run_processes(children, grace=grace, restart=restart)

    return anyio.run(run)


def _check_ports(first: int | None, count: int) -> None:
    """Check that each process has a port, counted from the given one on."""
    last = (first or 1) + count - 1
    if last > _LAST_PORT:
        raise click.BadParameter(
            f"{count} processes need ports up to {last}, and there are {_LAST_PORT}",
            param_hint="--health-port",
        )


def _own_stdin() -> int:
    """Take stdin for this process alone: programs that handlers start find the end of theirs at
    once."""
    taken = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return taken


def _stop_on_eof(pipe: int) -> None:
    """Ask this process to stop once the parent process is gone."""
    # Not through sys.stdin: its lock, held by a thread that waits, aborts the interpreter's end.
    while os.read(pipe, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
