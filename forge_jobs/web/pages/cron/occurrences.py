"""Occurrences of schedules: the next ones in their zone, and how the last ones went."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct

from forge_jobs.clock import to_us
from forge_jobs.errors import InvalidInput, PartlyUnavailable
from forge_jobs.model.ids import JobId, occurrence_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.progress import JobState
from forge_jobs.operating.settings.documents import ScheduleView
from forge_jobs.policy.cron import parse_cron
from forge_jobs.web.pages.cron.phrases import phrase
from forge_jobs.web.pages.frame import Visit

FIRES = 5
"""Occurrences ahead that a page shows."""

BARS = 12
"""Occurrences behind of a schedule in the list."""

_MOST_STATES = 600
"""Jobs of all schedules of the list together whose states are read."""

_THERE = "%a %Y-%m-%d %H:%M:%S %Z"
_TITLES = {
    JobStatus.DONE: ("fired", "done"),
    JobStatus.DEAD: ("bad", "dead"),
    JobStatus.FAILED: ("late", "retrying"),
    JobStatus.IN_PROGRESS: ("run", "running"),
    JobStatus.CANCELLED: ("skipped", "cancelled"),
}
_WAITS = ("skipped", "waiting")


class Times(Struct, frozen=True, kw_only=True):
    """The meaning of the text of a schedule.

    :param words: "" where none are known
    :param problem: why the text is refused, "" when the text is fine
    :param fires: the next occurrences
    """

    expression: str
    timezone: str
    words: str = ""
    problem: str = ""
    fires: tuple[Mapping[str, Any], ...] = ()


def times_of(
    expression: str, timezone: str, now: datetime, fires: Sequence[datetime] | None = None
) -> Times:
    """Return what a text means, or why the text is refused.

    :param fires: the next occurrences where they are known
    """
    try:
        cron = parse_cron(expression, timezone)
        found = list(fires or ())
        at = cron.next_after(now) if fires is None else None
        while at is not None and len(found) < FIRES:
            found.append(at)
            at = cron.next_after(at)
    except InvalidInput as error:
        return Times(expression=expression, timezone=timezone, problem=str(error))
    return Times(
        expression=expression,
        timezone=timezone,
        words=phrase(expression),
        fires=tuple(_there(found, ZoneInfo(timezone), now)),
    )


def _there(fires: Iterable[datetime], zone: ZoneInfo, now: datetime) -> Iterable[dict[str, Any]]:
    offset = now.astimezone(zone).utcoffset()
    for at in fires:
        there = at.astimezone(zone)
        # The clocks of the zone are changed between this one and the one before.
        shifts = there.utcoffset() != offset
        offset = there.utcoffset()
        yield {"at": at, "there": there.strftime(_THERE), "shifts": shifts}


def bar(status: JobStatus) -> dict[str, str]:
    """Return the bar of a job in a history."""
    mark, title = _TITLES.get(status, _WAITS)
    return {"mark": mark, "title": title}


async def histories(
    visit: Visit, schedules: Iterable[ScheduleView]
) -> dict[str, list[dict[str, str]]]:
    """Return how the last occurrences of schedules went, as bars, oldest first. One call.

    The ids of their jobs follow from the occurrences, so no list of jobs is searched. Occurrences
    before the first job that is still kept are left out.
    """
    asked: dict[str, list[JobId]] = {}
    for each in schedules:
        if sum(map(len, asked.values())) + BARS > _MOST_STATES:
            break
        if each.last_fired_at is not None:
            spec = each.spec
            past = _before(spec.expression, spec.timezone, each.last_fired_at)
            asked[spec.name] = [occurrence_job_id(spec.name, to_us(at)) for at in past]
    ids = [job_id for some in asked.values() for job_id in some]
    if not ids:
        return {}
    try:
        states: Mapping[JobId, JobState] = await visit.storage.jobs.states(ids)
    except PartlyUnavailable as error:
        states = error.found
    return {
        name: _bars([states.get(job_id) for job_id in some], visit) for name, some in asked.items()
    }


def _bars(states: Sequence[JobState | None], visit: Visit) -> list[dict[str, str]]:
    seen = [state if state and visit.actor.sees(state.queue) else None for state in states]
    first = next((index for index, state in enumerate(seen) if state), len(seen))
    gone = {"mark": "skipped", "title": "skipped or no longer kept"}
    return [bar(state.status) if state else gone for state in seen[first:]]


@functools.lru_cache(maxsize=1024)
def _before(expression: str, timezone: str, last: datetime) -> tuple[datetime, ...]:
    """Return the occurrences up to one, at most as many as there are bars, oldest first."""
    try:
        cron = parse_cron(expression, timezone)
        following = cron.next_after(last)
        if following is None:
            return (last,)
        at = cron.next_after(last - BARS * (following - last) - timedelta(seconds=1))
    except (InvalidInput, OverflowError):
        return (last,)
    found: list[datetime] = []
    while at is not None and at < last and len(found) < 2 * BARS:
        found.append(at)
        at = cron.next_after(at)
    return (*found[-(BARS - 1) :], last)
