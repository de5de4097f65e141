"""Programs set, list and lift strikes by their client, with the records that people leave."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import JobClient, SyncJobClient, open_storage
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.jobs import Hold, JobStatus
from forge_jobs.model.strikes import Effect
from forge_jobs.storage.protocols import Storage
from tests.runtime.test_strikes import Shop, an_operator, stored
from tests.support.runtimes import a_runtime, ended

pytestmark = pytest.mark.anyio


async def test_a_client_strikes_lists_and_lifts(storage: Storage) -> None:
    shop = Shop()
    async with JobClient(storage, shop.handlers) as client:
        before = await client.enqueue(shop.pay.request(1))
        assert await client.strikes() == []
        strike = await client.strike("no mail", kind="mail", reason="the provider is down")
        assert (strike.rule.kind, strike.rule.effect, strike.by) == ("mail", Effect.HOLD, "code")
        fraud = await client.strike("fraud", where="amount == 13", effect="cancel", by="ada")
        assert await client.strikes() == [fraud, strike]
        assert (fraud.rule.effect, fraud.by) == (Effect.CANCEL, "ada")
        held = await client.enqueue(shop.mail.request("a"))
        ended_at_once = await client.enqueue(shop.pay.request(13))
        assert (held.struck_by, ended_at_once.struck_by) == ("no mail", "fraud")
        assert (await stored(storage, held.job_id)).hold is Hold.STRUCK
        lifted = await client.lift_strike("no mail")
        assert (lifted.name, lifted.released) == ("no mail", 1)
        fine = await client.enqueue(shop.mail.request("b"))
        assert fine.struck_by is None
        with pytest.raises(NotFound, match="there is no strike 'no mail'"):
            await client.lift_strike("no mail")
    async with a_runtime(storage, shop.handlers).start():
        for job_id in (before.job_id, held.job_id, fine.job_id):
            assert (await ended(storage, job_id)).status is JobStatus.DONE
    assert (await stored(storage, ended_at_once.job_id)).status is JobStatus.CANCELLED


async def test_each_change_by_a_client_is_in_the_audit_and_can_be_undone(
    storage: Storage,
) -> None:
    async with JobClient(storage) as client:
        await client.strike("no mail", kind="mail", by="deploy 7")
        await client.lift_strike("no mail")
    async with an_operator(storage) as ada:
        lifted, added = (await ada.list_actions()).actions
        told = [(each.verb, each.target, each.actor, each.surface) for each in (added, lifted)]
        assert told == [
            ("add_strike", "no mail", "deploy 7", "code"),
            ("lift_strike", "no mail", "code", "code"),
        ]
        assert (added.before, lifted.after) == ("", "")
        assert added.after == lifted.before != ""
        await ada.undo_action(lifted.id)
        [strike] = (await ada.list_strikes()).strikes
        assert (strike.name, strike.rule.kind, strike.by) == ("no mail", "mail", "deploy 7")


async def test_a_wrong_value_is_named_and_nothing_is_stored(storage: Storage) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "kind"),
        ({"kind": "mail", "effect": "drop"}, "effect"),
        ({"where": "amount"}, "where"),
        ({"kind": "mail", "by": ""}, "by"),
        ({"kind": "mail", "by": "x" * 101}, "by"),
        ({"name": "", "kind": "mail"}, "name"),
    ]
    async with JobClient(storage) as client:
        for given, named in wrong:
            with pytest.raises(InvalidInput) as refused:
                await client.strike(**{"name": "s"} | given)
            assert refused.value.field == named
        assert await client.strikes() == []
    async with an_operator(storage) as ada:
        assert (await ada.list_actions()).actions == ()


def test_a_blocking_client_has_the_same_calls(tmp_path: Path) -> None:
    shop, url = Shop(), f"sqlite:///{tmp_path}/app.db"
    with SyncJobClient(lambda: open_storage(url), shop.handlers) as client:
        strike = client.strike("no mail", kind="mail", where='to == "a"', reason="why", by="ada")
        assert client.strikes() == [strike]
        held, fine = client.enqueue_many([shop.mail.request("a"), shop.mail.request("b")])
        assert (held.struck_by, fine.struck_by) == ("no mail", None)
        assert client.lift_strike("no mail", by="ada").released == 1
        assert client.strikes() == []

    async def actors() -> list[str]:
        storage = await open_storage(url)
        async with an_operator(storage) as ada:
            found = [each.actor for each in (await ada.list_actions()).actions]
        await storage.aclose()
        return found

    assert asyncio.run(actors()) == ["ada", "ada"]
