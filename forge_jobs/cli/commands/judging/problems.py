"""``forge-jobs problems``: what is wrong now, since when, why, and what is safe to do."""

import click

from forge_jobs.cli.failures import FAILED
from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_fields, emit_json
from forge_jobs.config import Deployment
from forge_jobs.operating.words import instant
from forge_jobs.policy.judgement.problems.problem import Problem, few_of_each


@click.command()
@click.option("--all", "are_all", is_flag=True, help="Each problem, however many are alike.")
@json_option
@deployment_options
def problems(deployment: Deployment, as_json: bool, are_all: bool) -> None:
    """Say what is wrong now, the worst first, and what is safe to do.

    Of problems with the same code five are shown, and how many more there are.

    Exit code 1 when a problem is critical: work stands still, or is lost to people.
    """
    found = with_operator(deployment, lambda operator: operator.problems())
    if as_json:
        emit_json(found)
    else:
        told, more = (found.problems, {}) if are_all else few_of_each(found.problems)
        for index, problem in enumerate(told):
            if index:
                click.echo()
            _tell(problem)
        for code, count in more.items():
            click.echo(f"\nand {count:,} more of {code}: forge-jobs problems --all")
        if not told:
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
