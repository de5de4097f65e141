"""The handlers of the reports. Plain functions run in threads of the worker."""

from datetime import date

from forge_jobs import HandlerRegistry

handlers = HandlerRegistry()


@handlers.job("report.sales", queue="reports", max_attempts=3, never_retry_on=ValueError)
def build_report(day: str) -> dict[str, str]:
    """Build the report of one day. A day that is no date is not tried again."""
    return {"day": day, "weekday": f"{date.fromisoformat(day):%A}"}
