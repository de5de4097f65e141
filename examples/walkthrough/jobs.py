"""The handlers of a small shop."""

from forge_jobs import HandlerRegistry, JobContext, RateLimited

handlers = HandlerRegistry()


@handlers.job("mail.receipt", queue="mail", max_attempts=8, timeout=30)
async def send_receipt(ctx: JobContext, order: int, address: str) -> str:
    """Send the receipt of one order."""
    if not await ctx.rate_limit.acquire("smtp"):
        raise RateLimited("smtp")  # due when there is a token; no attempt is used up
    ctx.log.info("receipt of order %d goes out", order)
    return f"order {order} -> {address}"


@handlers.job("report.daily", queue="reports")
def build_report(day: str = "yesterday") -> dict[str, str]:
    """A plain function runs in a thread. There the context's methods are under ctx.sync."""
    return {"report": day}
