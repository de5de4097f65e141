"""The handlers that the files of this folder deploy."""

from forge_jobs import HandlerRegistry

handlers = HandlerRegistry()


@handlers.job("mail.receipt", queue="mail", max_attempts=8, timeout=30)
async def send_receipt(order: int, address: str) -> str:
    """Send the receipt of one order."""
    return f"receipt of order {order} sent to {address}"


@handlers.job("report.daily", queue="reports")
def build_report(day: str) -> dict[str, str]:
    """Build the report of one day."""
    return {"report": day}
