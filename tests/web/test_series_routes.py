"""Series of the store and of queues over HTTP, what a queue went through, and its clean-up."""

from datetime import timedelta

import httpx
import pytest

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.metrics import Histogram
from forge_jobs.model.queues import QueueChange
from forge_jobs.model.series import FlowSample
from forge_jobs.policy.percentiles import bucket_of
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.support.factories import enqueue_one, new_job
from tests.web.conftest import client_of

pytestmark = pytest.mark.anyio


async def flow(storage: Storage) -> None:
    await storage.config.set_queue("mail", QueueChange(max_workers=2))
    minute = (await storage.cron.now()).replace(second=0, microsecond=0) - timedelta(minutes=3)
    runs = Histogram({bucket_of(2.0): 10})
    sample = FlowSample(
        queue="mail",
        kind="mail.send",
        minute=minute,
        counts={"succeeded": 10},
        delay=runs,
        processing=runs,
        total=runs,
    )
    assert not await storage.jobs.add_flows([sample])


async def test_a_series_is_of_the_store_a_queue_or_a_kind(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    await flow(storage)
    for query in ("", "queue=mail", "queue=mail&kind=mail.send", "over=2h&step=5m"):
        found = (await caller.get(f"/api/v1/series?{query}")).json()
        [step] = found["steps"]
        assert step["run"]["p50"] == pytest.approx(2.0, rel=0.06), query
    assert step["length"] == 300.0
    assert step["counts"] == {} or "succeeded" not in step["counts"]
    of_kind = (await caller.get("/api/v1/series?queue=mail&kind=mail.send")).json()
    assert of_kind["steps"][0]["counts"] == {"succeeded": 10}
    for query, field in (
        ("kind=mail.send", "kind"),
        ("over=0s", "over"),
        ("step=30s", "step"),
        ("over=365d", "step"),
        ("over=9999999d", "over"),
        ("queue=%00", "queue"),
    ):
        wrong = await caller.get(f"/api/v1/series?{query}")
        assert (wrong.status_code, wrong.json()["field"]) == (400, field), query


async def test_the_history_of_a_queue_has_what_operators_did(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    await flow(storage)
    await storage.config.set_queue("other", QueueChange(max_workers=2))
    await caller.post("/api/v1/queues/mail/pause")
    await caller.post("/api/v1/queues/other/pause")
    await caller.patch("/api/v1/queues/mail", json={"max_workers": 9})
    found = (await caller.get("/api/v1/queues/mail/history")).json()
    assert [each["verb"] for each in found["actions"]] == ["set_queue", "pause_queue"]
    assert found["steps"][0]["run"]["p95"] == pytest.approx(2.0, rel=0.06)
    assert (await caller.get("/api/v1/queues/none/history")).status_code == 404
    before = (await caller.get("/api/v1/queues/mail/history?until=2026-01-01T00:00Z")).json()
    assert (before["actions"], before["steps"]) == ([], [])


async def test_a_clean_up_removes_what_ended_well_or_was_cancelled(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    await storage.config.set_queue("mail", QueueChange(max_workers=2))
    await storage.jobs.enqueue([new_job(queue="mail") for _ in range(3)])
    other = await enqueue_one(storage, queue="other")
    await storage.jobs.cancel(JobFilter(queues=("mail", "other")))
    waits = await enqueue_one(storage, queue="mail")
    path = "/api/v1/queues/mail/clean-up"
    assert (await caller.post(path, json={"keep": 3600})).json()["jobs"] == 0
    wrong = await caller.post(path, json={"keep": -1})
    assert (wrong.status_code, wrong.json()["field"]) == (400, "keep")
    page = (await caller.get("/queues/mail", headers={"Accept": "text/html"})).text
    assert "/act/clean_up_queue?name=mail" in page
    done = (await caller.post(path)).json()
    assert (done["jobs"], done["refused"]) == (3, 0)
    left = (await storage.jobs.list(JobFilter(), limit=9)).jobs
    assert {job.id: job.status for job in left} == {
        other: JobStatus.CANCELLED,
        waits: JobStatus.PENDING,
    }
    record = (await caller.get(f"/api/v1/actions/{done['action_id']}")).json()
    assert (record["verb"], record["changed"]) == ("delete_jobs", 3)
    assert (await caller.post("/api/v1/queues/none/clean-up")).status_code == 404
    page = (await caller.get("/queues/mail", headers={"Accept": "text/html"})).text
    assert "clean_up_queue" not in page


async def test_who_sees_one_queue_reads_no_series_of_the_store(sqlite: Storage) -> None:
    await flow(sqlite)
    access = Access(queues=frozenset({"mail"}))
    app = dashboard(sqlite, authorize=lambda _: Actor(name="bob", access=access))
    async with client_of(app) as caller:
        assert (await caller.get("/api/v1/series")).status_code == 403
        assert (await caller.get("/api/v1/series?queue=mail")).status_code == 200
        assert (await caller.get("/api/v1/series?queue=other")).status_code == 404
        assert (await caller.post("/api/v1/queues/mail/clean-up")).status_code == 403
