"""``forge-jobs jobs``: look at jobs, and change their course."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, get_args

import click
import msgspec
from ulid import ULID

from forge_jobs.cli.commands.job_logs import logs
from forge_jobs.cli.commands.operating.edit import edit
from forge_jobs.cli.commands.operating.hints import hints
from forge_jobs.cli.commands.operating.kin import kin
from forge_jobs.cli.commands.operating.reveal import reveal
from forge_jobs.cli.commands.operating.timeline import timeline
from forge_jobs.cli.failures import FAILED
from forge_jobs.cli.options import (
    DURATION,
    deployment_options,
    json_option,
    with_operator,
)
from forge_jobs.cli.output import emit_fields, emit_json, emit_table, printable, talk
from forge_jobs.cli.selection import Which, chosen, export_of, filter_options, settled
from forge_jobs.config import Deployment
from forge_jobs.errors import Conflict, Unavailable
from forge_jobs.model.filters import MOST_COUNTED, JobFilter, JobOrder, JobSummary
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.model.jobs import Job, JobStatus
from forge_jobs.model.progress import Progress
from forge_jobs.operating.actions.documents import ActionView
from forge_jobs.operating.actions.previews import Apply, Preview
from forge_jobs.operating.documents import plain
from forge_jobs.operating.jobs.documents import Changed, JobView
from forge_jobs.operating.metrics.latencies import QueueStats, shown
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.words import instant
from forge_jobs.storage.cursors import MOST_TO_COUNT

_NAMED = 5


@click.group()
def jobs() -> None:
    """Look at jobs and change them."""


jobs.add_command(logs)
jobs.add_command(edit)
jobs.add_command(reveal)
jobs.add_command(timeline)
jobs.add_command(kin)
jobs.add_command(hints)


@jobs.command("list")
@filter_options
@click.option(
    "--order",
    type=click.Choice(get_args(JobOrder)),
    default="id",
    show_default=True,
    help="id: newest first. finished: ended jobs, the last to end first. due: what waits for its"
    " time or a worker, the earliest first.",
)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--cursor", help="Continue where an earlier page ended, in the same order.")
@json_option
@deployment_options
def list_jobs(
    deployment: Deployment,
    which: Which,
    *,
    order: JobOrder,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List matching jobs, newest first unless another order is asked for."""
    meant = settled(deployment, which)
    page = with_operator(
        deployment,
        lambda operator: operator.list_jobs(meant, order=order, cursor=cursor, limit=limit),
    )
    if as_json:
        emit_json(page)
        return
    columns = ["id", "queue", "kind", "status", "cause", "attempt", "due", "last error"]
    emit_table(columns, [_line(job) for job in page.jobs], none=_NONE[page.looked_back_to is None])
    if page.looked_back_to:
        talk(f"Looked back to {_made_at(page.looked_back_to)}; older jobs may match too.")
    if page.silent:
        talk(f"Left out, as their server does not answer: {', '.join(page.silent)}.")
    if page.cursor:
        talk(f"More: --cursor {page.cursor}")


@jobs.command("count")
@filter_options
@click.option(
    "--at-most",
    type=click.IntRange(1, MOST_TO_COUNT),
    default=MOST_COUNTED,
    show_default=True,
    help="Count no further.",
)
@click.option("--cursor", help="Count older jobs, where an earlier count ended.")
@json_option
@deployment_options
def count_jobs(
    deployment: Deployment, which: Which, *, at_most: int, cursor: str | None, as_json: bool
) -> None:
    """Count matching jobs, such as 37, or 50,000+ when there are more."""
    meant = settled(deployment, which)
    found = with_operator(
        deployment,
        lambda operator: operator.count_jobs(meant, at_most=at_most, cursor=cursor),
    )
    if as_json:
        emit_json(found)
        return
    click.echo(str(found))
    if found.looked_back_to:
        talk(f"Looked back to {_made_at(found.looked_back_to)}; older jobs may match too.")
        talk(f"More: --cursor {found.looked_back_to}")
    if found.silent:
        talk(f"Left out, as their server does not answer: {', '.join(found.silent)}.")


def _made_at(job_id: JobId) -> str:
    """The id, with the time of creation where the id is a ULID."""
    try:
        return f"{instant(ULID.from_str(job_id).datetime)} ({job_id})"
    except (ValueError, OverflowError):
        return job_id


_NONE = {True: "No job matches.", False: "No job matches among those looked at."}


def _line(job: JobSummary) -> list[object]:
    beside = "unreadable" if job.unreadable else job.hold
    status = f"{job.status.in_words} ({beside})" if beside else job.status.in_words
    attempt = f"{job.attempt}/{'-' if job.max_attempts is None else job.max_attempts}"
    due = "" if job.finished_at else instant(job.due_at)
    told = job.unreadable or job.last_error
    return [job.id, job.queue, job.kind, status, job.cause, attempt, due, told[:60]]


@jobs.command()
@click.argument("job_id")
@json_option
@deployment_options
def show(deployment: Deployment, job_id: str, as_json: bool) -> None:
    """Show all of one job: payload, result, errors and events."""
    wanted = check_job_id(job_id, "job-id")
    job = with_operator(deployment, lambda operator: operator.get_job(wanted))
    if as_json:
        emit_json(job)
    else:
        _show(job)


def _show(job: JobView) -> None:
    fields = [(name, _as_text(getattr(job, name))) for name in Job.__struct_fields__]
    fields.append(("progress", "" if job.progress is None else _progress(job.progress)))
    emit_fields([(name, value) for name, value in fields if name != "errors"])
    for error in job.errors:
        at = instant(error.at)
        click.echo(f"\n{at} attempt {error.attempt} {error.cause}: {printable(error.type)}: "
                   f"{printable(error.message)}")  # fmt: skip
        for line in error.traceback.splitlines():
            click.echo(f"  {printable(line)}")
    click.echo()
    columns = ["at", "event", "pod", "detail"]
    rows = [[instant(event.at), event.kind, event.host_id, event.detail] for event in job.events]
    emit_table(columns, rows, none="")


def _progress(progress: Progress) -> str:
    of = "" if progress.total is None else f" of {progress.total:g}"
    words = f" {printable(progress.message)}" if progress.message else ""
    return f"{progress.current:g}{of}{words} (attempt {progress.attempt}, {instant(progress.at)})"


def _as_text(value: object) -> object:
    if isinstance(value, JobStatus):
        return value.in_words
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    if isinstance(value, Mapping):
        return msgspec.json.encode(value).decode() if value else ""
    if isinstance(value, bool):
        return "yes" if value else ""
    shown = plain(value)
    return shown if isinstance(shown, str | None) else str(shown)


def _bulk_options(command: Callable[..., None]) -> Callable[..., None]:
    options = (
        click.argument("job_ids", metavar="[JOB_ID]...", nargs=-1),
        filter_options,
        click.option("--all-matching", is_flag=True, help="Every job that the filter matches."),
        click.option("--all", "every", is_flag=True, help="Every job of the store."),
        click.option("--preview", is_flag=True, help="Say what would change, and change nothing."),
        click.option("--yes", is_flag=True, help="Do not ask before changing jobs by filter."),
        click.option("--reason", default="", help="Why, kept in the record of the action."),
        json_option,
        deployment_options,
    )
    for option in reversed(options):
        command = option(command)
    return command


_COUNTS = ("enqueued", "succeeded", "failed", "timed_out", "crashed")


@jobs.command()
@click.option("--queue", "names", multiple=True, help="Of this queue. May be repeated.")
@click.option(
    "--over", type=DURATION, default="1h", show_default=True, help="How far to look back."
)
@json_option
@deployment_options
def stats(deployment: Deployment, names: tuple[str, ...], over: timedelta, as_json: bool) -> None:
    """Show per queue how recent attempts ended and how long they took."""
    found = with_operator(deployment, lambda operator: operator.queue_stats(names, over=over))
    if as_json:
        emit_json(found)
        return
    columns = ["queue", *(name.replace("_", " ") for name in _COUNTS)]
    columns += [f"{what} {p}" for what in ("run", "total") for p in ("p50", "p95", "p99")]
    emit_table(columns, [_stats_line(each) for each in found.queues], none="No queue is known.")


def _stats_line(each: QueueStats) -> list[object]:
    counts = [each.counts.get(name, 0) for name in _COUNTS]
    times = [each.run.p50, each.run.p95, each.run.p99]
    times += [each.total.p50, each.total.p95, each.total.p99]
    return [each.queue, *counts, *map(shown, times)]


def _verb(name: str, operation: str, done: str) -> None:
    """Add a command that changes all jobs that are meant."""
    summary, _, _ = (getattr(Operator, operation).__doc__ or "").partition("\n")

    @jobs.command(name, help=summary)
    @_bulk_options
    def command(deployment: Deployment, **options: Any) -> None:
        _change(deployment, operation, name, done, **options)


_verb("cancel", "cancel_jobs", "cancelled")
_verb("requeue", "requeue_jobs", "requeued")
_verb("restore", "restore_jobs", "restored")
_verb("delete", "delete_jobs", "deleted")
_verb("release-held", "release_held_jobs", "released")
_verb("run-now", "run_jobs_now", "made due now")


def _change(
    deployment: Deployment,
    operation: str,
    verb: str,
    done: str,
    *,
    job_ids: tuple[str, ...],
    which: Which,
    all_matching: bool,
    every: bool,
    preview: bool,
    yes: bool,
    reason: str,
    as_json: bool,
) -> None:
    meant = settled(deployment, which)
    meant = chosen(job_ids, meant, all_matching=all_matching, every=every)
    if preview:
        _preview(deployment, operation, meant, as_json=as_json)
    elif job_ids:
        total: Changed = with_operator(
            deployment, lambda operator: getattr(operator, operation)(meant, reason=reason)
        )
        if as_json:
            emit_json(total)
        else:
            _report(total, done)
        if total.refused:
            raise click.exceptions.Exit(FAILED)
    else:
        action = _previewed(deployment, operation, verb, meant, yes=yes, every=every, reason=reason)
        if as_json:
            emit_json(action)
        else:
            _report_action(action, done)


def _previewed(
    deployment: Deployment,
    operation: str,
    verb: str,
    which: JobFilter,
    *,
    yes: bool,
    every: bool,
    reason: str,
) -> ActionView:
    """Say how many jobs match, ask, and change those that were there when the number was said."""
    while True:
        found = with_operator(
            deployment, lambda operator: operator.preview_action(operation, which, all_jobs=every)
        )
        if operation == "delete_jobs" and not yes:
            talk(f"There is no undo. A copy first: {export_of(which)}")
        _confirm(verb, found, yes=yes)
        apply = Apply(token=found.token, reason=reason)
        try:
            return with_operator(deployment, functools.partial(_applied, apply=apply))
        except Conflict as error:
            if yes:
                raise
            talk(str(error))


async def _applied(operator: Operator, apply: Apply) -> ActionView:
    return await operator.apply_action(apply)


def _preview(deployment: Deployment, operation: str, which: JobFilter, *, as_json: bool) -> None:
    """Say what a verb would meet."""
    found = with_operator(
        deployment, lambda operator: operator.preview_action(operation, which, all_jobs=True)
    )
    if as_json:
        emit_json(found)
        return
    columns = ["id", "queue", "kind", "status", "cause", "attempt", "due", "last error"]
    emit_table(columns, [_line(job) for job in found.samples], none="No job matches.")
    more = "at least " if found.more else ""
    refused = ", ".join(f"{number} {why}" for why, number in sorted(found.refused.items()))
    talk(f"{more}{found.count} jobs match. Refused: {refused or 'none'}.")
    talk(f"Waiting children: {len(found.children)}. Jobs with a unique key: {found.keys}.")
    undo = "actions undo would take it back" if found.undo else "nothing would undo it"
    talk(f"Nothing has changed, and {undo}.")


def _confirm(verb: str, found: Preview, *, yes: bool) -> None:
    """Say how many jobs would change, and ask for consent.

    :raises Unavailable: queues that are meant do not answer, so the change would be refused
    """
    _check_heard(found.silent)
    number = f"{found.count}+" if found.more else str(found.count)
    jobs = f"{number} job" if number == "1" else f"{number} jobs"
    if yes:
        talk(f"{verb}: {jobs}")
    else:
        click.confirm(f"{verb} {jobs}?", abort=True, err=True)


def _check_heard(silent: Sequence[str]) -> None:
    if silent:
        some = ", ".join(silent[:_NAMED]) + (", ..." if len(silent) > _NAMED else "")
        raise Unavailable(
            f"nothing was changed: the server of {len(silent)} of the queues does not answer "
            f"({some}). Name the queues that you mean with --queue, or wait for that server"
        )


def _report_action(action: ActionView, done: str) -> None:
    refused: Counter[str] = Counter()
    for part in action.parts:
        refused.update({each.value: number for each, number in part.refused.items()})
    for reason, number in sorted(refused.items()):
        talk(f"{number} refused: {reason}")
    asked = f", {action.requested} asked to stop" if action.requested else ""
    left = f", {action.refused} refused" if action.refused else ""
    click.echo(f"{action.changed} {done}{asked}{left}")
    talk(f"Recorded: forge-jobs actions show {action.id}")


def _report(total: Changed, done: str) -> None:
    for job_id, refusal in total.refused.items():
        talk(f"{job_id} refused: {refusal}")
    asked = f", {len(total.requested)} asked to stop" if total.requested else ""
    refused = f", {len(total.refused)} refused" if total.refused else ""
    click.echo(f"{len(total.changed)} {done}{asked}{refused}")
