"""``forge-jobs pods``: the running workers, and requests to them."""

from collections.abc import Callable, Coroutine

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


@pods.command()
@click.argument("pod", metavar="POD_ID")
@json_option
@deployment_options
def quiet(deployment: Deployment, pod: str, as_json: bool) -> None:
    """Ask a pod to take no new work. Running jobs go on."""
    _ask(deployment, as_json, lambda operator: operator.quiet_pod(pod))


@pods.command()
@click.argument("pod", metavar="POD_ID")
@json_option
@deployment_options
def resume(deployment: Deployment, pod: str, as_json: bool) -> None:
    """Ask a quiet pod to take work again."""
    _ask(deployment, as_json, lambda operator: operator.resume_pod(pod))


@pods.command()
@click.argument("pod", metavar="POD_ID")
@json_option
@deployment_options
def stop(deployment: Deployment, pod: str, as_json: bool) -> None:
    """Ask a pod to drain and end, as after SIGTERM."""
    _ask(deployment, as_json, lambda operator: operator.stop_pod(pod))


@pods.command()
@click.argument("pod", metavar="POD_ID")
@json_option
@deployment_options
def stacks(deployment: Deployment, pod: str, as_json: bool) -> None:
    """Ask a pod where each running job and thread stands."""
    _ask(deployment, as_json, lambda operator: operator.show_stacks(pod))


def _ask(
    deployment: Deployment,
    as_json: bool,
    ask: Callable[[Operator], Coroutine[None, None, PodRequestView]],
) -> None:
    found = with_operator(deployment, ask)
    if as_json:
        emit_json(found)
    else:
        for line in found.answer.splitlines():
            click.echo(printable(line))
        talk(found.summary)
    if not (found.state is RequestState.ANSWERED and found.done):
        raise click.exceptions.Exit(_NOT_DONE)
