"""The page of rate limits: who waits, the size, and what an action without an inverse offers."""

import re
import shlex
from html import unescape

import httpx
import msgspec
import pytest

from forge_jobs.model.processes import MOST_RATES, PodGauges, RateGauge
from forge_jobs.model.queues import RateLimit
from forge_jobs.model.strikes import Effect, StrikeRule
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.support.factories import (
    QUEUE,
    claim,
    claim_one,
    enqueue_one,
    finish,
    new_job,
    rate_limited,
    register,
)
from tests.support.fleets import HOUR
from tests.web.conftest import client_of
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio


async def test_a_limit_says_who_waits_and_has_its_size_changed(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    await storage.config.ensure_rate_limit("api", RateLimit(1, HOUR))
    await storage.config.ensure_rate_limit("smtp", RateLimit(100, 60))
    job_id = await enqueue_one(storage)
    claimed = await claim_one(storage, await register(storage, lease_for=HOUR))
    await finish(storage, claimed, rate_limited(HOUR, rate_limit="api"))

    text = await page(caller, "/limits")
    assert re.findall(r'data-label="who waits">(\w+ job|[^<\w])', text) == ["1 job", "\N{EN DASH}"]
    assert f'data-job="{job_id}"' in text
    assert 'value="1/1h"' in text
    preview = await page(caller, "/act/set_limit?name=api&size=10/1m")
    assert "Change api" in preview
    assert "/act/set_limit" in text
    assert "<h1>Done</h1>" in (await caller.post("/act/set_limit?name=api&size=10/1m")).text
    [api, _] = await storage.config.rate_limits()
    assert (api.limit.capacity, api.limit.period.total_seconds()) == (10, 60)
    [record] = set(re.findall(r'href="(/audit/\w+)"', await page(caller, "/audit")))
    await caller.post(f"/act/undo_action?name={record.removeprefix('/audit/')}")
    [api, _] = await storage.config.rate_limits()
    assert (api.limit.capacity, api.limit.period) == (1, HOUR)


@pytest.mark.parametrize("size", ["", "10", "0/1m", "x/1m", "5/soon", "5/" + "9" * 50 + "d"])
async def test_a_size_that_is_none_is_named(sqlite: Storage, size: str) -> None:
    await sqlite.config.ensure_rate_limit("api", RateLimit(1, HOUR))
    boss = Actor(name="ada", access=Access(actions=frozenset({"set_limit"})))
    async with client_of(dashboard(sqlite, authorize=lambda _: boss)) as client:
        answer = await client.get(
            f"/act/set_limit?name=api&size={size}", headers={"Accept": "text/html"}
        )
        assert answer.status_code == 400
        text = await page(client, "/limits")
    assert "/act/set_limit" in text
    assert "/act/drain_limit" not in text
    assert "/act/delete_limit" not in text


async def test_who_may_not_change_limits_is_offered_nothing(sqlite: Storage) -> None:
    await sqlite.config.ensure_rate_limit("api", RateLimit(1, HOUR))
    eve = Actor(name="eve", access=Access())
    async with client_of(dashboard(sqlite, authorize=lambda _: eve)) as client:
        assert "/act/" not in await page(client, "/limits")
        await page(client, "/act/set_limit?name=api&size=2/1m", 403)


async def test_a_delete_offers_a_copy_first(sqlite: Storage) -> None:
    ids = [await enqueue_one(sqlite) for _ in range(2)]
    boss = Actor(name="ada", access=Access(actions=frozenset({"*"})))
    async with client_of(dashboard(sqlite, authorize=lambda _: boss)) as client:
        for given, where in (
            (f"id={ids[0]}&id={ids[1]}", f"id:{ids[0]},{ids[1]}"),
            ("q=status:pending", "status:pending"),
        ):
            text = await page(client, f"/act/delete_jobs?{given}")
            [line] = re.findall(r'class="copyable">([^<]+)<', text)
            assert shlex.split(unescape(line)) == [
                "forge-jobs", "export", "--where", where, "-o", "jobs.jsonl",
            ]  # fmt: skip
            assert 'class="copyable"' not in await page(client, f"/act/cancel_jobs?{given}")


async def test_the_audit_is_exported_as_a_document(caller: httpx.AsyncClient) -> None:
    await caller.post("/act/pause_queue?name=mail")
    await caller.patch("/api/v1/queues/mail", json={"max_workers": 3})
    [href] = re.findall(r'href="([^"]+)" download="actions.json"', await page(caller, "/audit"))
    answer = await caller.get(unescape(href))
    verbs = [each["verb"] for each in msgspec.json.decode(answer.content)["actions"]]
    assert verbs == ["set_queue"]


async def test_a_strike_is_shown_lifted_and_set_again(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    rule = StrikeRule(kind="mail", where='to == "<eve>"', reason="ticket 7")
    await storage.config.put_strike("no mail", rule, "bob")
    text = unescape(await page(caller, "/limits"))
    for shown in ("<b>no mail</b>", 'to == "<eve>"', "ticket 7", ">held<", ">bob<"):
        assert shown in text, shown
    assert "Lift no mail" in await page(caller, "/act/lift_strike?name=no+mail")
    assert "<h1>Done</h1>" in (await caller.post("/act/lift_strike?name=no+mail")).text
    assert await storage.config.strikes() == []
    [record] = set(re.findall(r'href="(/audit/\w+)"', await page(caller, "/audit")))
    await caller.post(f"/act/undo_action?name={record.removeprefix('/audit/')}")
    [strike] = await storage.config.strikes()
    assert (strike.rule, strike.by) == (rule, "bob")


async def test_a_strike_is_set_by_the_form_after_a_preview(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    jobs = [new_job(kind="pay", payload=f'{{"amount":{amount}}}') for amount in (1, 2, 13)]
    await storage.jobs.enqueue([*jobs, new_job(kind="mail")])
    text = await page(caller, "/limits")
    assert "No strike: every job may run." in text
    for name in ("name", "kind", "where", "effect", "reason"):
        assert f'name="{name}"' in text
    given = "name=big&kind=pay&where=amount+%3E%3D+2&effect=cancel&reason=fraud"
    text = unescape(await page(caller, f"/act/add_strike?{given}"))
    assert "<h1>Set strike big</h1>" in text
    assert "Jobs of kind pay and with amount >= 2 are cancelled." in text
    assert "2 of the 3 waiting jobs are meant now, and will be cancelled before their run." in text
    assert 'class="primary danger"' in text
    assert await storage.config.strikes() == []
    assert "<h1>Done</h1>" in (await caller.post(f"/act/add_strike?{given}")).text
    [strike] = await storage.config.strikes()
    expected = StrikeRule(kind="pay", where="amount >= 2", effect=Effect.CANCEL, reason="fraud")
    assert strike.rule == expected

    text = unescape(await page(caller, "/act/add_strike?name=big&kind=pay&where=&effect=hold"))
    assert "Jobs of kind pay are held." in text
    assert f"This replaces the strike of that name: pay and amount >= 2, by {strike.by}." in text
    assert "3 waiting jobs are meant now, and will be held before their run." in text
    assert 'class="primary danger"' not in text
    [record] = set(re.findall(r'href="(/audit/\w+)"', await page(caller, "/audit")))
    await caller.post(f"/act/undo_action?name={record.removeprefix('/audit/')}")
    assert await storage.config.strikes() == []


async def test_a_preview_counts_a_thousand_and_says_more(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    for _ in range(6):
        await storage.jobs.enqueue([new_job(kind="pay", payload='{"n":1}') for _ in range(200)])
    text = await page(caller, "/act/add_strike?name=s&kind=pay")
    assert "1,000+ waiting jobs are meant now" in text
    text = await page(caller, "/act/add_strike?name=s&where=n+%3D%3D+1")
    assert "1,000 of the newest 1,000 waiting jobs are meant now" in text
    assert "Older ones were not looked at" in text


@pytest.mark.parametrize(
    "given", ["kind=k", "name=s", "name=s&where=amount", "name=s&kind=k&effect=drop"]
)
async def test_a_strike_that_is_none_is_named(sqlite: Storage, given: str) -> None:
    boss = Actor(name="ada", access=Access(actions=frozenset({"add_strike"})))
    async with client_of(dashboard(sqlite, authorize=lambda _: boss)) as client:
        await page(client, f"/act/add_strike?{given}", 400)
        text = await page(client, "/limits")
    assert "/act/add_strike" in text
    assert "/act/lift_strike" not in text


async def test_who_sees_no_payloads_is_told_no_count_by_payload(sqlite: Storage) -> None:
    await sqlite.jobs.enqueue([new_job(kind="pay", payload='{"card":4711}')])
    eve = Actor(name="eve", access=Access(payloads=False, actions=frozenset({"add_strike"})))
    async with client_of(dashboard(sqlite, authorize=lambda _: eve)) as client:
        text = await page(client, "/act/add_strike?name=s&where=card+%3D%3D+4711")
        assert "not shown to who may not see their payloads" in text
        assert "meant now" not in text
        refused = await client.get("/api/v1/strikes/preview?where=card+%3D%3D+4711")
        assert refused.status_code == 403
        counted = (await client.get("/api/v1/strikes/preview?kind=pay")).json()
    assert counted["count"] == 1


async def test_who_sees_no_payloads_sees_no_value_of_a_strike(sqlite: Storage) -> None:
    await sqlite.config.put_strike("s", StrikeRule(where="card == 4711"), "bob")
    eve = Actor(name="eve", access=Access(payloads=False))
    async with client_of(dashboard(sqlite, authorize=lambda _: eve)) as client:
        text = await page(client, "/limits")
    assert "<b>s</b>" in text
    assert "4711" not in text
    assert "/act/" not in text


async def test_of_many_limits_those_with_waiting_jobs_are_shown_first_and_others_found(
    sqlite: Storage,
) -> None:
    await sqlite.config.ensure_limits(QUEUE, {f"hosts-{n:04}": 1 for n in range(3_000)})
    for number in range(120):
        await sqlite.config.ensure_rate_limit(f"api-{number:03}", RateLimit(5, 60))
    await sqlite.config.take_tokens("api-077", 5)
    lease = await register(sqlite, lease_for=HOUR)
    await sqlite.jobs.enqueue([new_job(limit_name="hosts-2222", limit_key="a") for _ in range(2)])
    await claim(sqlite, lease, limit=2)
    boss = Actor(name="ada", access=Access(actions=frozenset({"*"})))
    async with client_of(dashboard(sqlite, authorize=lambda _: boss)) as client:
        answer = await client.get("/limits", headers={"Accept": "text/html"})
        assert len(answer.content) < 120_000
        text = answer.text
        hosts, rates = r'href="/limits/\w+/(hosts-\d+)"', r"<b>(api-\d+)</b>"
        assert re.findall(hosts, text)[:2] == ["hosts-2222", "hosts-0000"]
        assert re.findall(rates, text)[:2] == ["api-077", "api-000"]
        assert "1 to 50 of 3,000" in text
        [further] = re.findall(r'rel="next" href="([^"]+)"', text)
        text = await page(client, unescape(further))
        assert re.findall(hosts, text)[0] == "hosts-0049"
        assert "51 to 100 of 3,000" in text

        text = await page(client, "/limits?find=HOSTS-29")
        assert re.findall(hosts, text)[::99] == ["hosts-2900"]
        assert (len(re.findall(hosts, text)), re.findall(rates, text)) == (50, [])
        assert "find=HOSTS-29" in text
        assert "No name has this text" in await page(client, "/limits?find=nothing")
        text = await page(client, "/limits?page=60")
        assert re.findall(hosts, text)[-1] == "hosts-2999"
        assert "No more than 120" in text
        assert 'rel="next"' not in text
        for odd in ("0", "-1", "x", "99999", "9" * 50):
            assert "<h1>120 rate limits" in await page(client, f"/limits?page={odd}")


async def test_a_limit_says_when_the_next_token_comes(sqlite: Storage) -> None:
    await sqlite.config.ensure_rate_limit("full", RateLimit(5, 60))
    await sqlite.config.ensure_rate_limit("used", RateLimit(1, HOUR))
    await sqlite.config.take_tokens("used", 1)
    eve = Actor(name="eve", access=Access())
    async with client_of(dashboard(sqlite, authorize=lambda _: eve)) as client:
        text = await page(client, "/limits")
    said = re.findall(r'data-label="next token">([^<]+)<', text)
    assert [each.split()[0] for each in said] == ["in", "\N{EN DASH}"]


async def test_a_limit_says_what_was_taken_and_refused(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    for scope in ("api", "smtp"):
        await storage.config.ensure_rate_limit(scope, RateLimit(5, 60))
    lease = await register(storage, lease_for=HOUR)
    minute = (await storage.cron.now()).replace(second=0, microsecond=0)
    told = RateGauge("api", taken=1_234, refused=56)
    await storage.procs.record_gauges(lease, minute, PodGauges(rates=(told,)))
    text = await page(caller, "/limits")
    said = re.findall(r'data-label="(?:taken|refused) a minute">([^<]+)<', text)
    assert said == ["1,234", "56", "0", "0"]
    [api, smtp] = (await caller.get("/api/v1/limits")).json()["rate_limits"]
    assert (api["taken_a_minute"], api["refused_a_minute"]) == (1_234, 56)
    assert (smtp["taken_a_minute"], smtp["refused_a_minute"]) == (0, 0)

    others = [RateGauge(f"limit {number}", taken=1) for number in range(MOST_RATES - 1)]
    await storage.procs.record_gauges(lease, minute, PodGauges(rates=(told, *others)))
    text = await page(caller, "/limits")
    said = re.findall(r'data-label="(?:taken|refused) a minute">([^<]+)<', text)
    assert said == ["1,234", "56", "\N{EN DASH}", "\N{EN DASH}"]
