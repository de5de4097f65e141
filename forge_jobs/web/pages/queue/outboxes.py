"""The pages of outboxes: those of this database, and those that pods relay into this store."""

from forge_jobs.errors import NotFound
from forge_jobs.model.names import command_line
from forge_jobs.operating.access import Right
from forge_jobs.operating.settings.outbox import OutboxRecords
from forge_jobs.web.pages.deeds import OUTBOX_DEEDS, allowed
from forge_jobs.web.pages.frame import Shown, Visit
from forge_jobs.web.pages.words import number

_LISTED = 100
"""Records of one page. The command shows up to 1,000."""
_BY_PAGE = 50
"""So many records an action may name in the address of its page."""
_DEEDS = tuple(each.operation for each in OUTBOX_DEEDS)


async def outboxes_page(visit: Visit) -> Shown:
    """Show the outboxes of the database, and what pods tell of those that they relay."""
    found = (await visit.operator.outbox_state()).outboxes
    relayed = (await visit.reader.looked()).snapshot.outboxes
    waiting = sum(each.waiting for each in found)
    aside = sum(each.set_aside for each in found)
    said = f"{_jobs(waiting)} to be relayed" if waiting else "No job waits to be relayed"
    said += f", {number(aside)} set aside" if aside else ""
    return Shown(
        template="outboxes.html",
        title="Outboxes",
        commands=("forge-jobs outbox state",),
        values={"headline": said, "outboxes": found, "relayed": relayed},
    )


async def outbox_page(visit: Visit) -> Shown:
    """Show records of one outbox, those set aside first with the reason."""
    name = visit.name("name")
    try:
        records = (await visit.operator.list_outbox(name, _LISTED)).records
    except NotFound:
        # The last record may have gone by an action of this page.
        records = OutboxRecords(name=name, records=()).records
    states = {each.name: each for each in (await visit.operator.outbox_state()).outboxes}
    state = states.get(name)
    aside = [each for each in records if each.problem]
    said = "Nothing waits"
    if state is not None:
        said = f"{_jobs(state.waiting)} to be relayed, {number(state.set_aside)} set aside"
    may = {each.operation for each in allowed(visit.actor.access, OUTBOX_DEEDS, _DEEDS)}
    return Shown(
        template="outbox.html",
        title=name,
        commands=(command_line("outbox list", name),),
        values={
            "name": name,
            "headline": f"{name}: {said}",
            "state": state,
            "records": records,
            "more": max((state.waiting + state.set_aside if state else 0) - len(records), 0),
            "shown_aside": [each.job_id for each in aside[:_BY_PAGE]],
            "may": may if visit.actor.access.has(Right.QUEUES) else set(),
        },
    )


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{number(count)} jobs"
