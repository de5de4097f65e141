"""The page of a limit of concurrency: the keys at which jobs wait, and the jobs of a key."""

from collections.abc import Sequence

from forge_jobs.model.names import command_line
from forge_jobs.operating.settings.concurrency import ConcurrencyView, PermitJob
from forge_jobs.web.pages.deeds import CONCURRENCY_DEEDS, allowed
from forge_jobs.web.pages.frame import Shown, Visit
from forge_jobs.web.pages.words import number

_LISTED = 50
DEEDS = tuple(each.operation for each in CONCURRENCY_DEEDS)


async def concurrency_page(visit: Visit) -> Shown:
    """Show a limit with its full keys, or with the jobs of one key."""
    queue, name = visit.name("queue"), visit.name("name")
    key = visit.request.query_params.get("key")
    after = visit.request.query_params.get("after")
    found = await visit.operator.get_concurrency(queue, name, key=key, after=after, limit=_LISTED)
    options: tuple[str, ...] = ()
    if key is not None:
        options = ("--key", key)
    elif after is not None:
        options = ("--after", after)
    deeds = allowed(visit.actor.access, CONCURRENCY_DEEDS, DEEDS)
    return Shown(
        template="limit.html",
        title=name,
        commands=(command_line("limits show", queue, name, options=options),),
        values={
            "limit": found,
            "headline": _headline(found, is_first=after is None),
            "full": len(found.running) == _LISTED or len(found.waiting) == _LISTED,
            "jobs": _states(found.running, "running") + _states(found.waiting, "waiting"),
            "may": {each.operation for each in deeds},
        },
    )


def _headline(found: ConcurrencyView, *, is_first: bool) -> str:
    if found.key is not None:
        more = "+" if len(found.waiting) == _LISTED else ""
        running, waiting = number(len(found.running)), number(len(found.waiting))
        return f"{running} of {number(found.at_most)} run, {waiting}{more} wait"
    if not found.keys:
        return "no job waits for it" if is_first else "no more keys"
    count = number(len(found.keys)) + ("+" if found.more else "")
    return f"jobs wait at {count} {'key' if count == '1' else 'keys'}"


def _states(jobs: Sequence[PermitJob], state: str) -> list[tuple[str, PermitJob]]:
    return [(state, each) for each in jobs]
