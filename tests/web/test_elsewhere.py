"""The command, the request and the line of Python that an action shows do the same."""

import re
import shlex
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec
import pytest

from forge_jobs import Apply
from forge_jobs.clients.schedules import put_schedule, schedule
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After
from forge_jobs.model.queues import QueueChange, RateLimit
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.settings.queues import QueueEdit
from forge_jobs.operating.settings.specs import ScheduleEdit
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from tests.cli.conftest import CommandLine
from tests.support.factories import new_job
from tests.web.conftest import ADA, client_of
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio

ACTS = {
    "pause_queue": "name=mail",
    "resume_queue": "name=images",
    "end_cooldown": "name=mail",
    "delete_queue": "name=idle",
    "clean_up_queue": "name=mail",
    "set_queue": "name=mail&max_workers=9",
    "set_queue objective": "name=mail&objective=95%25+within+30s",
    "trigger_schedule": "name=nightly",
    "pause_schedule": "name=nightly",
    "resume_schedule": "name=stopped",
    "delete_schedule": "name=nightly",
    "set_schedule": "name=nightly&expression=%40hourly",
    "drain_limit": "name=smtp",
    "cancel_jobs": "id={0}",
    "cancel_jobs by filter": "q=queue:mail+status:pending",
    "requeue_jobs": "q=status:cancelled",
    "restore_jobs": "q=status:cancelled",
    "delete_jobs": "id={0}&id={1}",
    "run_jobs_now": "q=queue:mail",
    "release_held_jobs": "q=queue:mail+status:blocked",
}


async def furnish(path: Path) -> list[JobId]:
    """Make a store with something for each action, and return its jobs."""
    async with await open_storage(f"sqlite:///{path}", create=True) as storage:
        for name in ("mail", "images", "idle"):
            await storage.config.set_queue(name, QueueChange(max_workers=2))
        await storage.config.set_paused("images", True)
        await storage.config.ensure_rate_limit("smtp", RateLimit(100, 86_400))
        stored = await storage.jobs.enqueue([new_job(queue="mail") for _ in range(4)])
        ids = sorted(each.job_id for each in stored)
        [held] = await storage.jobs.enqueue(
            [new_job(queue="mail", after=(After(ids[2], on_failure="hold"),))]
        )
        await storage.jobs.cancel(JobFilter(ids=(ids[2],)))
        await hand_over_once(storage.jobs)
        for name in ("nightly", "stopped"):
            request = EnqueueRequest("mail.send", {}, queue="mail")
            await put_schedule(storage.cron, schedule(name, request, "@daily"))
        async with Operator(storage, ADA) as operator:
            await operator.pause_schedule("stopped")
    return [*ids, held.job_id]


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Storage]:
    async with await open_storage(f"sqlite:///{path}") as storage:
        yield storage


async def outcome(storage: Storage, ids: list[JobId]) -> list[object]:
    """Read all that an action can change, without times and new ids."""
    async with Operator(storage, ADA) as operator:
        jobs = (await operator.list_jobs(limit=100)).jobs
        queues = (await operator.list_queues()).queues
        schedules = (await operator.list_schedules()).schedules
        limits = (await operator.list_limits()).rate_limits
        actions = (await operator.list_actions()).actions
    return [
        sorted((job.id if job.id in ids else "", job.kind, job.status.value) for job in jobs),
        [(each.name, each.settings, each.paused, each.overridden) for each in queues],
        [(each.spec, each.paused, each.deleted) for each in schedules],
        [(each.scope, each.available == 0) for each in limits],
        [(each.verb, each.target, each.before, each.after, each.changed) for each in actions],
    ]


async def by_command(storage: Storage, line: str, path: Path) -> None:
    words = shlex.split(line)
    assert words[0] == "forge-jobs"
    forge = CommandLine(f"sqlite:///{path}")
    await anyio.to_thread.run_sync(partial(forge, *words[1:], stdin="y\n"))


async def by_request(storage: Storage, line: str, path: Path) -> None:
    words = shlex.split(line)
    assert words[:2] == ["curl", "-X"]
    headers = dict(
        words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H"
    ) | {"Sec-Fetch-Site": "same-origin"}
    body = words[words.index("-d") + 1] if "-d" in words else None
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
        answer = await client.request(words[2], words[3], headers=headers, content=body)
    assert answer.status_code == 200, answer.text


async def by_python(storage: Storage, line: str, path: Path) -> None:
    names: dict[str, Any] = {"Apply": Apply, "QueueEdit": QueueEdit, "ScheduleEdit": ScheduleEdit}
    program = f"async def main(operator):\n    {line}\n"
    exec(compile(program, "page", "exec"), names)
    async with Operator(storage, ADA) as operator:
        await names["main"](operator)


WAYS: dict[str, Callable[[Storage, str, Path], Awaitable[None]]] = {
    "forge-jobs": by_command,
    "curl": by_request,
    "await": by_python,
}


async def by_page(client: httpx.AsyncClient, path: str) -> None:
    shown = await page(client, path)
    fields = re.findall(r'name="token" value="([^"]+)"', shown)
    content = f"token={unescape(fields[0])}" if fields else ""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    done = await client.post(path, content=content, headers=headers)
    assert "<h1>Done</h1>" in done.text, done.text


@pytest.mark.parametrize("act", ACTS)
async def test_what_an_action_shows_does_what_the_page_does(act: str, tmp_path: Path) -> None:
    ids = await furnish(tmp_path / "first.db")
    for name in ("page", *WAYS):
        shutil.copy(tmp_path / "first.db", tmp_path / f"{name}.db")
    path = f"/act/{act.partition(' ')[0]}?{ACTS[act].format(*ids)}"
    async with opened(tmp_path / "page.db") as storage:
        untouched = await outcome(storage, ids)
        async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
            await by_page(client, path)
        expected = await outcome(storage, ids)
    assert expected != untouched
    for first, way in WAYS.items():
        file = tmp_path / f"{first}.db"
        async with opened(file) as storage:
            async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
                text = await page(client, path)
            lines = [unescape(each) for each in re.findall(r'class="copy">([^<]+)<', text)]
            [line] = [each for each in lines if each.startswith(first)]
            await way(storage, line, file)
            got = await outcome(storage, ids)
        assert msgspec.json.encode(got) == msgspec.json.encode(expected), line
