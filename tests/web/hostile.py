"""Hostile texts, and a store with such a text in every field that takes one."""

import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from msgspec import structs

from forge_jobs.errors import Conflict, InvalidInput, RegistrationError
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.handlers.schema import published
from forge_jobs.model.failures import FailureSample
from forge_jobs.model.failures.fingerprints import error_group
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.progress import NewLine, NewProgress, ProgressNote
from forge_jobs.model.queues import RateLimit
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.settings.queues import QueueEdit
from forge_jobs.operating.settings.specs import ScheduleEdit
from forge_jobs.runtime.shared.clean_texts import clean_text
from forge_jobs.storage.protocols import Storage
from tests.support.factories import a_pod, claim_one, error, failed, finish, register

_SEEDS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; drop table jobs; --",
    "{{7*7}}",
    "{% raw %}",
    "${jndi:ldap://x}",
    "\x1b[31mred\x1b[0m",
    "\x9b2J",
    "\x00",
    "\r\nSet-Cookie: a=b",
    "../../../../etc/passwd",
    "%00%0d%0a",
    "\u202eevil",
    "\ufeff",
    "\ud7ff\ue000",
    "\u2028",
    "javascript:alert(1)",
    "&lt;b&gt;",
    "]]>",
    "-->",
    "a" * 5_000,
    "💥" * 50,
    "null",
    "-1",
    "9" * 400,
    "1e999",
    "NaN",
    "[[[[",
    '{"a":',
    "=cmd|' /C calc'!A0",
    "\\u0000",
    'le="+Inf"} 1\n# TYPE x counter',
    "",
    " ",
    ".",
    "..",
    "/",
    "*",
]


def hostile(count: int = 200) -> list[str]:
    """Return the seeds and mixtures of them, always the same."""
    source = random.Random(15)
    mixed = ("".join(source.sample(_SEEDS, 2))[:3_000] for _ in range(count - len(_SEEDS)))
    return [*_SEEDS, *mixed]


async def furnish(storage: Storage, texts: Sequence[str]) -> list[JobId]:
    """Put each text into every field that takes one. Return a job for each."""
    jobs = []
    async with Operator(storage, Actor(name="<b>ada</b>", access=ALL)) as boss:
        for text in texts:
            jobs.append(await _a_job(boss, text))
            with suppress(InvalidInput):
                await boss.set_queue(text, QueueEdit(max_workers=1))
                await boss.pause_queue(text)
            with suppress(InvalidInput, Conflict):
                edit = ScheduleEdit(kind=text, expression="@daily", queue="q", payload={"t": text})
                await boss.add_schedule(text, edit)
            with suppress(InvalidInput):
                await boss.set_limit(text, RateLimit(100, timedelta(days=1)))
            with suppress(InvalidInput):
                await boss.run_jobs_now(JobFilter(ids=(jobs[-1],)), reason=text)
    await _fail(storage, jobs, texts)
    await _publish(storage, texts)
    return jobs


async def _publish(storage: Storage, texts: Sequence[str]) -> None:
    """Let pods have the texts as label and version, and in the description of their kinds."""
    handlers = HandlerRegistry()
    for index, text in enumerate(texts):

        async def run(value: str) -> None: ...

        run.__doc__ = clean_text(text, 500)
        with suppress(InvalidInput, RegistrationError):
            handlers.register(run, kind=f"described.{index}", tags=[text])
    documents = published(handlers)
    assert len(documents) > 0.4 * len(texts)
    await storage.procs.publish_kinds(documents)
    for text in texts[::10]:
        pod = a_pod(label=clean_text(text, 100), version=clean_text(text, 60))
        await storage.procs.register(pod, timedelta(hours=1))


async def _a_job(boss: Operator, text: str) -> JobId:
    """Enqueue a job with the text wherever the text is taken."""
    refused: set[str] = set()
    while True:
        given: dict[str, Any] = {
            "queue": text,
            "tags": [text],
            "metadata": {text: text},
            "unique_key": text,
        }
        options = {name: value for name, value in given.items() if name not in refused}
        kind = "k" if "kind" in refused else text
        payload = {"t": ""} if "payload" in refused else {text: text, "list": [text]}
        try:
            return (await boss.enqueue(EnqueueRequest(kind, payload, **options))).job_id
        except InvalidInput as found:
            name = found.field.partition("[")[0].partition(".")[0]
            name = {"tag": "tags", "unique": "unique_key"}.get(name, name)
            if name in refused:
                raise
            refused.add(name)


async def _fail(storage: Storage, jobs: Sequence[JobId], texts: Sequence[str]) -> None:
    """Run each job once: progress, a line of the log, and a failure have the text."""
    stored = await storage.jobs.get(jobs)
    for queue in {job.queue for job in stored.values()}:
        await storage.config.set_paused(queue, False)
    queues = sorted({job.queue for job in stored.values()})
    kinds = sorted({job.kind for job in stored.values()})
    lease = await register(storage, queues=queues, kinds=kinds, lease_for=timedelta(hours=1))
    text_of = dict(zip(jobs, texts, strict=True))
    now = await storage.cron.now()
    for job in stored.values():
        claimed = await claim_one(storage, lease, queue=job.queue, kinds=kinds)
        # As the runtime does before a store gets words of a handler.
        text = clean_text(text_of[claimed.claim.job_id], 10_000)
        note = ProgressNote(
            claim=claimed.claim,
            attempt=claimed.attempt,
            progress=NewProgress(1, 2, message=text[:500]),
            lines=(NewLine(1, now, 20, text),),
        )
        await storage.jobs.note_progress([note])
        group = error_group(job.kind, "ValueError", text)
        why = structs.replace(error(text), type=text[:100], traceback=text, error_group=group)
        await finish(storage, claimed, failed(timedelta(hours=1), error=why))
        sample = FailureSample(
            queue=claimed.claim.queue, group=group, kind=claimed.kind, type=text[:100],
            message=text[:500], minute=now.replace(second=0, microsecond=0),
            first_at=now, last_at=now, retried=1, jobs=(claimed.claim.job_id,),
        )  # fmt: skip
        await storage.jobs.add_failures([sample])
