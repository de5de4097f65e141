"""``forge-jobs what-if``: the outlook of a queue, as measured and with other numbers."""

import click

from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_fields, emit_json, printable
from forge_jobs.config import Deployment
from forge_jobs.errors import InvalidInput
from forge_jobs.model.names import check_name
from forge_jobs.model.objectives import parse_objective
from forge_jobs.operating.operator import Operator
from forge_jobs.policy.judgement.desired_pods import DesiredPods
from forge_jobs.policy.judgement.what_if import Outlook


@click.command("what-if")
@click.argument("queue")
@click.option("--max-workers", type=int, help="In place of the queue's own.")
@click.option(
    "--arrivals", type=float, default=1.0, help="A factor, 1.5 for half as many jobs again."
)
@click.option("--objective", help="How many pods keep it? Default: the queue's own.")
@json_option
@deployment_options
def what_if(  # noqa: PLR0917 - one parameter per option
    deployment: Deployment,
    queue: str,
    max_workers: int | None,
    arrivals: float,
    objective: str | None,
    as_json: bool,
) -> None:
    """Say when the backlog of a queue clears, or by how much the queue grows.

    Rests on the load of the last 15 minutes.
    """
    name = check_name("queue", queue)
    wanted = None if objective is None else parse_objective(objective)

    async def ask(operator: Operator) -> tuple[Outlook, DesiredPods | None]:
        outlook = await operator.what_if(name, max_workers=max_workers, arrivals=arrivals)
        try:
            return outlook, await operator.desired_pods(name, wanted)
        except InvalidInput:
            # The queue has no objective of its own.
            if wanted is not None:
                raise
            return outlook, None

    outlook, pods = with_operator(deployment, ask)
    if as_json:
        emit_json({"outlook": outlook, "pods": pods})
        return
    click.echo(printable(f"{name}: {outlook.text}"))
    emit_fields([("rests on", outlook.rests_on), ("pods", pods.text if pods else "")])
