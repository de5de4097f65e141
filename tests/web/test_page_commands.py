"""Pages name the commands that read the same, and the commands do."""

import re
import shlex
from datetime import timedelta
from functools import partial
from html import unescape
from pathlib import Path

import anyio
import pytest

from forge_jobs.clients.schedules import put_schedule, schedule
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from tests.cli.conftest import CommandLine
from tests.support.factories import claim, enqueue_one, new_job, register
from tests.web.conftest import ADA, client_of
from tests.web.scene import playing
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio

JOBS = r'data-job="(\w+)"'
QUEUES = r'data-queue="(\w+)"'
NAMES: dict[str, str] = {
    "/": QUEUES,
    "/jobs": JOBS,
    "/jobs?q=queue:gh+status:dead": JOBS,
    "/jobs?q=queue:%22it's%22": JOBS,
    "/jobs?q={dead}": JOBS,
    "/jobs/{dead}": r"card \d+ declined|gh\.sync_issue",
    "/jobs/new": r'href="/jobs/new\?kind=([\w.]+)"',
    "/errors": r'href="/errors/gh/(\w+)',
    "/errors/gh/{group}?over=6h": r"(?:issue|card) \d+ (?:has no title|declined)",
    "/queues": QUEUES,
    "/queues/mail": r'in force"><b>(4)</b>',
    "/pods": r'href="/pods/([\w-]+)"',
    "/pods/{pod}": r"/act/quiet_pod\?name=([\w-]+)",
    "/cron": r'href="/cron/(\w+)"',
    "/cron/nightly": r'datetime="([\d-]+)T\d\d:30:00(?:\+00:00|Z)"',
    "/limits": r"<b>(smtp)</b>",
    "/limits/crawl/hosts": r">(acme)</a>",
    "/limits/crawl/hosts?key=acme": r'href="/jobs/(\w+)"',
    "/queues/--help": r'in force"><b>(4)</b>',
    "/cron/-nightly": r'datetime="([\d-]+)T\d\d:30:00(?:\+00:00|Z)"',
    "/limits/--help/-hosts": r">(-acme)</a>",
    "/limits/--help/-hosts?key=-acme": r'href="/jobs/(\w+)"',
    "/store": r"(SQLite [\d.]+)",
    "/audit": r'href="/audit/(\w+)"',
    "/audit/{action}": r"(images)",
}
"""By page: what both the page and the commands show."""

JUDGES = ("problems", "doctor")


async def printed_by(forge: CommandLine, text: str) -> str:
    """Run the commands that a page names, and return what they print."""
    [said] = re.findall(r"The same in a terminal: (.*?)</span>", text)
    printed = ""
    for each in re.findall(r"<code>(.*?)</code>", said):
        words = shlex.split(unescape(each))
        assert words[0] == "forge-jobs"
        done = await anyio.to_thread.run_sync(partial(forge.run, *words[1:]))
        # On a loaded machine something may be wrong, which these say by their exit code.
        assert done.exit_code in ((0, 1) if words[1] in JUDGES else (0,)), (words, done.output)
        printed += done.stdout
    return printed


async def fill_a_key(storage: Storage, queue: str, limit: str, key: str) -> None:
    """Let one job of a key run, and one wait."""
    await storage.config.ensure_limits(queue, {limit: 1})
    jobs = [new_job(queue=queue, limit_name=limit, limit_key=key) for _ in range(2)]
    await storage.jobs.enqueue(jobs)
    lease = await register(storage, queues=(queue,), lease_for=timedelta(hours=1))
    await claim(storage, lease, limit=10, queue=queue)


async def test_the_commands_of_a_page_read_what_the_page_shows(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    forge = CommandLine(url)
    async with (
        await open_storage(url, create=True) as storage,
        playing(storage) as scene,
        client_of(dashboard(storage, authorize=lambda _: ADA)) as client,
    ):
        await enqueue_one(storage, queue="it's")
        await client.post("/act/pause_queue?name=images")
        await fill_a_key(storage, "crawl", "hosts", "acme")
        await fill_a_key(storage, "--help", "-hosts", "-acme")
        await storage.config.set_queue("--help", QueueChange(max_workers=4))
        request = EnqueueRequest("mail.send", {}, queue="mail")
        await put_schedule(storage.cron, schedule("-nightly", request, "30 2 * * *"))
        [action] = re.findall(r'href="/audit/(\w+)"', await page(client, "/audit"))
        group = min({*re.findall(r"/errors/gh/(\w+)", await page(client, "/errors"))})
        names = {**scene.jobs, "pod": scene.pod, "action": action, "group": group}
        for path, both in NAMES.items():
            text = await page(client, path.format(**names))
            printed = await printed_by(forge, text)
            shown = set(re.findall(both, text))
            assert shown, path
            assert not {each for each in shown if each not in printed}, (path, printed)
        minute = (await storage.cron.now() - timedelta(minutes=3)).strftime("%Y-%m-%dT%H:%MZ")
        for path in ("/", "/queues", "/pods"):
            await printed_by(forge, await page(client, f"{path}?at={minute}"))
