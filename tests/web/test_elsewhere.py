"""The command, the request and the line of Python that an action shows do the same."""

import asyncio
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx
import msgspec
import pytest

from forge_jobs import Apply
from forge_jobs.clients.schedules import put_schedule, schedule
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.actions import Action
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import HostId, JobId, new_job_id
from forge_jobs.model.jobs import After
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueChange, RateLimit
from forge_jobs.model.strikes import StrikeRule
from forge_jobs.operating.actions.documents import ActionView
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.settings.queues import QueueEdit
from forge_jobs.operating.settings.specs import ScheduleEdit
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from forge_jobs.web.pages.deeds import DEEDS
from tests.cli.conftest import CommandLine
from tests.support import files
from tests.support.factories import new_job, register
from tests.support.outboxes import write_down
from tests.support.waiting import wait_until
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
    "pause_queue of a dash": "name=-mail",
    "set_queue of a dash": "name=-mail&max_workers=9",
    "set_schedule of a dash": "name=-nightly&expression=%40hourly",
    "set_limit of a dash": "name=-smtp&size=7/90s",
    "set_concurrency of a dash": "queue=-mail&name=-hosts&at_most=4",
    "add_strike of a dash": "name=-x&kind=-k&where=&effect=cancel&reason=-r",
    "retry_outbox of a dash": "name=-billing",
    "drain_limit": "name=smtp",
    "set_limit": "name=smtp&size=7/90s",
    "delete_limit": "name=smtp",
    "set_concurrency": "queue=mail&name=hosts&at_most=4",
    "delete_concurrency": "queue=mail&name=hosts",
    "lift_strike": "name=no+mail",
    "add_strike": "name=x+y&kind=7&where=&effect=hold&reason=a+%22b%22",
    "add_strike to cancel": "name=no+mail&kind=&where=a+%3E+1&effect=cancel&reason=",
    "retry_outbox": "name=billing",
    "retry_outbox one": "name=billing&id={aside}",
    "discard_outbox": "name=billing&id={aside}",
    "cancel_jobs": "id={0}",
    "cancel_jobs by filter": "q=queue:mail+status:pending",
    "requeue_jobs": "q=status:cancelled",
    "restore_jobs": "q=status:cancelled",
    "delete_jobs": "id={0}&id={1}",
    "run_jobs_now": "q=queue:mail",
    "release_held_jobs": "q=queue:mail+status:blocked",
    "undo_action": "name={undo}",
    "abort_action": "name={running}",
    "continue_action": "name={running}",
}
POD = HostId("pod-1")
OF_PODS = ("quiet_pod", "resume_pod", "stop_pod", "show_stacks")


def test_each_action_that_has_a_preview_is_tried() -> None:
    assert {each.partition(" ")[0] for each in ACTS} | {*OF_PODS} == {*DEEDS}


class Furnished(NamedTuple):
    """A closed file, the jobs there, and actions by a name."""

    path: Path
    ids: list[JobId]
    actions: Mapping[str, str]


async def furnish(path: Path) -> tuple[list[JobId], Mapping[str, str]]:
    """Make a store with something for each action. Return its jobs, and actions by a name."""
    async with await open_storage(f"sqlite:///{path}", create=True) as storage:
        for name in ("mail", "images", "idle"):
            await storage.config.set_queue(name, QueueChange(max_workers=2))
        await storage.config.set_queue("-mail", QueueChange(max_workers=2))
        await storage.config.set_paused("images", True)
        await storage.config.ensure_rate_limit("smtp", RateLimit(100, 86_400))
        await storage.config.ensure_rate_limit("-smtp", RateLimit(100, 86_400))
        await storage.config.ensure_limits("mail", {"hosts": 2})
        await storage.config.ensure_limits("-mail", {"-hosts": 2})
        await storage.config.put_strike("no mail", StrikeRule(kind="mail.send"), "ada")
        stored = await storage.jobs.enqueue([new_job(queue="mail") for _ in range(4)])
        ids = sorted(each.job_id for each in stored)
        [held] = await storage.jobs.enqueue(
            [new_job(queue="mail", after=(After(ids[2], on_failure="hold"),))]
        )
        await storage.jobs.cancel(JobFilter(ids=(ids[2],)))
        await hand_over_once(storage.jobs)
        for name in ("nightly", "stopped", "-nightly"):
            request = EnqueueRequest("mail.send", {}, queue="mail")
            await put_schedule(storage.cron, schedule(name, request, "@daily"))
        async with Operator(storage, ADA) as operator:
            await operator.pause_schedule("stopped")
            [paused] = (await operator.list_actions()).actions
        [waits] = await storage.jobs.enqueue([new_job(queue="images")])
        [aside, *_] = await write_down(storage, "billing", 2, "Conflict: of other content")
        await write_down(storage, "-billing", 1, "Conflict: of other content")
        running = Action(
            id=new_job_id(), actor="ada", surface="web", verb="cancel_jobs", matched=1,
            which=JobFilter(queues=("images",)), queues=("images",),
        )  # fmt: skip
        await storage.jobs.put_action(running)
    return [*ids, held.job_id, waits.job_id], {
        "undo": paused.id,
        "running": running.id,
        "aside": aside,
    }


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Furnished:
    """A file with something for each action, to be copied. A new schema takes a while."""
    path = tmp_path_factory.mktemp("furnished") / "jobs.db"
    ids, actions = asyncio.run(furnish(path))
    return Furnished(path, ids, actions)


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
        at_once = (await operator.list_concurrency()).limits
        strikes = (await operator.list_strikes()).strikes
        outboxes = (await operator.outbox_state()).outboxes
        actions = (await operator.list_actions()).actions
    return [
        sorted((job.id if job.id in ids else "", job.kind, job.status.value) for job in jobs),
        [(each.name, each.settings, each.paused, each.overridden) for each in queues],
        [(each.spec, each.paused, each.deleted) for each in schedules],
        [(each.scope, each.limit, each.available == 0) for each in limits],
        at_once,
        [(each.name, each.rule) for each in strikes],
        [(each.name, each.waiting, each.set_aside) for each in outboxes],
        sorted(
            (each.verb, each.target, *_values(each), each.changed, each.state.value)
            for each in actions
        ),
    ]


def _values(action: ActionView) -> list[str]:
    """Return the values before and after, without who has set a strike: a command is its user."""
    return [re.sub(r'"by":"[^"]*"', "", text) for text in (action.before, action.after)]


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
    names: dict[str, Any] = {
        "Apply": Apply,
        "QueueEdit": QueueEdit,
        "RateLimit": RateLimit,
        "ScheduleEdit": ScheduleEdit,
        "StrikeRule": StrikeRule,
        "timedelta": timedelta,
    }
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
async def test_what_an_action_shows_does_what_the_page_does(
    act: str, furnished: Furnished, tmp_path: Path
) -> None:
    first_file, ids, actions = furnished
    for name in ("page", *WAYS):
        shutil.copy(first_file, tmp_path / f"{name}.db")
    path = f"/act/{act.partition(' ')[0]}?{ACTS[act].format(*ids, **actions)}"
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


@asynccontextmanager
async def answering(storage: Storage) -> AsyncIterator[None]:
    """A pod that does at once what people ask for."""
    lease = await register(storage, host_id=POD, lease_for=timedelta(hours=1))
    task = asyncio.create_task(_answer(storage, lease))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _answer(storage: Storage, lease: PodLease) -> None:
    while True:
        heard = await wait_until(
            partial(storage.procs.hear_requests, lease), description="the pod is asked"
        )
        for each in heard:
            await storage.procs.answer_request(lease, each.id, f"did {each.verb.value}")


@pytest.mark.parametrize("act", OF_PODS)
async def test_what_a_pod_is_asked_for_is_the_same_everywhere(act: str, tmp_path: Path) -> None:
    path = f"/act/{act}?name={POD}"
    got = []
    for first in ("page", *WAYS):
        (tmp_path / first).mkdir()
        await files.make_in(tmp_path / first)
        file = tmp_path / first / "jobs.db"
        async with (
            opened(file) as storage,
            client_of(dashboard(storage, authorize=lambda _: ADA)) as client,
            answering(storage),
        ):
            text = await page(client, path)
            if first == "page":
                assert "<h1>The pod has answered</h1>" in (await client.post(path)).text
            else:
                lines = [unescape(each) for each in re.findall(r'class="copy">([^<]+)<', text)]
                [line] = [each for each in lines if each.startswith(first)]
                await WAYS[first](storage, line, file)
            async with Operator(storage, ADA) as operator:
                asked = (await operator.pod_requests(POD)).requests
                actions = (await operator.list_actions()).actions
            got.append(
                [
                    [(each.verb, each.state, each.answer) for each in asked],
                    [(each.verb, each.target, each.state) for each in actions],
                ]
            )
    assert got[0][0]
    assert got == [got[0]] * 4
