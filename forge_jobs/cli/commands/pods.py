"""``forge-jobs pods``: the running workers, and requests to them."""

from collections.abc import Callable, Coroutine
from typing import Any

import click

from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_json, emit_table, printable, talk
from forge_jobs.config import Deployment
from forge_jobs.model.pod_requests import RequestState
from forge_jobs.operating.health.documents import PodView
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.pods.documents import PodRequestView
from forge_jobs.operating.words import duration, instant

_NOT_DONE = 1


@click.group(invoke_without_command=True)
@json_option
@deployment_options
@click.pass_context
def pods(context: click.Context, deployment: Deployment, as_json: bool) -> None:
    """Pods with their slots per queue, and requests to them.

    Without a command: the list.
    """
    if context.invoked_subcommand is None:
        _list(deployment, as_json)


@pods.command("list")
@json_option
@deployment_options
def list_pods(deployment: Deployment, as_json: bool) -> None:
    """List pods with their slots per queue."""
    _list(deployment, as_json)


def _list(deployment: Deployment, as_json: bool) -> None:
    found = with_operator(deployment, lambda operator: operator.list_pods())
    if as_json:
        emit_json(found)
        return
    columns = ["pod", "label", "state", "beat due in", "slots", "in progress", "started"]
    emit_table(columns, [_line(state) for state in found.pods], none="No pod is known.")


def _line(state: PodView) -> list[object]:
    return [
        state.pod.host_id,
        state.pod.label,
        state.standing,
        duration(state.lease_remaining),
        state.slots_in_words,
        sum(state.in_progress.values()),
        instant(state.started_at),
    ]


@pods.command()
@click.argument("pod", metavar="POD_ID")
@json_option
@deployment_options
def requests(deployment: Deployment, pod: str, as_json: bool) -> None:
    """List what a pod was asked for within the last hour."""
    found = with_operator(deployment, lambda operator: operator.pod_requests(pod))
    if as_json:
        emit_json(found)
        return
    columns = ["asked at", "by", "request", "state", "what became of it"]
    lines = [
        [instant(each.asked_at), each.asked_by, each.verb, each.state, each.summary]
        for each in found.requests
    ]
    emit_table(columns, lines, none="The pod was asked for nothing within the last hour.")


def _on_one(
    verb: str, ask: Callable[[Operator, str], Coroutine[Any, Any, PodRequestView]], help: str
) -> None:
    """Add a command that asks one pod for something."""

    @pods.command(verb, help=help)
    @click.argument("pod", metavar="POD_ID")
    @json_option
    @deployment_options
    def command(deployment: Deployment, pod: str, as_json: bool) -> None:
        _tell(with_operator(deployment, lambda operator: ask(operator, pod)), as_json)


_on_one("quiet", Operator.quiet_pod, "Ask a pod to take no new work. Running jobs go on.")
_on_one("resume", Operator.resume_pod, "Ask a quiet pod to take work again.")
_on_one("stop", Operator.stop_pod, "Ask a pod to drain and end, as after SIGTERM.")
_on_one("stacks", Operator.show_stacks, "Ask a pod where each running job and thread stands.")


def _tell(found: PodRequestView, as_json: bool) -> None:
    if as_json:
        emit_json(found)
    else:
        for line in found.answer.splitlines():
            click.echo(printable(line))
        talk(found.summary)
    if not (found.state is RequestState.ANSWERED and found.done):
        raise click.exceptions.Exit(_NOT_DONE)
