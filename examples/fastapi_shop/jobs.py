"""The handlers of the shop: the web application enqueues them, a worker runs them."""

from forge_jobs import HandlerRegistry, JobContext

handlers = HandlerRegistry()


@handlers.job("mail.receipt", queue="mail", max_attempts=3, timeout=30)
async def send_receipt(ctx: JobContext, order: int, address: str) -> str:
    """Send the receipt of one order. A retry sends with the same key, so no receipt goes twice."""
    ctx.log.info("sending the receipt of order %d, idempotency key %s", order, ctx.job_id)
    return f"receipt of order {order} sent to {address}"
