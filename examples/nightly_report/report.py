"""A report made of named steps, one of which breaks in the night: ``python report.py``.

- The steps read each other's results as arguments, by ``FromStep``.
- The steps after a broken one are held. The others go on.
- In the morning the cause is mended, and ``resume_workflow`` runs what is left, and nothing twice.

The currency service is a stand-in that is down at night.
"""

import asyncio
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from forge_jobs import (
    FromStep,
    HandlerRegistry,
    JobDead,
    QueueRuntime,
    Workflow,
    WorkflowState,
    group_handlers,
    open_storage,
)

URL = os.environ.get("FORGE_STORAGE_URL", "sqlite:///report.db")
SHOPS = {"berlin": [1200, 800], "oslo": [700], "porto": [450, 50, 500]}

rates: dict[str, float] = {}
handlers = HandlerRegistry()
handlers.include(group_handlers())


@dataclass
class Sales:
    """The sales of one shop in a day, in cents of its currency."""

    shop: str
    cents: int


@handlers.job("sales.fetch", queue="reports")
async def fetch(shop: str) -> Sales:
    return Sales(shop, sum(SHOPS[shop]))


@handlers.job("rates.fetch", queue="reports", max_attempts=1)
async def fetch_rate() -> float:
    if not rates:
        raise ConnectionError("the currency service is down")
    return rates["eur"]


@handlers.job("report.totals", queue="reports")
async def totals(
    berlin: Sales = FromStep("berlin"),
    oslo: Sales = FromStep("oslo"),
    porto: Sales = FromStep("porto"),
) -> dict[str, int]:
    return {each.shop: each.cents for each in (berlin, oslo, porto)}


@handlers.job("report.write", queue="reports")
async def write(
    sales: dict[str, int] = FromStep("totals"),
    rate: float = FromStep("rate"),
) -> str:
    return f"{sum(sales.values()) * rate / 100:.2f} dollars in {len(sales)} shops"


def nightly() -> Workflow:
    """Return the steps. The whole must be there by noon."""
    workflow = Workflow("nightly", deadline=datetime.now(UTC) + timedelta(hours=12))  # noqa: TID251
    for shop in SHOPS:
        workflow.step(shop, fetch.request(shop))
    workflow.step("rate", fetch_rate.request())
    workflow.step("totals", totals.request(), after=list(SHOPS))
    workflow.step("report", write.request(), after=["totals", "rate"])
    return workflow


def in_a_line(state: WorkflowState) -> str:
    """Return a state in a line."""
    held = f", held by {', '.join(state.held_by)}" if state.held_by else ""
    return f"{state.name}: {state.done} of {state.total} steps are done{held}"


async def main() -> None:
    async with (
        await open_storage(URL) as storage,
        QueueRuntime(storage, handlers).with_queues(reports=3).start() as handle,
    ):
        stored = await handle.enqueue_workflow(nightly())
        steps = {name: outcome.job_id for name, outcome in stored.steps.items()}
        await handle.result(steps["totals"], timeout=60)
        try:
            await handle.result(steps["rate"], timeout=60)
        except JobDead as error:
            print("at night:", error.message)
        print(in_a_line(await handle.client.workflow(stored.id)))

        rates["eur"] = 1.1
        await handle.client.resume_workflow(stored.id)
        print("in the morning:", await handle.result(steps["report"], timeout=60))
        await handle.result(stored.id, timeout=60)
        print(in_a_line(await handle.client.workflow(stored.id)))


if __name__ == "__main__":
    asyncio.run(main())
