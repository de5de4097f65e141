"""Many writes on few sequences at once, on one server."""

import pytest

from forge_jobs.storage.protocols import Storage
from tests.support.line_storms import LineStorm

pytestmark = [pytest.mark.anyio, pytest.mark.long]


@pytest.mark.parametrize("seed", range(2))
async def test_writes_at_once_let_no_two_jobs_of_a_key_run_and_leave_none_behind(
    storage: Storage, seed: int
) -> None:
    async with await storage.reopen() as other:
        storm = LineStorm([storage, other], seed)
        await storm.run()
        await storm.end()
