"""The handlers of a small shop, with forge_jobs."""

from datetime import timedelta

from forge_jobs import Exponential, HandlerRegistry, JobContext

handlers = HandlerRegistry()


@handlers.job(
    "mail.receipt",
    queue="mail",
    retry_on=ConnectionError,
    max_attempts=5,
    retry=Exponential(base=timedelta(seconds=1)),
    timeout=30,
)
def send_receipt(ctx: JobContext, order: int, address: str) -> str:
    if ctx.attempt == 1:
        raise ConnectionError("the mail server is busy")
    return f"order {order} -> {address}, in attempt {ctx.attempt}"


@handlers.cron("30 2 * * *", name="nightly", timezone="Europe/Berlin")
@handlers.job("report.daily", queue="reports")
def build_report(day: str = "yesterday") -> dict[str, str]:
    return {"report": day}
