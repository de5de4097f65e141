"""``forge-jobs problems``: what is wrong now, since when, why, and what is safe to do."""

import click

from forge_jobs.cli.failures import FAILED
from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_fields, emit_json
from forge_jobs.config import Deployment
from forge_jobs.operating.words import instant
from forge_jobs.policy.judgement.problems.problem import Problem


@click.command()
@json_option
@deployment_options
def problems(deployment: Deployment, as_json: bool) -> None:
    """Say what is wrong now, the worst first, and what is safe to do.

    Exit code 1 when a problem is critical: work stands still, or is lost to people.
    """
    found = with_operator(deployment, lambda operator: operator.problems())
    if as_json:
        emit_json(found)
    else:
        for index, problem in enumerate(found.problems):
            if index:
                click.echo()
            _tell(problem)
        if not found.problems:
            click.echo("Nothing is wrong.")
    if not found.ok:
        raise click.exceptions.Exit(FAILED)


def _tell(problem: Problem) -> None:
    emit_fields(
        [
            (problem.severity, problem.evidence),
            ("problem", problem.code),
            ("since", instant(problem.since)),
            ("why", problem.why),
            ("safe to do", problem.action),
            ("command", problem.command),
        ]
    )
