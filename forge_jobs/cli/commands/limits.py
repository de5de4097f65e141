"""``forge-jobs limits``: rate limits, how they stand, and their sizes."""

from datetime import timedelta

import click

from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_json, emit_table, talk
from forge_jobs.config import Deployment
from forge_jobs.errors import InvalidInput
from forge_jobs.model.names import check_name
from forge_jobs.model.queues import RateLimitState
from forge_jobs.operating.words import duration
from forge_jobs.setting_values import read_rate_limits


@click.group()
def limits() -> None:
    """Rate limits: how they stand, and their sizes."""


@limits.command("list")
@json_option
@deployment_options
def list_limits(deployment: Deployment, as_json: bool) -> None:
    """List rate limits and how many tokens are there now."""
    found = with_operator(deployment, lambda operator: operator.list_limits())
    if as_json:
        emit_json(found)
        return
    columns = ["limit", "tokens", "per", "there now", "set by"]
    emit_table(columns, [_line(each) for each in found.rate_limits], none="No rate limit is known.")


def _line(state: RateLimitState) -> list[object]:
    period: timedelta = state.limit.period
    by = "operator" if state.overridden else "code"
    return [state.scope, state.limit.capacity, duration(period), state.available, by]


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
