"""The acts of pods for which the time has come, done here and now."""

import random
from datetime import datetime, timedelta

from forge_jobs.clients.schedules import declared_schedules, ensure_schedules
from forge_jobs.config import RuntimeSettings
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.runtime.passes.cleanup import BUDGET, Cleanup, hand_over_once, in_batches
from forge_jobs.runtime.passes.cron import fire_due_once
from forge_jobs.runtime.passes.letters import LetterRelay
from forge_jobs.storage.protocols import CronStore, Storage
from forge_jobs.testing.kit.clock import TravelClock

_EXPIRED_AT_ONCE = 500

_UNLIKE = timedelta(seconds=30)
"""Two clocks that differ by more are not one clock that was read twice."""


async def declare(cron: CronStore, handlers: HandlerRegistry) -> None:
    """Store the schedules that the registry declares, as a pod does at the start."""
    if specs := declared_schedules(handlers, None):
        await ensure_schedules(cron, specs)


async def fire_and_expire(storage: Storage, settings: RuntimeSettings) -> None:
    """Fire due schedules, and cancel waiting jobs whose time is over."""
    await fire_due_once(storage.cron, settings, random.Random())
    await in_batches(storage.jobs.expire, _EXPIRED_AT_ONCE, BUDGET, None)


async def pass_time(
    storage: Storage, handlers: HandlerRegistry, clock: TravelClock, by: timedelta
) -> datetime:
    """Let time pass at once, and do what a coordinator would have done by then. No job runs.

    :returns: the new time of the store
    :raises InvalidInput: ``by`` is negative, or longer than a century, or ``clock`` is not the
        store's
    """
    # A schedule that no pod has declared yet counts from before the time that passes.
    await declare(storage.cron, handlers)
    clock.advance(by)
    now = await storage.cron.now()
    if abs(now - clock.now()) > _UNLIKE:
        raise InvalidInput(
            "clock",
            f"shows {clock.now()} and the store {now}, so advance has moved another clock",
            "open the store with open_storage(url, clock=clock) and the clock of the kit",
        )
    await fire_and_expire(storage, RuntimeSettings())
    await hand_over_once(storage.jobs)
    await LetterRelay(storage.jobs, storage.jobs).relay_once()
    cleanup = Cleanup(storage.jobs)
    while (await cleanup.go_on()).next_in is not None:
        pass
    return now
