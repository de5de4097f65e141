"""``forge-jobs doctor``: what is wrong with this installation, and what to do."""

import platform
import sqlite3
from importlib.metadata import version

import anyio
import click

from forge_jobs.cli.failures import FAILED
from forge_jobs.cli.options import as_operator, deployment_options, json_option, storage_url
from forge_jobs.cli.output import emit_json, emit_table
from forge_jobs.config import Deployment
from forge_jobs.errors import ForgeJobsError
from forge_jobs.operating.health.documents import Health
from forge_jobs.operating.health.examining import is_well
from forge_jobs.operating.health.findings import Finding
from forge_jobs.operating.words import duration
from forge_jobs.policy import remedies
from forge_jobs.runtime.pod.startup import connections_wanted
from forge_jobs.storage.protocols import Storage

_PACKAGES = (
    "forge-jobs",
    "anyio",
    "SQLAlchemy",
    "aiosqlite",
    "asyncpg",
    "redis",
    "msgspec",
    "croniter",
    "click",
)


@click.command()
@json_option
@deployment_options
def doctor(deployment: Deployment, as_json: bool) -> None:
    """Check this installation and its store. Exit code 1 when something must be put right."""
    findings = [_check_python(), _check_packages()]
    findings += anyio.run(_examine, deployment)
    if as_json:
        emit_json(Health(ok=is_well(findings), findings=tuple(findings)))
    else:
        rows = [[each.state, each.check, each.text, each.help] for each in findings]
        emit_table(["state", "check", "finding", "what helps"], rows, none="")
    if not is_well(findings):
        raise click.exceptions.Exit(FAILED)


def _check_python() -> Finding:
    text = f"{platform.python_implementation()} {platform.python_version()}"
    return Finding(check="python", state="ok", text=text)


def _check_packages() -> Finding:
    installed = [f"{name} {version(name)}" for name in _PACKAGES]
    text = ", ".join([*installed, f"SQLite {sqlite3.sqlite_version}"])
    return Finding(check="packages", state="ok", text=text)


async def _examine(deployment: Deployment) -> list[Finding]:
    found = await _examine_store(deployment)
    if deployment.outbox:
        found.append(await _check_outbox(deployment))
    return found


async def _examine_store(deployment: Deployment) -> list[Finding]:
    from forge_jobs.storage.opening import open_storage

    try:
        storage = await open_storage(storage_url(deployment), create=False)
    except ForgeJobsError as error:
        return [Finding(check="store", state="fail", text=str(error))]
    async with storage:
        store, *others = (await as_operator(storage).doctor()).findings
        return [store, _check_pool(storage, deployment), *others]


async def _check_outbox(deployment: Deployment) -> Finding:
    """Look into the database of FORGE_OUTBOX, which is another than the store of the queues."""
    from forge_jobs.storage.opening import open_storage

    try:
        async with await open_storage(deployment.outbox, create=False) as storage:
            found = (await as_operator(storage).outbox_state()).outboxes
    except ForgeJobsError as error:
        return Finding(check="outbox", state="fail", text=str(error))
    states = [each for each in found if each.waiting or each.set_aside]
    if not states:
        return Finding(check="outbox", state="ok", text="no job waits")
    text = "; ".join(
        f"for {each.name}: {each.waiting} wait, the oldest for {duration(each.oldest)}, "
        f"{each.set_aside} set aside"
        for each in states
    )
    refused = [each.name for each in states if each.set_aside]
    help = remedies.list_outbox(refused[0]) if refused else ""
    return Finding(check="outbox", state="warn" if refused else "ok", text=text, help=help)


def _check_pool(storage: Storage, deployment: Deployment) -> Finding:
    size, wanted = storage.pool_size, connections_wanted(len(deployment.queues))
    if size is None:
        return Finding(check="pool", state="ok", text="one writer, one reader")
    if size >= wanted:
        return Finding(check="pool", state="ok", text=f"{size} connections, {wanted} wanted")
    text = (
        f"{size} connections for {len(deployment.queues)} queues; give the URL pool_size={wanted}"
    )
    return Finding(check="pool", state="warn", text=text)
