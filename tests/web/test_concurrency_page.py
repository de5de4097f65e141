"""The pages of limits of concurrency: full keys, who holds one, and the number is changed."""

import re
from datetime import timedelta

import httpx
import pytest

from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.support.factories import QUEUE, claim, new_job, register
from tests.web.conftest import client_of
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio

ODD = 'a/b?c="d"&<e>'


async def fill(storage: Storage, name: str, key: str, count: int) -> list[str]:
    jobs = [new_job(limit_name=name, limit_key=key) for _ in range(count)]
    await storage.jobs.enqueue(jobs)
    return [job.id for job in jobs]


async def test_a_full_key_says_who_holds_it_and_who_waits(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    await storage.config.ensure_limits(QUEUE, {"hosts": 1, "whole": 1})
    lease = await register(storage, lease_for=timedelta(hours=1))
    first, second, third = await fill(storage, "hosts", ODD, 3)
    await fill(storage, "hosts", "has room", 1)
    await fill(storage, "whole", "", 2)
    await claim(storage, lease, limit=20)

    listed = await page(caller, "/limits")
    assert f'href="/limits/{QUEUE}/hosts"' in listed
    # Of hosts two keys run and two jobs wait, and of whole one each.
    numbers = r'data-label="(?:running|waiting|full keys)">([^<]+)<'
    assert re.findall(numbers, listed) == ["2", "2", "2", "1", "1", "1"]
    [hosts, whole] = (await caller.get("/api/v1/concurrency")).json()["limits"]
    assert (hosts["running"], hosts["waiting"], hosts["full"]) == (2, 2, 2)
    assert [each["key"] for each in hosts["full_keys"]] == [ODD]
    assert [each["key"] for each in whole["full_keys"]] == [""]
    text = await page(caller, f"/limits/{QUEUE}/hosts")
    assert "<h1>hosts: jobs wait at 1 key</h1>" in text
    assert re.findall(r'data-label="(?:running|waiting)">([^<]+)<', text) == ["1 of 1", "2"]
    [address] = re.findall(rf'href="(/limits/{QUEUE}/hosts\?key[^"]+)"', text)
    held = await page(caller, address)
    assert "1 of 1 run, 2 wait" in held
    assert re.findall(r'title="(\w{26})"', held) == [first, second, third]
    assert "held ahead" in held

    [address] = re.findall(
        rf'href="(/limits/{QUEUE}/whole\?key=)"', await page(caller, f"/limits/{QUEUE}/whole")
    )
    assert "1 of 1 run, 1 wait" in await page(caller, address)
    await page(caller, f"/limits/{QUEUE}/unknown", 404)


async def test_as_many_jobs_of_a_key_are_read_as_the_bound_says(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    await storage.config.ensure_limits(QUEUE, {"hosts": 1})
    path = f"/api/v1/concurrency/{QUEUE}/hosts?key=a&limit="
    lease = await register(storage, lease_for=timedelta(hours=1))
    await fill(storage, "hosts", "a", 2)
    await claim(storage, lease, limit=5)
    assert len((await caller.get(f"{path}500")).json()["waiting"]) == 1
    for wrong in (0, 501):
        refused = await caller.get(f"{path}{wrong}")
        assert (refused.status_code, refused.json()["field"]) == (400, "limit")
        assert "give 1 to 500" in refused.text


async def test_keys_are_shown_in_pages(sqlite: Storage) -> None:
    await sqlite.config.ensure_limits(QUEUE, {"hosts": 1})
    lease = await register(sqlite, lease_for=timedelta(hours=1))
    for number in range(60):
        await fill(sqlite, "hosts", f"host {number:02}", 2)
    await claim(sqlite, lease, limit=100)
    boss = Actor(name="eve", access=Access())
    async with client_of(dashboard(sqlite, authorize=lambda _: boss)) as client:
        text = await page(client, f"/limits/{QUEUE}/hosts")
        [more] = re.findall(r'href="([^"]+)">More keys', text)
        rest = await page(client, more)
    shown = [re.findall(r">(host \d\d)</a>", each) for each in (text, rest)]
    assert [len(each) for each in shown] == [50, 10]
    assert "More keys" not in rest
    assert "/act/" not in text


async def test_the_number_is_changed_and_the_change_taken_back(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    await storage.config.ensure_limits(QUEUE, {"hosts": 1})
    assert 'value="1"' in await page(caller, f"/limits/{QUEUE}/hosts")
    act = f"/act/set_concurrency?queue={QUEUE}&name=hosts&at_most=4"
    preview = await page(caller, act)
    assert f"Change hosts of {QUEUE}, at most 4" in preview
    assert f"forge-jobs limits set-concurrency {QUEUE} hosts 4" in preview
    assert "<h1>Done</h1>" in (await caller.post(act)).text
    [state] = await storage.config.limits()
    assert (state.at_most, state.overridden) == (4, True)
    [record] = set(re.findall(r'href="(/audit/\w+)"', await page(caller, "/audit")))
    await caller.post(f"/act/undo_action?name={record.removeprefix('/audit/')}")
    [state] = await storage.config.limits()
    assert state.at_most == 1

    for wrong in ("0", "many", "", "99999999999"):
        await page(caller, f"/act/set_concurrency?queue={QUEUE}&name=hosts&at_most={wrong}", 400)
    assert await storage.config.limits() == [state]


async def test_a_share_is_given_and_taken_away(storage: Storage, caller: httpx.AsyncClient) -> None:
    await storage.config.ensure_limits(QUEUE, {"hosts": 2})
    assert 'name="share" value="0"' in await page(caller, f"/limits/{QUEUE}/hosts")
    act = f"/act/set_concurrency?queue={QUEUE}&name=hosts&at_most=4&share="
    preview = await page(caller, f"{act}3")
    assert f"forge-jobs limits set-concurrency {QUEUE} hosts 4 --share 3" in preview
    assert "share=3" in preview
    assert "<h1>Done</h1>" in (await caller.post(f"{act}3")).text
    [state] = await storage.config.limits()
    assert (state.at_most, state.share) == (4, 3)
    assert 'name="share" value="3"' in await page(caller, f"/limits/{QUEUE}/hosts")
    kept = f"/act/set_concurrency?queue={QUEUE}&name=hosts&at_most=5"
    assert "<h1>Done</h1>" in (await caller.post(kept)).text
    [state] = await storage.config.limits()
    assert (state.at_most, state.share) == (5, 3)
    assert "<h1>Done</h1>" in (await caller.post(f"{act}0")).text
    [state] = await storage.config.limits()
    assert (state.at_most, state.share) == (4, None)
    for wrong in ("-1", "many", "1.5", "99999999999"):
        await page(caller, f"{act}{wrong}", 400)
    assert await storage.config.limits() == [state]
