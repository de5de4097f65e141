"""A process dies while relaying an outbox. Each record becomes one job all the same."""

import signal
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest
from tests.support.outboxes import PAIRS, pair_of, relays
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

TRANSACTIONS, JOBS = 10, 5


@pytest.mark.parametrize("stores", PAIRS, ids="-to-".join)
@pytest.mark.parametrize("point", ["outbox:read", "outbox:stored", "outbox:committed"])
async def test_a_process_that_dies_while_it_relays_loses_and_doubles_no_record(
    point: str, stores: tuple[str, str], tmp_path: Path
) -> None:
    requests = [EnqueueRequest("mail.send", {"n": n}, queue="mail") for n in range(JOBS)]
    async with pair_of(*stores, tmp_path) as pair:
        accepted = []
        with relays(pair, 2, point, 2, tmp_path) as started:
            for _ in range(TRANSACTIONS):
                accepted += await pair.write(requests)

            async def has_died() -> bool:
                # More records, until one of the two has reached the point so often.
                if all(process.is_alive() for process in started):
                    accepted.extend(await pair.write(requests))
                return not all(process.is_alive() for process in started)

            async def is_done() -> bool:
                return (await pair.outbox().state()).waiting == 0

            await wait_until(has_died, description=f"a relay died at {point}", timeout=100)
            await wait_until(is_done, description="every record was relayed", timeout=100)
            exits = [each.exitcode for each in started if not each.is_alive()]
        assert exits == [-signal.SIGKILL]
        assert await pair.stored() == sorted(accepted)
        assert await pair.outbox().records() == []
