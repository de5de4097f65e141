"""The handlers that end the jobs of groups and workflows."""

from forge_jobs.clients.client import JobClient
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.outcomes import Dead
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.edges import GROUP_KIND, WORKFLOW_KIND
from forge_jobs.privacy.encryption import Encryption


def group_handlers(*, encryption: Encryption | None = None) -> HandlerRegistry:
    """Return a registry with what ends groups and workflows, for the registry of pods to include::

        handlers.include(group_handlers())

    One job of kind ``forge.group`` runs for each group, when the last member has ended: ``done``
    when all members are, ``dead`` otherwise. One of kind ``forge.workflow`` runs for each workflow,
    when all steps are done.

    :param encryption: that of the registry, where it has one
    """
    registry = HandlerRegistry(encryption=encryption)
    registry.register(settle_group, GROUP_KIND, max_attempts=None, timeout=None)
    registry.register(settle_workflow, WORKFLOW_KIND, max_attempts=None, timeout=None)
    return registry


async def settle_group(
    ctx: JobContext,
    client: JobClient,
    on_success: str | None = None,
    on_failure: str | None = None,
) -> dict[str, int]:
    """Say how the members ended. A success cancels the callback for failures. A resume reads
    ``on_success``."""
    state = await client.group(ctx.job_id)
    if state.failed:
        raise Dead(f"{state.failed} of {state.total} jobs of the group ended without success")
    if on_failure is not None:
        await client.cancel(on_failure)
    return {"done": state.done}


async def settle_workflow(
    name: str, steps: dict[str, dict[str, str]], added: dict[str, dict[str, str]] | None = None
) -> dict[str, int]:
    """Say how many steps there were. The job runs when no step holds the whole."""
    return {"steps": len(steps) + len(added or {})}
