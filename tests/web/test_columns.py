"""The columns of the list of jobs: chosen on the page, kept in the address."""

import re
from html import unescape

import httpx
import pytest

from forge_jobs.storage.protocols import Storage
from tests.support.factories import new_job
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio


def heads(text: str) -> list[str]:
    return re.findall(r"<th[^>]*>(\w+)</th>", text)


async def test_columns_are_chosen_and_stay_over_filters_and_pages(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    await storage.jobs.enqueue(
        [new_job(queue="mail", tags=("eu", "vip"), priority=-3) for _ in range(51)]
    )
    usual = ["Job", "Kind", "Queue", "Status", "Attempt", "Since", "Error"]
    assert heads(await page(caller, "/jobs")) == usual
    # As the form sends them, and as one writes them by hand.
    for path in (
        "/jobs?columns=tags&columns=kind&columns=priority",
        "/jobs?columns=tags,kind,priority",
    ):
        text = unescape(await page(caller, path))
        assert heads(text) == ["Job", "Kind", "Priority", "Tags"]
        assert "eu, vip" in text
        assert 'name="columns" value="kind,priority,tags"' in text
        assert 'value="tags" checked' in text
        assert 'value="queue" checked' not in text
        older = re.search(r'rel="next" href="([^"]+)"', text)
        assert older
        assert heads(await page(caller, older[1])) == ["Job", "Kind", "Priority", "Tags"]
    names = re.findall(r'type="checkbox" name="columns" value="(\w+)"', text)
    every = await page(caller, f"/jobs?columns={','.join(names)}")
    assert len(heads(every)) == 1 + len(names)


async def test_an_unknown_column_is_named(storage: Storage, caller: httpx.AsyncClient) -> None:
    await storage.jobs.enqueue([new_job(queue="mail")])
    text = unescape(await page(caller, "/jobs?columns=kinds"))
    assert "<b>columns</b> has 'kinds'" in text
