"""``forge-jobs explain``: the reason for the state of a job."""

import click

from forge_jobs.cli.options import deployment_options, json_option, with_store
from forge_jobs.cli.output import emit_fields, emit_json, instant, plain
from forge_jobs.clients.client import JobClient
from forge_jobs.config import Deployment
from forge_jobs.model.ids import check_job_id
from forge_jobs.policy.admission import Explanation
from forge_jobs.storage.protocols import Storage


@click.command()
@click.argument("job_id")
@json_option
@deployment_options
def explain(deployment: Deployment, job_id: str, as_json: bool) -> None:
    """Say exactly why a job does not run, since when, until when, and what helps."""
    wanted = check_job_id(job_id, "job-id")

    async def ask(store: Storage) -> Explanation:
        client = JobClient(store)
        try:
            return await client.explain(wanted)
        finally:
            await client.aclose()

    explanation = with_store(deployment, ask)
    if as_json:
        emit_json({"job_id": wanted, **plain(explanation)})
        return
    click.echo(explanation.text)
    emit_fields(
        [
            ("reason", explanation.reason),
            ("since", instant(explanation.since)),
            ("until", instant(explanation.forecast)),
            ("waits for", ", ".join(explanation.blocked_by)),
            *_holders(explanation),
            ("what helps", explanation.help),
        ]
    )


def _holders(explanation: Explanation) -> list[tuple[str, str]]:
    return [("slot held by", holder) for holder in explanation.held_by]
