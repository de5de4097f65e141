"""A driver of an action that dies.

``python -m tests.support.acting URL ACTION POINT VISIT MARKER``

``pause:NAME`` for ACTION pauses a queue instead.
"""

import asyncio
import sys
from pathlib import Path

from forge_jobs import open_storage
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.actions import recording
from forge_jobs.operating.operator import Operator
from tests.support.points import die_at

JOBS_OF_A_STEP = 7


async def _drive(url: str, action_id: str) -> None:
    recording.AT_ONCE = JOBS_OF_A_STEP
    async with (
        await open_storage(url) as storage,
        Operator(storage, Actor(name="driver", access=ALL)) as operator,
    ):
        if action_id.startswith("pause:"):
            await operator.pause_queue(action_id.removeprefix("pause:"))
        else:
            await operator.continue_action(action_id)


if __name__ == "__main__":
    url, action_id, point, visit, marker = sys.argv[1:]
    die_at(point, int(visit), Path(marker))
    asyncio.run(_drive(url, action_id))
