"""The jobs before and after a job: a graph with links, and the table behind the graph."""

import re

import httpx
import pytest

from forge_jobs.errors import PartlyUnavailable
from forge_jobs.model.jobs import After
from forge_jobs.operating.access import Access, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage
from forge_jobs.web.application import dashboard
from forge_jobs.web.pages.job.family import DRAWN, LISTED
from tests.support.factories import enqueue_one, new_job, only
from tests.web.conftest import client_of

pytestmark = pytest.mark.anyio

_HTML = {"Accept": "text/html"}


async def shown(caller: httpx.AsyncClient, job_id: str) -> str:
    answer = await caller.get(f"/jobs/{job_id}", headers=_HTML)
    assert answer.status_code == 200
    return answer.text


def graph_of(page: str) -> str:
    found = re.search(r'<div class="family">(.*?)</div>', page, re.DOTALL)
    assert found is not None
    return found[1]


async def test_a_family_is_a_graph_with_links_and_a_table(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    parent = await enqueue_one(storage, kind="first.step")
    gone = await enqueue_one(storage, kind="gone.step")
    job = await enqueue_one(storage, after=(After(parent, "hold"), After(gone, "continue")))
    child = await enqueue_one(storage, queue="other", kind="<b>last</b>", after=(After(job),))
    await storage.jobs.delete(only(gone))
    page = await shown(caller, job)
    graph = graph_of(page)
    assert 'aria-label="2 jobs before this job and 1 job after"' in graph
    assert re.findall(r'href="/jobs/(\w+)"', graph) == [parent, child]
    assert ">first.step<" in graph
    assert "no longer stored" in graph
    assert "&lt;b&gt;last&lt;/b&gt;" in graph
    assert "blocked in other" in graph
    assert graph.count("<path") == 3
    table = page[page.index("Show as table") :]
    for text in ("has to end first", "waits for this job", gone, "hold", "continue"):
        assert text in table
    assert 'class="family"' not in await shown(caller, await enqueue_one(storage))


async def test_a_large_family_is_drawn_in_part_and_listed_further(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    parent = new_job()
    children = [new_job(after=(After(parent.id),)) for _ in range(LISTED + 20)]
    await storage.jobs.enqueue([parent, *children])
    page = await shown(caller, parent.id)
    graph = graph_of(page)
    assert graph.count("<a href") == graph.count("<path") == DRAWN
    assert f"{LISTED - DRAWN}+ more" in graph
    assert f"{LISTED}+ jobs after" in graph
    assert page.count('data-label="on failure"') == LISTED
    assert f"forge-jobs jobs kin {parent.id} --limit 10000" in page
    assert len(page) < 120_000


async def test_a_page_is_there_although_relatives_do_not_answer(
    sqlite: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await enqueue_one(sqlite)
    job = await enqueue_one(sqlite, after=(After(parent),))

    async def silent(*_: object, **__: object) -> None:
        raise PartlyUnavailable("a server does not answer", {}, {job})

    monkeypatch.setattr(Operator, "job_kin", silent)
    actor = Actor(name="ada", access=Access(payloads=True))
    async with client_of(dashboard(sqlite, authorize=lambda _: actor)) as client:
        page = await shown(client, job)
    assert "before and after does not answer" in page
    assert 'class="family"' not in page
