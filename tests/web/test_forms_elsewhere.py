"""Forms: what was typed is checked and applied, and shown as command, request and code."""

import re
import shlex
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec
import pytest
from msgspec import Raw

from forge_jobs import Conflict
from forge_jobs.clients.client import JobClient
from forge_jobs.clients.schedules import put_schedule, schedule
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.handlers.schema import published
from forge_jobs.model.ids import JobId
from forge_jobs.operating.access import ALL
from forge_jobs.operating.actions.editing import JobEdit
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.settings.specs import ScheduleEdit
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.cli.conftest import CommandLine
from tests.web.conftest import ADA, client_of
from tests.web.test_elsewhere import by_request
from tests.web.test_kinds import fields, shop
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio

NIGHTLY = "/cron/nightly/edit"
JOB = "01KB0000000000000000000000"
EDIT = f"/jobs/{JOB}/edit"
BOSS = Actor(name="ada", access=ALL)
PIN = '{"order": 1, "pin": "very secret"}'


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Storage]:
    async with await open_storage(f"sqlite:///{path}", create=True) as storage:
        yield storage


async def furnish(storage: Storage) -> None:
    await storage.procs.publish_kinds(published(shop()))
    request = EnqueueRequest("card.charge", PIN, queue="cards")
    await put_schedule(storage.cron, schedule("nightly", request, "@daily", registry=shop()))
    job = EnqueueRequest(
        "card.charge", PIN, id=JOB, unique=None, tags=["a"], delay=timedelta(hours=9),
        metadata={"who": "ada"},
    )  # fmt: skip
    async with JobClient(storage, shop()) as client:
        await client.enqueue(job)


async def test_a_schedule_is_edited_by_the_schema_of_the_kind(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    await furnish(storage)
    assert NIGHTLY in await page(caller, "/cron/nightly")
    typed = fields(await page(caller, NIGHTLY))
    assert typed["payload"] == '{\n  "order": 1,\n  "pin": "***"\n}'

    for name, text, said in (
        ("payload", '{"order": "x", "pin": "***"}', "order the value is not of type"),
        ("payload", "{", "is not valid JSON"),
        ("overlap", "maybe", "give allow or skip"),
        ("jitter", "soon", "give"),
        ("expression", "61 * * * *", "is"),
        ("priority", "high", "give a whole number"),
    ):
        wrong = await caller.post(NIGHTLY, data=typed | {name: text})
        assert said in unescape(wrong.text), (name, wrong.text)
        assert fields(wrong.text).get(name) == text, name
        assert 'aria-invalid="true"' in wrong.text, name
    change = {"payload": '{"order": 2, "pin": "***"}', "jitter": "90s", "timeout": "", "tags": "a"}
    done = await caller.post(NIGHTLY, data=typed | change)
    assert "<h1>Done</h1>" in done.text, done.text
    [stored] = await storage.cron.schedules()
    assert msgspec.json.decode(stored.spec.payload) == {"order": 2, "pin": "very secret"}
    assert (stored.spec.jitter, stored.spec.timeout) == (timedelta(seconds=90), None)
    assert (stored.spec.tags, stored.spec.queue) == (("a",), "cards")
    late = await caller.post(NIGHTLY, data=typed | change | {"tags": "b"})
    assert "was changed since you looked" in late.text
    same = fields(await page(caller, NIGHTLY))
    assert "is given no change" in (await caller.post(NIGHTLY, data=same)).text
    assert (await caller.get("/cron/none/edit")).status_code == 404


async def test_the_form_is_for_those_who_may_change_schedules(sqlite: Storage) -> None:
    await furnish(sqlite)
    eve = Actor(name="eve", access=Access())
    async with client_of(dashboard(sqlite, authorize=lambda _: eve)) as client:
        assert (await client.get(NIGHTLY)).status_code == 403
        assert NIGHTLY not in await page(client, "/cron/nightly")
    bob = Actor(name="bob", access=Access(actions=frozenset({"set_schedule"})))
    async with client_of(dashboard(sqlite, authorize=lambda _: bob)) as client:
        typed = fields(await page(client, NIGHTLY))
        assert "payload" not in typed
        done = await client.post(NIGHTLY, data=typed | {"tags": "b"})
        assert "<h1>Done</h1>" in done.text
    [stored] = await sqlite.cron.schedules()
    assert msgspec.json.decode(stored.spec.payload) == msgspec.json.decode(PIN)


async def by_command(storage: Storage, line: str, path: Path) -> str:
    forge = CommandLine(f"sqlite:///{path}")
    done = await anyio.to_thread.run_sync(partial(forge, *shlex.split(line)[1:]))
    return done.stdout


async def by_python(storage: Storage, line: str, path: Path) -> object:
    names: dict[str, Any] = {
        "EnqueueRequest": EnqueueRequest,
        "JobEdit": JobEdit,
        "Raw": Raw,
        "ScheduleEdit": ScheduleEdit,
        "datetime": datetime,
        "timedelta": timedelta,
    }
    exec(compile(f"async def main(operator):\n    return {line}\n", "page", "exec"), names)
    async with Operator(storage, BOSS) as operator:
        return await names["main"](operator)


WAYS = (by_command, by_request, by_python)


def lines_of(text: str) -> list[str]:
    lines = [unescape(each) for each in re.findall(r'class="copy">([^<]+)<', text)]
    lines = [each for each in lines if each.startswith(("forge-jobs ", "curl", "await"))][:3]
    assert len(lines) == 3, text
    return lines


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (
            "/jobs/new?kind=card.charge",
            {
                "payload": '{"order": 9223372036854775808, "pin": "it\'s \\u00fc"}',
                "tags": "a, b",
                "priority": "-3",
                "queue": "other",
                "delay": "2h",
            },
        ),
        (
            NIGHTLY,
            {
                "payload": '{"order": 5, "pin": "it\'s"}',
                "jitter": "90s",
                "max_attempts": "",
                "tags": "a,b",
                "overlap": "skip",
                "expression": "@hourly",
            },
        ),
        (NIGHTLY, {"timeout": "", "tags": "", "queue": "none", "sequence_key": "-it's"}),
        (
            EDIT,
            {
                "payload": '{"order": 9223372036854775808, "pin": "it\'s \\u00fc"}',
                "metadata": '{"who": "it\'s eve"}',
                "due_at": "2098-01-01T00:00:00+02:00",
                "expires_at": "2099-01-01T00:00:00+00:00",
                "priority": "-3",
                "max_attempts": "7",
                "timeout": "2h",
                "tags": "a, b",
                "reason": "it's \N{SNOWMAN}",
            },
        ),
        (EDIT, {"timeout": "", "tags": "", "max_attempts": "", "expires_at": ""}),
        (EDIT, {"payload": '{"order": 2, "pin": "***"}'}),
    ],
    ids=["enqueue", "schedule", "schedule to none", "job", "job to none", "job with its secret"],
)
async def test_what_a_form_shows_does_what_the_form_does(
    path: str, change: dict[str, str], tmp_path: Path
) -> None:
    async with opened(tmp_path / "first.db") as storage:
        await furnish(storage)
        async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
            form = fields(await page(client, path)) | change
            shown = await client.post(path, data=form | {"show": "code"})
            wrong = await client.post(path, data=form | {"show": "code", "payload": "{"})
        assert 'aria-invalid="true"' in wrong.text
        nothing = await outcome(storage)
    lines = lines_of(shown.text)
    results = []
    for index, way in enumerate(WAYS):
        file = tmp_path / f"{index}.db"
        shutil.copy(tmp_path / "first.db", file)
        async with opened(file) as storage:
            await way(storage, lines[index], file)
            results.append(await outcome(storage))
    async with opened(tmp_path / "first.db") as storage:
        async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
            await client.post(path, data=form)
        expected = await outcome(storage)
    assert expected != nothing
    assert results == [expected] * 3


async def outcome(storage: Storage) -> list[object]:
    async with Operator(storage, ADA) as operator:
        jobs = (await operator.list_jobs(limit=9)).jobs
        actions = (await operator.list_actions()).actions
    stored = await storage.jobs.get([job.id for job in jobs])
    return [
        [(j.id, j.kind, j.queue, j.payload, j.priority, j.tags) for j in stored.values()],
        [(j.timeout, j.max_attempts, j.expires_at, j.metadata) for j in stored.values()],
        [j.due_at - j.enqueued_at for j in stored.values()],
        [each.spec for each in await storage.cron.schedules()],
        [(each.verb, each.before, each.after, each.reason, each.changed) for each in actions],
    ]


async def test_an_edit_that_changes_nothing_or_is_too_late_shows_or_does_nothing(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "first.db") as storage:
        await furnish(storage)
        async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
            for path in (EDIT, NIGHTLY):
                form = fields(await page(client, path))
                same = await client.post(path, data=form | {"show": "code"})
                assert "give another value" in unescape(same.text), path
                assert 'id="same"' not in same.text
            form = fields(await page(client, EDIT)) | {"priority": "3"}
            command, request, code = lines_of(
                (await client.post(EDIT, data=form | {"show": "code"})).text
            )
            await client.post(EDIT, data=form | {"priority": "4"})
        for way, line in ((by_request, request), (by_python, code)):
            with pytest.raises((AssertionError, Conflict), match="changed since you looked"):
                await way(storage, line, tmp_path)
        forge = CommandLine(f"sqlite:///{tmp_path / 'first.db'}")
        late = await anyio.to_thread.run_sync(partial(forge.run, *shlex.split(command)[1:]))
        assert "changed since you looked" in late.output
        [job] = (await storage.jobs.get([JobId(JOB)])).values()
        assert job.priority == 4


async def test_a_reveal_shows_itself_as_command_request_and_code(tmp_path: Path) -> None:
    async with opened(tmp_path / "first.db") as storage:
        await furnish(storage)
        async with client_of(dashboard(storage, authorize=lambda _: BOSS)) as client:
            lines = lines_of(await page(client, f"/jobs/{JOB}/reveal"))
            whole = (await client.post(f"/jobs/{JOB}/reveal", data={"reason": ""})).text
        assert "very secret" in whole
        assert "very secret" in await by_command(storage, lines[0], tmp_path / "first.db")
        revealed = await by_python(storage, lines[2], tmp_path)
        assert "very secret" in str(revealed)
        words = shlex.split(lines[1])
        async with client_of(dashboard(storage, authorize=lambda _: BOSS)) as client:
            answer = await client.request(words[2], words[3])
        assert answer.json()["payload"] == msgspec.json.decode(PIN)
        async with Operator(storage, BOSS) as operator:
            actions = (await operator.list_actions()).actions
        assert [(each.verb, each.target) for each in actions] == [("reveal_job", JOB)] * 4
