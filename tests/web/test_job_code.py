"""A job as code and as a command: both enqueue the same."""

import re
import shlex
from datetime import timedelta
from html import unescape

import httpx
import pytest
from msgspec import structs

from forge_jobs import EnqueueRequest, JobClient
from forge_jobs.cli.commands.enqueue import enqueue
from forge_jobs.model.edits import content_of
from forge_jobs.model.jobs import Job
from forge_jobs.storage.protocols import Storage
from forge_jobs.web.pages.job.code import as_command, as_python
from tests.support.factories import enqueue_one, get_job

pytestmark = pytest.mark.anyio


async def a_rich_job(storage: Storage) -> Job:
    job_id = await enqueue_one(
        storage, queue="gh", payload='{"n": 1.10, "it\'s": "\\\\ \\" $(x)"}', priority=-3,
        tags=("a b", "c"), timeout=timedelta(minutes=90), max_attempts=None, metadata='{"w":"é"}',
    )  # fmt: skip
    return await get_job(storage, job_id)


async def test_the_code_of_the_page_enqueues_the_same(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    job = await a_rich_job(storage)
    page = (await caller.get(f"/jobs/{job.id}", headers={"Accept": "text/html"})).text
    shown = [unescape(each) for each in re.findall(r'<code class="copy">(.*?)</code>', page)]
    assert shown[-2:] == [as_command(job), as_python(job)]
    request = eval(shown[-1], {"EnqueueRequest": EnqueueRequest})
    async with JobClient(storage) as client:
        copied = await get_job(storage, (await client.enqueue(request)).job_id)
    wanted = structs.replace(content_of(job), due_at=copied.due_at)
    assert (copied.kind, copied.queue, content_of(copied)) == (job.kind, job.queue, wanted)


async def test_the_command_asks_for_the_same(sqlite: Storage) -> None:
    job = await a_rich_job(sqlite)
    words = shlex.split(as_command(job))
    assert words[:2] == ["forge-jobs", "enqueue"]
    context = enqueue.make_context("enqueue", words[2:])
    given = {key: value for key, value in context.params.items() if value not in (None, ())}
    assert given["payload"] == job.payload
    assert (given["kind"], given["queue"], given["priority"]) == (job.kind, "gh", -3)
    assert (given["tags"], given["timeout"], given["max_attempts"]) == (job.tags, job.timeout, 0)
