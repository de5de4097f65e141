"""A preview of a strike counts the waiting jobs that are meant, and is no way around a right."""

import pytest

from forge_jobs import EnqueueRequest, JobClient
from forge_jobs.errors import Forbidden, InvalidInput
from forge_jobs.model.filters import JobFilter
from forge_jobs.operating.access import ALL, Access, Actor
from forge_jobs.operating.jobs.strikes import StrikePreview
from forge_jobs.operating.operator import Operator
from forge_jobs.privacy.encryption import Encryption
from forge_jobs.storage.protocols import Storage
from tests.runtime.test_strikes import Shop

pytestmark = pytest.mark.anyio

ADA = Actor(name="ada", access=ALL)


async def test_jobs_that_wait_for_time_or_others_count_and_ended_ones_do_not(
    sqlite_storage: Storage,
) -> None:
    storage = sqlite_storage
    pay = EnqueueRequest("pay", {"amount": 7}, queue="q")
    async with Operator(storage, ADA) as ada, JobClient(storage) as client:
        first = await client.enqueue(pay)
        await client.enqueue(pay.options(after=[first.job_id]))
        await client.enqueue(pay.options(delay=3600))
        gone = await client.enqueue(pay)
        await client.cancel(JobFilter(ids=(gone.job_id,)))
        await client.enqueue(EnqueueRequest("mail", {"amount": 7}, queue="q"))
        three = StrikePreview(count=3, looked_at=3, more=False)
        assert await ada.preview_strike("pay") == three
        assert await ada.preview_strike("pay", "amount == 7") == three
        assert (await ada.preview_strike(where="amount == 7")).count == 4
        assert (await ada.preview_strike("pay", "amount > 7")).count == 0
        with pytest.raises(InvalidInput, match="kind: is missing"):
            await ada.preview_strike()


async def test_an_encrypted_payload_is_unknown_without_the_key(sqlite_storage: Storage) -> None:
    shop = Shop(Encryption.new_key())
    async with JobClient(sqlite_storage, shop.handlers) as client:
        await client.enqueue_many([shop.pay.request(amount) for amount in (7, 13)])
    async with Operator(sqlite_storage, ADA) as ada:
        found = await ada.preview_strike("pay", "amount == 7")
        assert found == StrikePreview(count=0, looked_at=2, more=False, unknown=2)
    async with Operator(sqlite_storage, ADA, handlers=shop.handlers) as ada:
        found = await ada.preview_strike("pay", "amount == 7")
        assert found == StrikePreview(count=1, looked_at=2, more=False)


async def test_a_condition_on_a_hidden_field_needs_the_right_to_reveal(
    sqlite_storage: Storage,
) -> None:
    eve = Actor(name="eve", access=Access(payloads=True, actions=frozenset({"*"})))
    async with Operator(sqlite_storage, eve, redact=("card.number",)) as operator:
        assert (await operator.preview_strike(where="card.bank == 1")).count == 0
        assert (await operator.preview_strike(where="card.bank between [1, 2]")).count == 0
        for where in (
            "card.number == 4711",
            "card.number.first > 4711",
            'card == {"number": 4711}',
            'card in [1, {"number": 4711}]',
            "cards != [4711]",
        ):
            with pytest.raises(Forbidden):
                await operator.preview_strike(where=where)
    async with Operator(sqlite_storage, ADA, redact=("card.number",)) as ada:
        assert (await ada.preview_strike(where="card.number == 4711")).count == 0
