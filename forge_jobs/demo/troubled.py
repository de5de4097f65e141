"""The handlers of the drills, and of the work that goes on beside: ``demo --web`` loads these."""

from datetime import timedelta
from pathlib import Path

import anyio

from forge_jobs.demo.handlers import handlers as of_the_demo
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.outcomes import Throttled
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.retries import Fixed

ORDERS, CARDS, CRM, MAIL = "demo-orders", "demo-cards", "demo-crm", "demo-mail"

CARDS_ARE_BACK = "cards-are-back"
"""The file in the demo's folder that mends the card service."""

_CRM_HAS_THROTTLED = "crm-has-throttled"

handlers = HandlerRegistry()
handlers.include(of_the_demo)


@handlers.job("demo.order", queue=ORDERS)
async def order(ctx: JobContext, number: int) -> None:
    """Pack the parts of an order, with progress and log lines for the page of the job."""
    parts = number % 5 + 1
    for part in range(parts):
        await anyio.sleep(0.05)
        ctx.progress.set(part + 1, parts, "parts")
    ctx.log.info("order %d has %d parts", number, parts)


@handlers.job(
    "demo.charge_card", queue=CARDS, max_attempts=2, retry=Fixed(timedelta(seconds=1), jitter=False)
)
def charge_card(folder: str, number: int) -> int:
    """Fail until the service is back."""
    if not Path(folder, CARDS_ARE_BACK).exists():
        raise ConnectionError("the card service does not answer")
    return number


@handlers.job("demo.tell_crm", queue=CRM)
def tell_crm(folder: str, number: int) -> int:
    """The first of all calls is throttled, for as long as the queue says."""
    try:
        Path(folder, _CRM_HAS_THROTTLED).touch(exist_ok=False)
    except FileExistsError:
        return number
    raise Throttled()


@handlers.job("demo.mail", queue=MAIL)
def mail(number: int) -> int:
    """Send nothing."""
    return number
