"""``forge-jobs explain``: the reason for the state of a job."""

import click
from msgspec import structs

from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_fields, emit_json, printable
from forge_jobs.config import Deployment
from forge_jobs.errors import ForgeJobsError, NotFound, Unavailable
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.operating.jobs.documents import JobExplanation
from forge_jobs.operating.words import instant
from forge_jobs.policy.explanations import Reason


@click.command()
@click.argument("job_id")
@json_option
@deployment_options
def explain(deployment: Deployment, job_id: str, as_json: bool) -> None:
    """Say exactly why a job does not run, since when, until when, and what helps."""
    wanted = check_job_id(job_id, "job-id")
    try:
        explanation = with_operator(deployment, lambda operator: operator.explain_job(wanted))
    except (NotFound, Unavailable) as error:
        if not deployment.outbox:
            raise
        # The job may not have been relayed yet.
        there = structs.replace(deployment, storage_url=deployment.outbox)
        explanation = _in_outbox(there, wanted, error)
    if as_json:
        emit_json(explanation)
        return
    click.echo(printable(explanation.text))
    emit_fields(
        [
            ("reason", explanation.reason),
            ("since", instant(explanation.since)),
            ("until", instant(explanation.forecast)),
            ("waits for", ", ".join(explanation.blocked_by)),
            ("jobs before", explanation.ahead),
            ("permit free at about", instant(explanation.opens_at)),
            ("permit free by", instant(explanation.opens_by)),
            ("starts after", instant(explanation.starts_after)),
            ("starts before", instant(explanation.starts_before)),
            ("rests on", explanation.rests_on),
            *_holders(explanation),
            ("what helps", explanation.help),
        ]
    )


def _in_outbox(
    deployment: Deployment, job_id: JobId, error: NotFound | Unavailable
) -> JobExplanation:
    """Explain a job by the outbox alone.

    :param error: the answer of the store of the queues
    :raises Unavailable: that store does not answer, and the outbox has no such job
    """
    try:
        found = with_operator(deployment, lambda operator: operator.explain_job(job_id))
    except ForgeJobsError:
        if isinstance(error, Unavailable):
            raise error from None
        raise
    if isinstance(error, NotFound):
        return found
    text = f"{found.text}; the store of the queues does not answer now: {error}"
    return structs.replace(found, text=text)


def _holders(explanation: JobExplanation) -> list[tuple[str, str]]:
    what = "permit" if explanation.reason is Reason.LIMITED else "slot"
    return [(f"{what} held by", holder) for holder in explanation.held_by]
