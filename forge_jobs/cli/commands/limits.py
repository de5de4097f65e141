"""``forge-jobs limits``: rate limits and limits of concurrency, how they stand, and their sizes."""

import shlex
from datetime import timedelta

import click

from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_json, emit_table, talk
from forge_jobs.config import Deployment
from forge_jobs.errors import InvalidInput
from forge_jobs.model.names import check_name
from forge_jobs.model.queues import MOST_KEY_JOBS, LimitState
from forge_jobs.operating.settings.concurrency import PermitJob
from forge_jobs.operating.settings.documents import RateLimitView
from forge_jobs.operating.words import duration, instant
from forge_jobs.setting_values import read_rate_limits


@click.group()
def limits() -> None:
    """Rate limits, limits of concurrency: how they stand, and their sizes."""


@limits.command("list")
@json_option
@deployment_options
def list_limits(deployment: Deployment, as_json: bool) -> None:
    """List rate limits: tokens that are there now, taken and refused."""
    found = with_operator(deployment, lambda operator: operator.list_limits())
    if as_json:
        emit_json(found)
        return
    columns = ["limit", "tokens", "per", "there now", "next in"]
    columns += ["taken a minute", "refused a minute", "set by"]
    emit_table(columns, [_line(each) for each in found.rate_limits], none="No rate limit is known.")


def _line(state: RateLimitView) -> list[object]:
    period: timedelta = state.limit.period
    size = [state.limit.capacity, duration(period), state.available, duration(state.next_in)]
    asked = ["-" if n is None else n for n in (state.taken_a_minute, state.refused_a_minute)]
    return [state.scope, *size, *asked, _by(state.overridden)]


@limits.command("set")
@click.argument("name")
@click.argument("size", metavar="COUNT/DURATION")
@json_option
@deployment_options
def set_limit(deployment: Deployment, name: str, size: str, as_json: bool) -> None:
    """Set a rate limit, as 100/1m. The size stays over later deploys."""
    check_name("name", name)
    try:
        [limit] = read_rate_limits({name: size}).values()
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput("size", f"{error}", "give a count per duration, as 100/1m") from None
    state = with_operator(deployment, lambda operator: operator.set_limit(name, limit), create=True)
    if as_json:
        emit_json(state)
        return
    talk(f"{name}: {limit.capacity} per {duration(limit.period)}")


@limits.command()
@click.argument("name")
@json_option
@deployment_options
def delete(deployment: Deployment, name: str, as_json: bool) -> None:
    """Delete a rate limit. A program that declares it brings it back."""
    check_name("name", name)
    gone = with_operator(deployment, lambda operator: operator.delete_limit(name))
    if as_json:
        emit_json(gone)
        return
    talk(f"{name}: deleted. Jobs of handlers that name it fail until it is declared again.")


@limits.command()
@click.argument("name")
@json_option
@deployment_options
def drain(deployment: Deployment, name: str, as_json: bool) -> None:
    """Take all tokens of a rate limit. They come back at the limit's pace."""
    check_name("name", name)
    state = with_operator(deployment, lambda operator: operator.drain_limit(name))
    if as_json:
        emit_json(state)
        return
    talk(f"{name}: {state.available} of {state.limit.capacity} tokens are there")


@limits.command("concurrency")
@json_option
@deployment_options
def list_concurrency(deployment: Deployment, as_json: bool) -> None:
    """List limits of concurrency: how many jobs of a key may run at once, and how many do."""
    found = with_operator(deployment, lambda operator: operator.list_concurrency())
    if as_json:
        emit_json(found)
        return
    rows = [
        [
            each.queue,
            each.name,
            each.at_most,
            each.share or "-",
            each.running,
            f"{each.waiting:,}",
            each.full,
            instant(each.oldest_due_at),
            _setter(each),
        ]
        for each in found.limits
    ]
    none = "No limit of concurrency is known. Handlers declare them: concurrency=Limit(2)"
    columns = ["queue", "limit", "at once", "share", "running", "waiting", "full keys"]
    emit_table([*columns, "oldest due since", "set by"], rows, none=none)


def _shared(state: LimitState) -> str:
    return f", keys take turns by share {state.share}" if state.share else ""


def _setter(state: LimitState) -> str:
    return f"cannot be read: {state.unreadable}" if state.unreadable else _by(state.overridden)


def _by(overridden: bool) -> str:
    return "operator" if overridden else "code"


@limits.command("show")
@click.argument("queue")
@click.argument("name")
@click.option("--key", help="Show who holds this key and who waits. Without: keys with waiters.")
@click.option("--after", help="Show the keys behind this one.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@json_option
@deployment_options
def show_concurrency(
    deployment: Deployment,
    queue: str,
    name: str,
    *,
    key: str | None,
    after: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show the keys of limit NAME of QUEUE at which jobs wait, or the jobs of one key."""
    found = with_operator(
        deployment,
        lambda operator: operator.get_concurrency(queue, name, key=key, after=after, limit=limit),
    )
    if as_json:
        emit_json(found)
        return
    noun = "job" if found.at_most == 1 else "jobs"
    bound = f"at most {found.at_most} {noun} of a key at once{_shared(found)}"
    talk(f"{queue} {name}: {bound}, by {_setter(found)}")
    if key is None:
        rows = [[each.key, each.running, _up_to(each.waiting)] for each in found.keys]
        emit_table(["key", "running", "waiting"], rows, none="No job waits for this limit.")
        if found.more:
            talk(f"There are more: --after {shlex.quote(found.keys[-1].key)}")
        return
    jobs = [("running", each) for each in found.running]
    jobs += [("waiting", each) for each in found.waiting]
    lines = [[said, each.id, each.kind, each.host_id or "-", _since(each)] for said, each in jobs]
    none = f"No job of key {key!r} runs or waits."
    emit_table(["state", "id", "kind", "pod", "since"], lines, none=none)


def _since(job: PermitJob) -> str:
    return "held ahead" if job.since is None else instant(job.since)


def _up_to(count: int) -> str:
    return f"{count:,} or more" if count == MOST_KEY_JOBS else f"{count:,}"


@limits.command("set-concurrency")
@click.argument("queue")
@click.argument("name")
@click.argument("at_most", metavar="COUNT", type=int)
@click.option(
    "--share", type=int, help="Weight of each key: keys take turns. 0: none. Without: as before."
)
@json_option
@deployment_options
def set_concurrency(  # noqa: PLR0917 - one parameter for each word of the command
    deployment: Deployment, queue: str, name: str, at_most: int, share: int | None, as_json: bool
) -> None:
    """Let COUNT jobs of each key of limit NAME of QUEUE run at once. Stays over later deploys."""
    state = with_operator(
        deployment,
        lambda operator: operator.set_concurrency(queue, name, at_most, share),
        create=True,
    )
    if as_json:
        emit_json(state)
        return
    talk(f"{queue} {name}: at most {state.at_most} of a key at once{_shared(state)}")


@limits.command("delete-concurrency")
@click.argument("queue")
@click.argument("name")
@json_option
@deployment_options
def delete_concurrency(deployment: Deployment, queue: str, name: str, as_json: bool) -> None:
    """Delete limit NAME of QUEUE. A program that declares the limit brings it back."""
    gone = with_operator(deployment, lambda operator: operator.delete_concurrency(queue, name))
    if as_json:
        emit_json(gone)
        return
    talk(f"{queue} {name}: deleted. Jobs that waited for it may run.")
