"""Workflows on the command line."""

import anyio

from forge_jobs import EnqueueRequest, JobClient, Workflow, open_storage
from tests.cli.conftest import CommandLine
from tests.support.factories import spoil


def test_a_workflow_is_listed_shown_cancelled_and_resumed(forge: CommandLine) -> None:
    async def store() -> str:
        opened = await open_storage(forge.url, create=True)
        async with opened as storage, JobClient(storage) as client:
            workflow = Workflow("nightly")
            workflow.step("first", EnqueueRequest("k", queue="q"))
            workflow.step("last", EnqueueRequest("k", queue="q"), after=["first"])
            stored = await client.enqueue_workflow(workflow)
            await client.cancel(stored.steps["first"].job_id)
            return stored.id

    whole = anyio.run(store)

    listed = forge("workflows", "list").stdout
    assert whole in listed
    assert "nightly" in listed
    shown = forge("workflows", "show", whole)
    assert "first" in shown.stdout
    assert f"Held by first: forge-jobs workflows resume {whole}" in shown.stderr
    assert "1 jobs requeued" in forge("workflows", "resume", whole).stderr
    assert "0 of 2 steps are done." in forge("workflows", "show", whole).stderr
    assert "3 jobs cancelled" in forge("workflows", "cancel", whole, "--reason", "late").stderr
    assert "3 jobs requeued" in forge("workflows", "resume", whole).stderr
    missing = forge.run("workflows", "show", "01KB0000000000000000000000")
    assert missing.exit_code == 1
    other = forge.refuse("workflows", "resume", member(forge, whole), code=1)
    assert "there is no workflow" in other
    assert "forge-jobs explain" in other


def test_a_graph_that_an_edit_has_spoilt_says_why_there_are_ids(forge: CommandLine) -> None:
    async def store() -> str:
        opened = await open_storage(forge.url, create=True)
        async with opened as storage, JobClient(storage) as client:
            workflow = Workflow("nightly")
            workflow.step("first", EnqueueRequest("k", queue="q"))
            stored = await client.enqueue_workflow(workflow)
            await spoil(storage, stored.id, "{}")
            return stored.id

    shown = forge("workflows", "show", anyio.run(store))
    assert "Ids stand for the names of steps: " in shown.stderr
    assert "an edit has spoilt it" in shown.stderr


def member(forge: CommandLine, whole: str) -> str:
    steps = forge.json("workflows", "show", whole)["steps"]
    return str(steps[0]["job_id"])
