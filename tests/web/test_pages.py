"""Pages on every store: served, escaped, and with the actions that can be done."""

import re
from html import unescape

import httpx
import pytest

from forge_jobs import EnqueueRequest
from forge_jobs.clients.client import JobClient
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.web.conftest import ADA, client_of
from tests.web.hostile import hostile
from tests.web.scene import playing

pytestmark = pytest.mark.anyio

PAGES = ("/", "/jobs", "/errors", "/queues", "/pods", "/cron", "/limits", "/store", "/audit")


async def page(client: httpx.AsyncClient, path: str, status: int = 200) -> str:
    """Return the text of a page, which must be one that the policy of the pages allows."""
    answer = await client.get(path, headers={"Accept": "text/html"})
    assert answer.status_code == status, (path, answer.text)
    assert answer.headers["Content-Type"].startswith("text/html")
    text = answer.text
    for forbidden in (" style=", "<style", "<script>", " onclick=", 'href="javascript:'):
        assert forbidden not in text, path
    return text


async def test_pages_of_an_empty_store(caller: httpx.AsyncClient) -> None:
    for path in PAGES:
        assert "<h1>" in await page(caller, path)


@pytest.mark.long
async def test_pages_of_a_store_at_work(storage: Storage) -> None:
    app = dashboard(storage, authorize=lambda _: ADA)
    async with playing(storage) as scene, client_of(app) as client:
        for path in PAGES:
            await page(client, path)
        for status, job_id in scene.jobs.items():
            assert job_id in await page(client, f"/jobs/{job_id}"), status
        dead = await page(client, f"/jobs/{scene.jobs['dead']}")
        assert "card 3 declined" in dead
        assert "requeue_jobs" in dead
        assert "cancel_jobs" not in dead
        running = await page(client, f"/jobs/{scene.jobs['running']}")
        assert "62 %" in running
        assert "cropping /photos" in running
        assert "9223372036854775808" in await page(client, f"/jobs/{scene.jobs['scheduled']}")
        assert "paused" in await page(client, "/queues/mail")
        assert "Europe/Berlin" in await page(client, "/cron/nightly")
        pods = await page(client, "/pods")
        [pod] = set(re.findall(r'href="(/pods/[^"]+)"', pods))
        assert "image.crop" in await page(client, pod)
        listed = await page(client, "/jobs?q=queue:gh+status:dead")
        assert listed.count('name="id"') == 3
        assert "issue … has no title" in await page(client, "/errors")
        await _follow_links(client)


async def _follow_links(client: httpx.AsyncClient) -> None:
    """Follow every link from every page: none leads nowhere."""
    seen: set[str] = set()
    ahead = set(PAGES)
    while ahead:
        path = ahead.pop()
        seen.add(path)
        answer = await client.get(path)
        assert answer.status_code == 200, path
        if "html" in answer.headers["Content-Type"] and not path.startswith("/act/"):
            found = {
                unescape(each) for each in re.findall(r'(?:href|src)="(/[^"#]*)"', answer.text)
            }
            ahead |= found - seen
    assert len(seen) > 40


async def test_a_setting_is_previewed_then_changed(storage: Storage) -> None:
    app = dashboard(storage, authorize=lambda _: ADA)
    async with playing(storage), client_of(app) as client:
        await client.post("/act/resume_queue?name=mail")
        assert "no live pod" in await page(client, "/queues/mail")
        await client.post("/act/set_queue?name=mail&max_workers=9")
        assert 'value="9"' in await page(client, "/queues/mail")
        await client.post("/act/set_queue?name=mail&objective=95+%25+within+30+s")
        assert 'value="95% within 30s"' in await page(client, "/queues/mail")
        assert "Budget left" in await page(client, "/queues/mail")
        refused = await client.post("/act/set_queue?name=mail&objective=soon")
        assert "give one like 95% within 30s" in refused.text
        failed = await client.post("/act/set_schedule?name=nightly&expression=61+*+*+*+*")
        assert "Nothing was changed" in failed.text


async def test_an_action_that_would_be_refused_is_not_offered(sqlite: Storage) -> None:
    reader = Actor(name="eve", access=Access())
    app = dashboard(sqlite, authorize=lambda _: reader)
    async with playing(sqlite) as scene, client_of(app) as client:
        for path in (*PAGES, f"/jobs/{scene.jobs['dead']}", "/queues/mail", "/cron/nightly"):
            assert "/act/" not in await page(client, path), path
        assert "9223372036854775808" not in await page(client, f"/jobs/{scene.jobs['scheduled']}")
        answer = await client.post(f"/act/delete_jobs?id={scene.jobs['dead']}")
        assert answer.status_code == 403


async def test_a_wrong_filter_is_named_on_the_page(caller: httpx.AsyncClient) -> None:
    text = await page(caller, "/jobs?q=satus:dead")
    assert "satus" in text
    assert "status" in text


async def test_errors_are_pages_for_people(caller: httpx.AsyncClient) -> None:
    for path in ("/nowhere", "/queues/none", "/cron/none", "/pods/none"):
        assert "<h1>Not found</h1>" in await page(caller, path, 404)


@pytest.mark.long
async def test_hostile_texts_are_text_on_every_page(sqlite: Storage) -> None:
    app = dashboard(sqlite, authorize=lambda _: ADA)
    async with JobClient(sqlite) as jobs, client_of(app) as client:
        for text in hostile(80):
            plain = text.replace("\0", "")
            request = EnqueueRequest(
                "a", {"x": plain}, queue="a", metadata={"x": plain}, tags=["a"]
            )
            outcome = await jobs.enqueue(request)
            shown = await page(client, f"/jobs/{outcome.job_id}")
            assert "<script>alert" not in shown
            assert "<img src=x" not in shown
            for path in ("/jobs", "/act/cancel_jobs"):
                answer = await client.get(path, params={"q": text}, headers={"Accept": "text/html"})
                assert answer.status_code in (200, 400), (path, text)
                assert "<script>alert" not in answer.text
                assert "<img src=x" not in answer.text


async def test_pages_below_a_prefix_link_below_the_prefix(sqlite: Storage) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    inner = dashboard(sqlite, authorize=lambda _: ADA)
    host = Starlette(routes=[Mount("/admin/jobs", inner)])
    async with client_of(host) as client:
        text = await page(client, "/admin/jobs/queues")
        links = re.findall(r'(?:href|src|action)="(/[^"]*)"', text)
        assert links
        assert all(link.startswith("/admin/jobs/") for link in links)
        [style] = [link for link in links if "app.css" in link]
        answer = await client.get(unescape(style))
        assert "immutable" in answer.headers["Cache-Control"]
