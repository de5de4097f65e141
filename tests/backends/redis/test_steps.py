"""Steps in transactions of the program, which a store on Redis cannot have."""

import pytest

from forge_jobs.errors import InvalidInput
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim_one, enqueue_one, register

pytestmark = pytest.mark.anyio


async def test_a_step_in_a_transaction_is_refused_in_words(storage: Storage) -> None:
    await enqueue_one(storage)
    claimed = await claim_one(storage, await register(storage))
    with pytest.raises(InvalidInput, match=r"keeps its jobs in Redis.*unique key"):
        await storage.jobs.first_time(claimed.claim, "step", connection=object())
