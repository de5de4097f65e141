"""``forge-jobs problems``: what is wrong now, since when, why, and what is safe to do."""

import click

from forge_jobs.cli.failures import FAILED
from forge_jobs.cli.options import deployment_options, json_option, with_store
from forge_jobs.cli.output import emit_fields, emit_json, instant
from forge_jobs.config import Deployment
from forge_jobs.operating.snapshots.reading import problems as read_problems
from forge_jobs.policy.judgement.problems.problem import Problem, Severity


@click.command()
@json_option
@deployment_options
def problems(deployment: Deployment, as_json: bool) -> None:
    """Say what is wrong now, the worst first, and what is safe to do.

    Exit code 1 when a problem is critical: work stands still, or is lost to people.
    """
    found = with_store(deployment, read_problems)
    if as_json:
        emit_json({"ok": is_well(found), "problems": found})
    else:
        for index, problem in enumerate(found):
            if index:
                click.echo()
            _tell(problem)
        if not found:
            click.echo("Nothing is wrong.")
    if not is_well(found):
        raise click.exceptions.Exit(FAILED)


def is_well(found: tuple[Problem, ...]) -> bool:
    """True when nothing must be put right."""
    return all(problem.severity is not Severity.CRITICAL for problem in found)


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
