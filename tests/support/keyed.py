"""Requests with unique keys, as a client makes them, and jobs that hold a key."""

from datetime import timedelta
from typing import Any

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ClaimedJob, EnqueueOutcome, NewJob, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Delivery
from forge_jobs.model.unique.keys import UniqueMode
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim_one, new_job

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
MODES: tuple[UniqueMode, ...] = ("keep", "replace", "error", "cooldown", "debounce", "keep-last")


def keyed(mode: UniqueMode, number: int = 1, key: str = "k", **fields: Any) -> NewJob:
    """Return a request with a key, as a client makes it."""
    unique = Unique(key, mode)
    if mode in ("cooldown", "debounce"):
        unique = Unique(key, mode, MINUTE)
    if mode == "debounce":
        fields["delay"] = MINUTE
    return new_job(unique=unique, payload=f'{{"n":{number}}}', **fields)


async def ask(storage: Storage, request: NewJob) -> EnqueueOutcome:
    [outcome] = await storage.jobs.enqueue([request])
    return outcome


async def hand_over(storage: Storage) -> None:
    """Deliver handovers as a pod does: every edge here says continue."""
    news = await storage.jobs.handovers(1_000)
    assert {each.on_failure for each in news} <= {"continue"}
    await storage.jobs.deliver([Delivery(each, "settle") for each in news])


async def pending(storage: Storage, lease: PodLease, request: NewJob) -> JobId:
    return (await ask(storage, request)).job_id


async def running_with_follow_up(
    storage: Storage, lease: PodLease, mode: UniqueMode = "keep-last"
) -> tuple[ClaimedJob, JobId]:
    await ask(storage, keyed("replace"))
    claimed = await claim_one(storage, lease)
    outcome = await ask(storage, keyed(mode, 2))
    assert (outcome.follow_up, outcome.deduplicated, outcome.replaced) == (True, False, False)
    return claimed, outcome.job_id
