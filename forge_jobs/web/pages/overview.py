"""The first page: the verdict in a sentence, problems, and the queues."""

from collections.abc import Sequence
from typing import Any

from forge_jobs.errors import Forbidden
from forge_jobs.operating.settings.documents import QueueView
from forge_jobs.operating.words import counted
from forge_jobs.web.pages.frame import Shown, Visit, link
from forge_jobs.web.pages.queues import mark, worst_first
from forge_jobs.web.pages.words import number

_SHOWN = 5


async def overview_page(visit: Visit) -> Shown:
    """Show whether work flows, what is wrong, and the queues, worst first."""
    queues = worst_first((await visit.operator.list_queues()).queues)
    problems = await _problems(visit)
    root = visit.request.scope.get("root_path", "")

    def count(status: str) -> str:
        return counted([queue.counts for queue in queues], status)

    figures = [
        ("Due", number(sum(queue.counts.due for queue in queues)), "status:pending"),
        ("Running", number(sum(queue.counts.running for queue in queues)), "status:in_progress"),
        ("Retrying", count("failed"), "status:failed"),
        ("Blocked", count("blocked"), "status:blocked"),
        ("Dead", count("dead"), "status:dead"),
        ("Done, kept", count("done"), "status:done"),
    ]
    return Shown(
        template="overview.html",
        title="Overview",
        command="forge-jobs problems",
        values={
            "headline": _headline(queues, problems),
            "problems": problems[:_SHOWN],
            "more": max(len(problems) - _SHOWN, 0),
            "queues": queues,
            "mark": mark,
            "figures": [
                {"name": name, "value": value, "href": link(root, "jobs", q=q)}
                for name, value, q in figures
            ],
        },
    )


async def _problems(visit: Visit) -> Sequence[Any]:
    """Return what is wrong, the worst first. Nothing for a caller who may not see all queues."""
    try:
        return (await visit.operator.problems()).problems
    except Forbidden:
        return ()


def _headline(queues: Sequence[QueueView], problems: Sequence[Any]) -> str:
    if problems:
        count = len(problems)
        return "1 thing needs you" if count == 1 else f"{count} things need you"
    if not queues:
        return "Ready. No queue is known yet"
    running = sum(queue.counts.running for queue in queues)
    due = sum(queue.counts.due for queue in queues)
    if not running and not due:
        return "Quiet. Nothing is due and nothing runs"
    return f"Flowing. {number(running)} jobs run, {number(due)} are due"
