"""``forge-jobs jobs reveal``: one job with its secrets, recorded."""

import click

from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_fields, emit_json, printable, talk
from forge_jobs.config import Deployment
from forge_jobs.model.ids import check_job_id


@click.command("reveal")
@click.argument("job_id")
@click.option("--reason", default="", help="Kept with the record of the action.")
@json_option
@deployment_options
def reveal(deployment: Deployment, job_id: str, reason: str, as_json: bool) -> None:
    """Show payload, result and metadata of JOB_ID with its secrets. Leaves a record."""
    wanted = check_job_id(job_id, "job-id")
    job = with_operator(deployment, lambda operator: operator.reveal_job(wanted, reason=reason))
    if as_json:
        emit_json(job)
        return
    metadata = ((printable(name), text) for name, text in job.metadata.items())
    emit_fields([("payload", job.payload), ("result", job.result or ""), *metadata])
    talk(f"Recorded: forge-jobs actions show {job.action_id}")
