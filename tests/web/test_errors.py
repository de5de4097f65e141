"""The pages of failures: a group whole, and hostile texts in it as text."""

import re
from html import unescape

import pytest

from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.operating.test_errors import DEAD, fail
from tests.support.waiting import wait_until
from tests.web.conftest import ADA, client_of
from tests.web.hostile import hostile
from tests.web.scene import playing
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio


def groups_of(text: str) -> list[str]:
    return list(dict.fromkeys(map(unescape, re.findall(r'href="(/errors/[^"]+)"', text))))


async def test_a_group_of_failures_has_a_page(storage: Storage) -> None:
    app = dashboard(storage, authorize=lambda _: ADA)
    async with playing(storage), client_of(app) as client:
        listed = ""

        async def three_are_dead() -> str | None:
            # The pod tells of its failures from time to time.
            nonlocal listed
            listed = await page(client, "/errors")
            pages = [await page(client, path) for path in groups_of(listed)]
            found = [text for text in pages if "declined" in text and "Requeue 3 dead" in text]
            return found[0] if found else None

        declined = await wait_until(three_are_dead, description="the group has three dead jobs")
        assert re.search(r"card \d+ declined", declined)
        assert "Traceback" in declined
        assert "0 of 3 jobs succeeded on a retry" in declined
        assert "8f2c" in declined
        [requeue] = re.findall(r'href="(/act/requeue_jobs[^"]+)"', declined)
        assert "Requeue 3 jobs" in await page(client, unescape(requeue))
        answer = await client.get("/api/v1" + groups_of(listed)[0].partition("?")[0])
        assert answer.json()["whole_message"]


async def test_a_reader_sees_no_texts_and_no_button(sqlite: Storage) -> None:
    reader = Actor(name="eve", access=Access())
    app = dashboard(sqlite, authorize=lambda _: reader)
    async with playing(sqlite), client_of(app) as client:
        for path in groups_of(await page(client, "/errors")):
            text = await page(client, path)
            assert "declined" not in text
            assert "/act/" not in text
        await page(client, "/errors/gh/nothing", 404)


@pytest.mark.long
async def test_200_hostile_messages_are_text(sqlite: Storage) -> None:
    app = dashboard(sqlite, authorize=lambda _: ADA)
    async with client_of(app) as client:
        for text in hostile(200):
            plain = text.replace("\0", "")
            await fail(sqlite, "a", plain, (DEAD,))
        for path in ("/errors", "/api/v1/errors?limit=1000"):
            assert (await client.get(path)).status_code == 200
        listed = (await client.get("/api/v1/errors?limit=1000")).json()["groups"]
        assert len(listed) > 50
        for group in listed:
            shown = await page(client, f"/errors/a/{group['id']}")
            assert "<script>alert" not in shown
            assert "<img src=x" not in shown
            answer = await client.get(f"/api/v1/errors/a/{group['id']}")
            assert answer.status_code == 200
