"""Stored schedules that cannot be read."""

import msgspec

from forge_jobs.model.schedules import Schedule, ScheduleSpec
from forge_jobs.storage.salvage import log_unreadable


def no_spec(name: str) -> ScheduleSpec:
    """What stands for a specification that cannot be read."""
    return ScheduleSpec(name=name, queue="", kind="", expression="")


def salvaged_schedule(found: Schedule, problems: str) -> Schedule:
    """The schedule as callers see it; logged once when it cannot be read.

    :param problems: what cannot be read of it, "" for nothing
    """
    if not problems:
        return found
    help = "it does not fire; set it anew, or delete it with 'forge-jobs cron delete'"
    log_unreadable("schedule", found.spec.name, problems, help)
    return msgspec.structs.replace(found, unreadable=problems)
