"""Options that select the jobs of a command: ids, or a filter."""

import functools
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
import msgspec

from forge_jobs.cli.options import INSTANT, with_store
from forge_jobs.config import Deployment
from forge_jobs.errors import InvalidInput
from forge_jobs.model.answering.filters import as_filter, is_relative, query_of
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import check_job_id
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.names import check_name
from forge_jobs.model.queries.reading import parse_query
from forge_jobs.model.queries.terms import JobQuery
from forge_jobs.model.queries.writing import format_query

T = TypeVar("T")

_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_BY_NAME = {name: each for each in JobStatus for name in (each.value, each.in_words)}
_OPTIONS = (
    click.option("--queue", "queues", multiple=True, metavar="NAME", help="Of these queues."),
    click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Of these kinds."),
    click.option(
        "--status",
        "statuses",
        multiple=True,
        type=click.Choice([status.in_words for status in JobStatus] + [JobStatus.FAILED.value]),
        help="In these statuses. Retrying and failed are the same.",
    ),
    click.option(
        "--cause",
        "causes",
        multiple=True,
        type=click.Choice([cause.value for cause in Cause]),
        metavar="CAUSE",
        help="With these causes of their status, as timed_out or crashed.",
    ),
    click.option("--tag", help="With this tag."),
    click.option("--unique-key", help="With this unique key."),
    click.option("--schedule", help="Fired by this schedule."),
    click.option("--enqueued-before", type=INSTANT, help="Enqueued before this instant."),
    click.option("--enqueued-after", type=INSTANT, help="Enqueued at or after this instant."),
    click.option(
        "--where",
        metavar="FILTER",
        help="All of it in one line, as 'queue:gh -status:done enqueued:<1h'.",
    ),
)
Which = JobFilter | JobQuery
"""The jobs of a command: by options, or by the line of ``--where``."""


def filter_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the parts of a filter as options, and pass the filter to the command as ``which``."""

    @functools.wraps(command)
    def with_filter(
        *args: Any,
        queues: tuple[str, ...],
        kinds: tuple[str, ...],
        statuses: tuple[str, ...],
        causes: tuple[str, ...],
        tag: str | None,
        unique_key: str | None,
        schedule: str | None,
        enqueued_before: datetime | None,
        enqueued_after: datetime | None,
        where: str | None,
        **options: Any,
    ) -> T:
        which: Which = JobFilter(
            queues=tuple(check_name("queue", name) for name in queues),
            kinds=tuple(check_name("kind", name) for name in kinds),
            statuses=tuple(_BY_NAME[status] for status in statuses),
            causes=tuple(Cause(cause) for cause in causes),
            tag=tag and check_name("tag", tag),
            unique_key=unique_key and check_name("unique-key", unique_key),
            schedule=schedule and check_name("schedule", schedule),
            enqueued_before=enqueued_before,
            enqueued_after=enqueued_after,
        )
        if where is not None:
            if which != JobFilter():
                raise InvalidInput(
                    "where", "is given together with other filters", "put them in --where too"
                )
            which = parse_query(where)
        return command(*args, which=which, **options)

    decorated: Callable[..., T] = with_filter
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def settled(deployment: Deployment, which: Which) -> JobFilter:
    """The filter that is meant, by the store's time where ``--where`` has durations.

    :raises InvalidInput: a term of ``--where`` that stores cannot answer
    """
    if isinstance(which, JobFilter):
        return which
    if not is_relative(which):
        return as_filter(which, _ANY_TIME)
    as_filter(which, _ANY_TIME)  # refuses what no store answers before one is opened
    return as_filter(which, with_store(deployment, lambda store: store.cron.now()))


def chosen(
    job_ids: tuple[str, ...], which: JobFilter, *, all_matching: bool, every: bool
) -> JobFilter:
    """The jobs that a bulk command was given: ids, a filter with ``--all-matching``, or ``--all``.

    :raises InvalidInput: none of the three is given, or several, or a bad id
    """
    is_filtered = which != JobFilter()
    if job_ids and (all_matching or every or is_filtered):
        raise InvalidInput("job-id", "is given together with a filter", "give one of the two")
    if every and is_filtered:
        raise InvalidInput("all", "is given together with a filter", "give one of the two")
    if all_matching and not every and not is_filtered:
        raise InvalidInput(
            "all-matching", "without a filter means every job", "give a filter, or --all"
        )
    if not (job_ids or all_matching or every):
        raise InvalidInput("job-id", "is missing", "give job ids, or a filter and --all-matching")
    ids = tuple(check_job_id(job_id, "job-id") for job_id in job_ids)
    return msgspec.structs.replace(which, ids=ids) if ids else which


def export_of(which: JobFilter) -> str:
    """Return the command that keeps a copy of the jobs of a filter."""
    try:
        line = format_query(query_of(which))
    except InvalidInput:
        # A name that no line can hold, as one with white space.
        return "forge-jobs export, with the same filter"
    where = ["--where", line] if line else []
    return shlex.join(["forge-jobs", "export", *where, "-o", "jobs.jsonl"])
